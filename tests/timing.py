"""Time in tests: the one clock that a test sets, and the two ways to wait for something."""

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final, TypeVar

from typing_extensions import override

from devicemanager.clock import Clock

DEADLINE_S: Final = 30.0
"""How long to wait for another task; on an idle machine it takes milliseconds."""

PROCESS_DEADLINE_S: Final = 60.0
"""How long to wait for another process, which may be starting."""

START: Final = datetime(2026, 8, 12, 9, 15, 5, tzinfo=UTC)

T = TypeVar("T")


class FakeClock(Clock):
    """Stands still until a test advances it, or sets ``wall`` or ``monotonic_s`` alone."""

    def __init__(self, wall: datetime = START, monotonic_s: float = 1000.0) -> None:
        self.wall = wall
        self.monotonic_s = monotonic_s

    @override
    def now(self) -> datetime:
        return self.wall

    @override
    def monotonic(self) -> float:
        return self.monotonic_s

    def advance(self, seconds: float) -> None:
        """Let time pass on both sides."""
        self.wall += timedelta(seconds=seconds)
        self.monotonic_s += seconds


class LoopClock(Clock):
    """The event loop's time, which is virtual under looptime, on both sides."""

    @override
    def now(self) -> datetime:
        return START + timedelta(seconds=self.monotonic())

    @override
    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()


async def until(condition: Callable[[], object], what: str = "", deadline_s: float = DEADLINE_S) -> None:
    """Let other tasks run until something is so.

    Raises:
        TimeoutError: It is not within the deadline.
    """
    try:
        async with asyncio.timeout(deadline_s):
            while not condition():  # noqa: ASYNC110 - what is waited for has no event to wait on
                await asyncio.sleep(0.002)
    except TimeoutError:
        raise TimeoutError(f"not within {deadline_s:g} s: {what or condition}") from None


def wait_until(look: Callable[[], T | None], what: str, deadline_s: float = PROCESS_DEADLINE_S) -> T:
    """Wait for another process: look until there is something true, and return it.

    Raises:
        TimeoutError: There is nothing within the deadline.
    """
    deadline = time.monotonic() + deadline_s
    while not (seen := look()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {deadline_s:g} s: {what}")
        time.sleep(0.01)
    return seen
