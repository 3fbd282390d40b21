"""A demo's folder of keys, which goes with the demo, or with the next one where this one is killed."""

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_PREFIX: Final = "devicemanager-demo-"
_LOCK: Final = "lock"
"""Held locked while the demo lives; the kernel lets go of it however the demo ends. Not inherited by children."""

_OURS_ALONE: Final = 0o700
"""The mode that temporary directories are made with."""


@contextmanager
def private_folder() -> Iterator[Path]:
    """A temporary folder that only its owner may enter; :func:`remove_leftovers` lets it alone until the end."""
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as name:
        folder = Path(name)
        with _held(folder):
            yield folder


def remove_leftovers() -> None:
    """Remove what demos left behind that were killed.

    Only folders of ours are looked at. One without a lock is being made right now, or is no demo's.
    """
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):  # somebody else's, still in use, or removed by another demo at this moment
            _remove_if_left(folder)


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Hold the lock. It appears under its name when it is locked already, so nobody finds it free too early."""
    with (folder / f".{_LOCK}.new").open("x") as file:
        with suppress(OSError):  # a file system without locks: then nobody removes the folder of a killed demo
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            Path(file.name).rename(folder / _LOCK)
        yield


def _remove_if_left(folder: Path) -> None:
    """Remove a folder whose lock nobody holds.

    Raises:
        OSError: It has no lock, the lock is held, or it cannot be looked into.
    """
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        found = os.fstat(opened)
        if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) != _OURS_ALONE:
            return
        lock = os.open(_LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=opened)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder)
        finally:
            os.close(lock)
    finally:
        os.close(opened)
