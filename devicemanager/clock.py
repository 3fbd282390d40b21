"""The only module that reads clocks. Everything else gets a ``Clock``, so that tests set the time."""

import time
from datetime import UTC, datetime
from typing import Protocol

from typing_extensions import override


class Clock(Protocol):
    """Two readings of time that must not be mixed."""

    def now(self) -> datetime:
        """Wall-clock time, aware, UTC. It may jump; never subtract two of these to get an age of our own doing."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back, shared by all processes of the machine (CLOCK_MONOTONIC)."""
        ...


class SystemClock(Clock):
    """The machine's own clocks."""

    @override
    def now(self) -> datetime:
        return datetime.now(UTC)

    @override
    def monotonic(self) -> float:
        return time.monotonic()
