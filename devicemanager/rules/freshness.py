"""The age of a peer's figures, independent of its clock, and when they are too old to be shown.

Times of two clocks are subtracted only as a last resort: the sender's ``Age`` comes first, then two times of the
sender's own clock.
"""

from datetime import UTC, datetime
from typing import Final

from devicemanager.model.usage import SourceState, UsageSample

EARLIEST: Final = datetime(2000, 1, 1, tzinfo=UTC)
"""Clocks that were never set show 1970, and overflows 1754: nothing here was measured before."""

DEFAULT_PERIOD_S: Final = 15
"""Used for a period that a document lacks, or gives outside of 1..3600 seconds."""

LONGEST_PERIOD_S: Final = 3600

STALE_AFTER_PERIODS: Final = 3
"""A sample may miss two ticks and still be shown; exactly three periods old is fresh."""


def age_s(
    *,
    timestamp: datetime | None,
    now: datetime,
    held_s: float = 0.0,
    age_header_s: float | None = None,
    date: datetime | None = None,
) -> float | None:
    """Seconds between a measurement and now.

    Args:
        timestamp: When the sender says it measured, on the sender's clock; None for the zero time.
        now: The reader's wall clock at this moment.
        held_s: Seconds since the reader received the answer, on the reader's monotonic clock.
        age_header_s: The ``Age`` header: seconds since the reading began, on the sender's monotonic clock.
        date: The ``Date`` header: the sender's wall clock when it answered.

    Returns:
        Never negative; None for a measurement without a time, which nothing makes fresh.
    """
    if timestamp is None:
        return None
    if age_header_s is not None:
        age = age_header_s + held_s
    elif date is not None:
        age = (date - timestamp).total_seconds() + held_s
    else:
        age = (now - timestamp).total_seconds()
    return max(age, 0.0)


def sample_age_s(sample: UsageSample, now: datetime) -> int:
    """Whole seconds since the oldest figure of a sample was measured, never negative.

    The sources' own ages come first: they do not depend on how far two machines' clocks are apart.

    Args:
        sample: As answered.
        now: The reader's wall clock, for a sample whose sources give no age.
    """
    ages = [
        source.age_s for source in sample.sources if source.state == SourceState.OK and source.age_s is not None
    ]
    return max(ages) if ages else max(0, int((now - sample.timestamp).total_seconds()))


def effective_period_s(period_s: int | None) -> int:
    """The period to use: the one named, if it lies in 1..3600 seconds, else 15."""
    return period_s if period_s is not None and 1 <= period_s <= LONGEST_PERIOD_S else DEFAULT_PERIOD_S


def is_stale(age: float | None, period_s: int | None) -> bool:
    """Whether a sample is too old to be shown: older than three of its own periods, or of unknown age."""
    return age is None or age > STALE_AFTER_PERIODS * effective_period_s(period_s)
