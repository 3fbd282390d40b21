"""Gives memory that is free, but still held by this process, back to the machine.

The C library keeps what was freed between pieces that are in use: after a burst of TLS connections that is most of
what they took, about 60 KiB each, and the next burst fits badly into what the last one left.
"""

import ctypes
from collections.abc import Callable
from functools import cache


def give_back() -> None:
    """Return every whole free page. Takes some milliseconds; without such a call in the C library, nothing."""
    trim = _trim()
    if trim is not None:
        trim(0)


@cache
def _trim() -> Callable[[int], int] | None:
    """glibc's ``malloc_trim``; None elsewhere (musl gives back by itself)."""
    found: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return found
