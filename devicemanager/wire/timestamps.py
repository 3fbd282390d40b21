"""RFC 3339 times as Kubernetes and Go write them."""

import re
from datetime import UTC, datetime
from typing import Final

_RFC3339: Final = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt]([0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,12}))?(?:([Zz])|([+-][0-9]{2}:[0-9]{2}))"
)


def parse(value: object) -> datetime | None:
    """A time, aware, UTC, digits beyond the microsecond cut off.

    None for anything that is no RFC 3339 time and for Go's zero time (year 1), which means "no time".
    """
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


def seconds(moment: datetime) -> str:
    """A Kubernetes time: UTC, whole seconds, cut off: ``2026-08-12T09:15:00Z``."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ").rjust(20, "0")
