"""What the interpreter and the C library do with memory, where their defaults do not suit a server.

glibc keeps freed memory between blocks in use: after a burst of TLS connections most of what they took, about
60 KiB each, and the next burst fits badly into it.

Python looks for cycles whenever 700 more objects were made than freed, and at every hundredth time through all
there are. A list of 5,000 Instances is half a million objects without a cycle: looking through them stops the event
loop for 0.2 s, several times in one list.
"""

import ctypes
import gc
from collections.abc import Callable
from functools import cache
from typing import Final

NEW_OBJECTS: Final = 10_000
"""Made and not freed before young cycles are looked for: a few MiB of garbage at most."""


def collect_garbage_rarely() -> None:
    """Looks for cycles less often, and never in what there is now; to be called once everything is imported."""
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS, *gc.get_threshold()[1:])


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
