"""kube-apiserver and kube-controller-manager: where they are, or built here from Kubernetes' own modules.

No registry carries these programs, but the Go module proxy carries their source, and ``go.mod`` here pins it.
A build takes some eight minutes on two idle cores. It is kept in a cache folder, keyed by what it was made of.
"""

import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

PROGRAMS = ("kube-apiserver", "kube-controller-manager")
GIVEN = "DEVICEMANAGER_CONTROL_PLANE"
"""Names a folder that holds the programs; then nothing is built."""

FOLDER = Path(__file__).parent
_VERSION_PACKAGE = "k8s.io/component-base/version"


class MissingProgramError(Exception):
    """A program cannot be had here; the message says which, and what would bring it."""


def kubernetes_version() -> str:
    """The version that ``go.mod`` pins, ``v1.36.3``."""
    found = re.search(r"^require k8s\.io/kubernetes (v\S+)$", (FOLDER / "go.mod").read_text(), re.MULTILINE)
    assert found is not None
    return found[1]


def control_plane() -> Path:
    """The folder that holds :data:`PROGRAMS`, built if need be.

    Raises:
        MissingProgramError: They are not there and cannot be built.
    """
    given = os.environ.get(GIVEN)
    if given:
        missing = [name for name in PROGRAMS if not (Path(given) / name).exists()]
        if missing:
            raise MissingProgramError(f"{GIVEN}={given} holds no {' and no '.join(missing)}")
        return Path(given)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "devicemanager-control-plane"
    folder = cache / f"{kubernetes_version()}-{_key()}"
    for name in PROGRAMS:
        if not (folder / name).exists():
            _build(name, folder)
    return folder


def on_path(name: str, cure: str) -> Path:
    """A program that the machine has.

    Raises:
        MissingProgramError: It has not.
    """
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if found is None:
        raise MissingProgramError(f"no {name}: {cure}")
    return Path(found)


def _key() -> str:
    made_of = b"".join((FOLDER / name).read_bytes() for name in ("go.mod", "go.sum"))
    return hashlib.sha256(made_of + _linker_flags().encode()).hexdigest()[:12]


def _linker_flags() -> str:
    version = kubernetes_version()
    major, minor = version.lstrip("v").split(".")[:2]
    stamped = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    return " ".join(["-s", "-w", *(f"-X {_VERSION_PACKAGE}.{key}={value}" for key, value in stamped.items())])


def _build(name: str, folder: Path) -> None:
    """Build one program beside its place and move it there, so that a build cut short leaves nothing behind."""
    go = on_path("go", f"install Go, or name a folder with {' and '.join(PROGRAMS)} in {GIVEN}")
    folder.mkdir(parents=True, exist_ok=True)
    half_built = folder / f".{name}.{os.getpid()}"
    command: list[str | Path] = [
        go,
        "build",
        "-mod=readonly",
        "-buildvcs=false",
        "-trimpath",
        "-ldflags",
        _linker_flags(),
    ]
    done = subprocess.run(
        [*command, "-o", half_built, f"k8s.io/kubernetes/cmd/{name}"],
        check=False,
        cwd=FOLDER,
        env={**os.environ, "CGO_ENABLED": "0"},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise MissingProgramError(f"{name} cannot be built: {done.stderr.strip()[-2000:]}")
    half_built.rename(folder / name)
