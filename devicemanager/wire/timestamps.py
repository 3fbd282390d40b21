"""RFC 3339 times as Kubernetes and Go write them."""

import re
from datetime import UTC, datetime
from typing import Final

from devicemanager.rules.freshness import EARLIEST

_RFC3339: Final = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt]([0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,12}))?(?:([Zz])|([+-][0-9]{2}:[0-9]{2}))"
)


_ZERO_YEAR: Final = "0001-"


def parse(value: object) -> datetime | None:
    """A time, aware, UTC, digits beyond the microsecond cut off.

    None for anything that is no RFC 3339 time, and for a time at which nothing here was measured: before 2000.
    """
    moment = parse_any(value)
    return moment if moment is not None and moment >= EARLIEST else None


def parse_any(value: object) -> datetime | None:
    """The same for a time of any year, which a clock that was never set may show; None for the zero time too."""
    match = _RFC3339.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return None
    day, clock, fraction, _, offset = match.groups()
    try:
        moment = datetime.fromisoformat(f"{day}T{clock}.{(fraction or '0')[:6]:0<6}{offset or '+00:00'}")
        moment = moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return moment if moment.year > 1 else None


def is_zero(value: object) -> bool:
    """Whether it is the zero time of Go programs (year 1), which means "no time"."""
    return isinstance(value, str) and _RFC3339.fullmatch(value) is not None and value.startswith(_ZERO_YEAR)


def seconds(moment: datetime) -> str:
    """A Kubernetes time: UTC, whole seconds, cut off: ``2026-08-12T09:15:00Z``."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ").rjust(20, "0")
