"""Reads the lines of a collector process (:mod:`devicemanager.wire.collector_lines`).

A process in which vendor code runs may write anything, so any bytes give a line or a ``DocumentError``, and every
figure is checked for plausibility again.
"""

import json
import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, NoReturn

from devicemanager.errors import DocumentError, excerpt
from devicemanager.model.accelerator import Card, CollectorState, Reading, Reason, Versions
from devicemanager.model.figures import BY_NAME
from devicemanager.rules import plausibility
from devicemanager.rules.plausibility import CARDS_LIMIT
from devicemanager.wire.collector_lines import (
    LINE_KEYS,
    LINE_LIMIT_BYTES,
    VERSION,
    Announced,
    Begin,
    End,
    Failed,
    Hello,
    Line,
    Read,
)

_TEXT_LIMIT: Final = 256


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


_DECODER: Final = json.JSONDecoder(parse_constant=_no_constant)
"""Made once: every line of every sample passes through it."""


def decode(raw: bytes) -> Line:
    """One line, with or without its line break.

    Raises:
        DocumentError: It is none: too long, no JSON, another version, an unknown kind, or without what its kind
            needs. A figure that is not plausible is no such fault: it is absent ``invalid_data``.
    """
    if len(raw) <= _SHORT_BYTES and raw.startswith(b'{"card"'):
        return _decode_short(raw)
    return _decode(raw)


def _decode(raw: bytes) -> Line:
    if len(raw) > LINE_LIMIT_BYTES:
        raise DocumentError(f"line: longer than {LINE_LIMIT_BYTES} bytes")
    try:
        text = raw.decode().strip(" \t\r\n")
        document, end = _DECODER.raw_decode(text)
    except (ValueError, RecursionError) as error:
        raise DocumentError(f"line: no JSON: {excerpt(raw.decode(errors='replace'), 80)!r}") from error
    if end == len(text) and isinstance(document, dict):
        for kind, read in _KINDS.items():
            body = document.get(kind)
            if isinstance(body, dict):
                return read(body)
    raise DocumentError(f"line: of no known kind: {excerpt(text, 80)!r}")


_SHORT_BYTES: Final = 512
_decode_short: Final = lru_cache(maxsize=CARDS_LIMIT)(_decode)
"""Announcements are the same in sample after sample; bounded in number and size, because any bytes may come."""


def _read_line(body: Mapping[str, object]) -> Read:
    unread = body.get("unread", {})
    if not isinstance(unread, dict):
        raise DocumentError("line: reading.unread: must be an object")
    reading = Reading(
        _card(body),
        plausibility.reading({name: _raw(body, key) for name, key in LINE_KEYS}),
        _unhealthy_reason(body.get("unhealthy")),
        {excerpt(check): _reason(word) for check, word in unread.items() if excerpt(check)},
        _notes(body.get("notes")),
    )
    return Read(reading, _partitions(body))


def _notes(listed: object) -> Mapping[str, str]:
    """Those of known figures that are text; the rest is no loss."""
    if not isinstance(listed, dict):
        return {}
    words = {name: _one_line(listed.get(name)) for name in BY_NAME if name in listed}
    return {name: note for name, note in words.items() if note is not None}


def _begin_line(body: Mapping[str, object]) -> Begin:
    return Begin(_seconds(body, "monotonic"), _moment(_seconds(body, "wall")))


def _hello_line(body: Mapping[str, object]) -> Hello:
    if body.get("v") != VERSION:
        raise DocumentError(f"line: hello: version {excerpt(str(body.get('v')))}, not {VERSION}")
    return Hello(
        excerpt(_text(body, "manufacturer")),
        library=_one_line(body.get("libraryName")),
        library_fault=_one_line(body.get("libraryFault")),
        count_call=_one_line(body.get("countCall")),
        versions=Versions(_one_line(body.get("driverVersion")), _one_line(body.get("libraryVersion"))),
    )


def _failed_line(body: Mapping[str, object]) -> Failed:
    return Failed(_state(_text(body, "state")), excerpt(_text(body, "detail")))


_KINDS: Final[Mapping[str, Callable[[Mapping[str, object]], Line]]] = {
    "reading": _read_line,
    "card": lambda body: Announced(_card(body)),
    "begin": _begin_line,
    "end": lambda body: End(_integer(body, "count", CARDS_LIMIT)),
    "hello": _hello_line,
    "failed": _failed_line,
}
"""Those that come most often are first."""


def _partitions(body: Mapping[str, object]) -> tuple[Card, ...] | None:
    listed = body.get("partitions")
    if listed is None:
        return None
    if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
        raise DocumentError("line: reading.partitions: must be an array of objects")
    cards = tuple(map(_card, listed))
    if len({card.key for card in cards}) != len(cards) or any(card.parent != body.get("id") for card in cards):
        raise DocumentError("line: reading.partitions: must be partitions of this card, each once")
    return cards


def _card(body: Mapping[str, object]) -> Card:
    if body.get("parent") is not None:
        return _partition(body)
    return Card(
        index=_integer(body, "index", CARDS_LIMIT - 1),
        id=_identifier(body.get("id")),
        name=_one_line(body.get("name")),
        pci_bus_id=_identifier(body.get("pci")),
        serial=_one_line(body.get("serial")),
    )


def _partition(body: Mapping[str, object]) -> Card:
    parent, own = _identifier(body.get("parent")), _identifier(body.get("id"))
    if parent is None or own is None:
        raise DocumentError("line: a partition must have an id, and that of its card")
    index = _integer(body, "index", CARDS_LIMIT - 1)
    return Card(index, own, parent=parent, profile=_one_line(body.get("profile")))


def _raw(body: Mapping[str, object], key: str) -> object:
    """An unchecked figure: a value, or its reason."""
    value = body.get(key, Reason.NOT_REPORTED)
    return _reason(value) if isinstance(value, str) else value


def _reason(word: object) -> Reason:
    try:
        return Reason(str(word))
    except ValueError:
        return Reason.INVALID_DATA


def _integer(body: Mapping[str, object], key: str, highest: int) -> int:
    value = body.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= highest:
        raise DocumentError(f"line: {key}: must be an integer of 0..{highest}")
    return value


def _text(body: Mapping[str, object], key: str) -> str:
    value = body.get(key)
    if not isinstance(value, str):
        raise DocumentError(f"line: {key}: must be text")
    return value


def _seconds(body: Mapping[str, object], key: str) -> float:
    value = body.get(key)
    try:
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= float(value) < math.inf:
            return float(value)
    except OverflowError:
        pass
    raise DocumentError(f"line: {key}: must be a number of seconds, not negative")


def _moment(seconds: float) -> datetime:
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError) as error:
        raise DocumentError("line: wall: must be a time that a calendar has") from error


def _identifier(value: object) -> str | None:
    """An identifier, unchanged; None if it is not usable as one."""
    if isinstance(value, str) and 0 < len(value) <= _TEXT_LIMIT and value.isprintable():
        return value
    return None


def _one_line(value: object) -> str | None:
    """Text for a person, made printable where it is not."""
    return _identifier(value) or (excerpt(value, _TEXT_LIMIT) or None if isinstance(value, str) else None)


def _unhealthy_reason(value: object) -> str | None:
    """The reason, None only if the collector gave none: one that cannot be shown is replaced."""
    if value is None:
        return None
    return _one_line(value) or "the collector gives no readable reason"


def _state(word: str) -> CollectorState:
    """The state that a failing process reports; ``failed`` for any that it cannot be in."""
    try:
        state = CollectorState(word)
    except ValueError:
        return CollectorState.FAILED
    return CollectorState.FAILED if state in (CollectorState.OK, CollectorState.STARTING) else state
