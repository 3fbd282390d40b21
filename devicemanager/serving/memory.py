"""Returns freed memory from the C library to the operating system.

glibc keeps freed memory between blocks in use: after a burst of TLS connections most of what they took, about
60 KiB each, and the next burst fits badly into it.
"""

import ctypes
from collections.abc import Callable
from functools import cache


def trim_malloc() -> None:
    """Return every whole free page with ``malloc_trim``; takes milliseconds. No effect where there is none."""
    trim = _trim()
    if trim is not None:
        trim(0)


@cache
def _trim() -> Callable[[int], int] | None:
    """glibc's ``malloc_trim``; None elsewhere (musl returns memory by itself)."""
    found: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return found
