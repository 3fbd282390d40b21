"""Compiles the stand-in libraries when they are first needed, with the compiler that is there.

That is the system's, else the one inside the PyPI package ``ziglang``, which the test extra installs. What was
compiled is kept beside the sources, or in the temporary directory where those cannot be written, under the hash of
its source: a changed source is never served by an old library.

``python -m tests.standins.build`` prints the folder of ``libnvidia-ml.so.1``, for LD_LIBRARY_PATH.
"""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

_SOURCES = Path(__file__).parent
_FLAGS = ("-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-shared", "-fPIC")


class NoCompilerError(Exception):
    """Neither a system compiler nor ``ziglang`` is there."""


@cache
def nvml_library() -> Path:
    """The compiled ``libnvidia-ml.so.1`` stand-in; alone in its folder, which can go on LD_LIBRARY_PATH."""
    return shared_library(_SOURCES / "nvml.c", "libnvidia-ml.so.1")


def shared_library(source: Path, soname: str, cache_folder: Path | None = None) -> Path:
    """Compile one C file, unless the same text has been compiled before.

    Raises:
        NoCompilerError: There is nothing to compile with.
        subprocess.CalledProcessError: The source does not compile.
    """
    digest = hashlib.sha256(source.read_bytes() + repr(_FLAGS).encode()).hexdigest()[:16]
    cache_folder = cache_folder or _cache()
    folder = cache_folder / f"{source.stem}-{digest}"
    library = folder / soname
    if not library.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            compiled = Path(scratch) / soname
            command = [*compiler(), *_FLAGS, f"-Wl,-soname,{soname}", "-o", str(compiled), str(source), "-lm"]
            subprocess.run(command, check=True, env=_environment(cache_folder))
            compiled.replace(library)  # whole or not at all, also when two test runs compile at once
    return library


def compiler() -> Sequence[str]:
    """The command that compiles C here.

    Raises:
        NoCompilerError: There is none.
    """
    for name in ("cc", "gcc", "clang"):
        if found := shutil.which(name):
            return (found,)
    if importlib.util.find_spec("ziglang") is not None:
        return (sys.executable, "-m", "ziglang", "cc")
    raise NoCompilerError("no C compiler: install one, or the Python package ziglang")


@cache
def _cache() -> Path:
    beside = _SOURCES / "build"
    try:
        beside.mkdir(exist_ok=True)
        with tempfile.TemporaryFile(dir=beside):
            return beside
    except OSError:
        return Path(tempfile.gettempdir()) / f"devicemanager-standins-{os.getuid()}"


def _environment(cache_folder: Path) -> dict[str, str]:
    """Zig keeps a cache of its own and does not work without a place for it, HOME or not."""
    zig = str(cache_folder / "zig")
    return {"ZIG_GLOBAL_CACHE_DIR": zig, "ZIG_LOCAL_CACHE_DIR": zig, **os.environ}


if __name__ == "__main__":
    print(nvml_library().parent)  # noqa: T201 - a command; its output is its result
