"""Durations as people write them: ``15s``, ``1m30s``, ``500ms``: Go's grammar, which Kubernetes users know."""

import re
from typing import Final

_UNIT_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART: Final = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)(ms|s|m|h)", re.ASCII)
_WHOLE: Final = re.compile(rf"(?:{_PART.pattern})+", re.ASCII)


def parse_duration(text: str) -> float:
    """Seconds, never negative, of a duration with units; ``0`` alone needs none.

    Raises:
        ValueError: The text is no such duration. The message says what one looks like.
    """
    if text == "0":
        return 0.0
    if _WHOLE.fullmatch(text) is None:
        raise ValueError("not a duration; write for example 15s, 1m30s or 500ms")
    return sum(float(number) * _UNIT_S[unit] for number, unit in _PART.findall(text))


def format_duration(seconds: float) -> str:
    """The shortest text that :func:`parse_duration` reads back, to the millisecond: ``1m30s``."""
    rest = round(seconds * 1000)
    parts = []
    for unit, size in (("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)):
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def human_duration(seconds: int) -> str:
    """Whole seconds as kubectl writes them: ``5s``, ``2m10s``, ``15m``, ``3h``, ``2d``. Never negative."""
    seconds = max(0, seconds)
    if seconds < 120:
        return f"{seconds}s"
    minutes, rest = divmod(seconds, 60)
    if minutes < 10:
        return f"{minutes}m{rest}s" if rest else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    hours = minutes // 60
    return f"{hours}h" if hours < 48 else f"{hours // 24}d"
