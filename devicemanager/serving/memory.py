"""What the interpreter and the C library do with memory, where their defaults do not suit a server.

glibc keeps freed memory between blocks in use: after a burst of TLS connections most of what they took, about
60 KiB each, and the next burst fits badly into it.

Python looks for cycles whenever 700 more objects were made than freed, and at every hundredth time through all
there are. A list of 5,000 Instances is half a million objects without a cycle: looking through them stops the event
loop for 0.2 s, several times in one list. So all there are is looked through while nothing is under way.
"""

import asyncio
import ctypes
import gc
from collections.abc import Callable
from functools import cache
from typing import Final, NoReturn

NEW_OBJECTS: Final = 10_000
"""Made and not freed before young cycles are looked for: a few MiB of garbage at most."""


_NEVER: Final = 1 << 30

LOOK_EVERY_S: Final = 10.0
BUSY_LOOKS: Final = 30
"""After so many looks at which something was under way, all objects are looked through all the same: 5 minutes."""


def collect_garbage_rarely() -> None:
    """Looks for young cycles less often, and never in what there is now; to be called once everything is imported.

    For old ones :func:`collect_when_idle` is to run.
    """
    gc.freeze()
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(max(NEW_OBJECTS, young), middle, _NEVER)


async def collect_when_idle(idle: Callable[[], bool]) -> NoReturn:
    """Look through all objects every ten seconds, when it is a good moment: milliseconds then."""
    busy = 0
    while True:
        await asyncio.sleep(LOOK_EVERY_S)
        busy = 0 if idle() else busy + 1
        if busy in {0, BUSY_LOOKS}:
            busy = 0
            gc.collect()


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
