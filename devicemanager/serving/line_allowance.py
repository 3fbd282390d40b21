"""How many lines about one thing may be logged: some at once, and one a minute after that."""

from typing import Final

from devicemanager.clock import Clock

BURST: Final = 4
"""Lines that may be logged at once: a failure, the recovery, and both once more."""

LINE_EVERY_S: Final = 60.0
"""What fails and recovers on every tick is logged once a minute after that, not twice a tick."""


class LineAllowance:
    """The lines about one thing."""

    def __init__(self, clock: Clock, burst: int = BURST, every_s: float = LINE_EVERY_S) -> None:
        """Allow ``burst`` lines, and one each ``every_s`` seconds after that."""
        self._clock = clock
        self._burst = burst
        self._every_s = every_s
        self._lines = float(burst)
        self._counted_s = clock.monotonic()

    def take(self) -> bool:
        """Whether a line may be logged now; it counts as logged then."""
        now_s = self._clock.monotonic()
        self._lines = min(self._burst, self._lines + (now_s - self._counted_s) / self._every_s)
        self._counted_s = now_s
        if self._lines < 1:
            return False
        self._lines -= 1
        return True
