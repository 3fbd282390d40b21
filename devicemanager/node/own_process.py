"""What this process asks the kernel for itself."""

import ctypes
import os
from typing import Final

_PR_SET_DUMPABLE: Final = 4
_PR_SET_CHILD_SUBREAPER: Final = 36


def adopt_orphans() -> None:
    """Become the parent of orphans among our descendants, as process 1 is of all."""
    if os.getpid() != 1:
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def keep_memory_private() -> bool:
    """Let no other process of this user read our memory, environment or descriptors, a collector's above all.

    Processes that we start are as open as ever once they run their own program. No core of ours is written, and
    whoever wants to look into us must be root. Returns whether the kernel does so; a seccomp profile may refuse.
    """
    return _prctl(_PR_SET_DUMPABLE, 0)


def _prctl(option: int, value: int) -> bool:
    return bool(ctypes.CDLL(None).prctl(option, value, 0, 0, 0) == 0)
