"""A demo's temporary folder, removed when the demo ends, or by the next demo where it was killed."""

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
"""Locked while the demo runs; the kernel unlocks it however the demo ends. Children do not inherit the lock."""

_OURS_ALONE: Final = 0o700
"""The mode that temporary directories are made with."""


@contextmanager
def private_folder() -> Iterator[Path]:
    """A temporary folder that only its owner may enter; :func:`remove_leftovers` skips it while it is locked."""
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as name:
        folder = Path(name)
        with _held(folder):
            yield folder


def remove_leftovers() -> None:
    """Remove the folders of demos that were killed.

    Only this user's folders are considered. One without a lock file is just being made, or is not a demo's.
    """
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):  # another user's, still in use, or just removed by another demo
            _remove_if_left(folder)


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Hold the lock. The file gets its name once it is locked, so that another demo never finds it unlocked."""
    with (folder / f".{_LOCK}.new").open("x") as file:
        with suppress(OSError):  # a file system without locks: the folder of a killed demo then stays
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            Path(file.name).rename(folder / _LOCK)
        yield


def _remove_if_left(folder: Path) -> None:
    """Remove a folder that is not locked.

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
