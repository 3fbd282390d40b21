"""A rate limit for log lines that peers can cause: one per cause and interval, with the number left out."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from structlog.typing import FilteringBoundLogger

INTERVAL_S: Final = 10.0
_CAUSES_LIMIT: Final = 64
"""More causes than this share one limit; a peer must not be able to grow the table."""


@dataclass(slots=True)
class _Allowance:
    last_s: float
    left_out: int = 0


class RateLimitedLog:
    """Writes at most one line per cause every ``interval_s`` seconds."""

    def __init__(
        self, log: FilteringBoundLogger, monotonic: Callable[[], float], interval_s: float = INTERVAL_S
    ) -> None:
        """Args: ``monotonic`` gives seconds that never go back."""
        self._log = log
        self._monotonic = monotonic
        self._interval_s = interval_s
        self._allowances: dict[tuple[str, str], _Allowance] = {}

    def write(self, level: int, event: str, *, cause: str, **values: object) -> None:
        """Write a line, or count it; ``cause`` makes two lines alike, and becomes the line's ``reason``."""
        now = self._monotonic()
        key = (event, cause)
        if key not in self._allowances and len(self._allowances) >= _CAUSES_LIMIT:
            key = (event, "")
        allowance = self._allowances.get(key)
        if allowance is not None and now - allowance.last_s < self._interval_s:
            allowance.left_out += 1
            return
        if allowance is not None and allowance.left_out:
            values["left_out"] = allowance.left_out
        self._allowances[key] = _Allowance(now)
        self._log.log(level, event, reason=cause, **values)
