"""How long to wait before a collector process is started again."""

from typing import Final

LONGEST_S: Final = 60.0
"""A driver that comes back is found within a minute; a node without one costs one start a minute."""

FIRST_S: Final = 1.0

_READABLE_PERIODS: Final = 1.75
"""Below the 2 periods within which a node that can be read has a new sample, with room for the start itself."""


def delay_s(failures: int, period_s: float, *, readable: bool) -> float:
    """Seconds to wait after a number of failures in a row.

    Args:
        failures: Samples failed since the last good one, at least 1.
        period_s: Seconds between samples.
        readable: Whether the last attempt gave a sample, be it that there is no card.

    Returns:
        1 s, or the period where that is shorter, doubled with each further failure up to 60 s, and below 2 periods
        while there are samples.
    """
    longest = min(LONGEST_S, _READABLE_PERIODS * period_s) if readable else LONGEST_S
    first = min(FIRST_S, period_s)
    doublings = min(max(failures, 1) - 1, 64)
    return float(min(first * 2**doublings, longest))
