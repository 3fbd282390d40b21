"""The lines between a collector process and the device manager: one compact JSON object each, ASCII only.

Every reading is announced by a ``card`` line before that device is touched, so that the reader knows which device a
call hangs on, or crashed on. A process in which vendor code runs may write anything, so any bytes give a line or a
``DocumentError``, and every figure is checked for plausibility again. The collector process imports
this module, so it imports little.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NoReturn, TypeAlias

from devicemanager.errors import DocumentError, excerpt
from devicemanager.model.accelerator import Card, CollectorState, Reading, Reason
from devicemanager.model.figures import FIGURES
from devicemanager.rules import plausibility
from devicemanager.rules.plausibility import CARDS_LIMIT

LINE_LIMIT_BYTES: Final = 64 << 10
"""The longest line that is read. A reading takes about 400 bytes."""

VERSION: Final = 3
"""Raised with incompatible changes. 2: a sample has its time of beginning. 3: a card lists its partitions, which
are announced and read like cards."""

_TEXT_LIMIT: Final = 256


@dataclass(frozen=True, slots=True)
class Hello:
    """The library is open.

    Attributes:
        manufacturer: For which the process speaks.
        library: Which file or package it found; None where it does not say.
        library_fault: What is unusual about that; None where nothing is.
    """

    manufacturer: str
    library: str | None = None
    library_fault: str | None = None


@dataclass(frozen=True, slots=True)
class Begin:
    """A sample begins.

    Attributes:
        monotonic_s: When, in seconds of CLOCK_MONOTONIC, as the process read it; finite and not negative.
        wall: The same moment on the wall clock, as the process read it; aware UTC.
    """

    monotonic_s: float
    wall: datetime


@dataclass(frozen=True, slots=True)
class Announced:
    """The device that is touched next, as far as it is known."""

    card: Card


@dataclass(frozen=True, slots=True)
class Read:
    """The announced device was read.

    Attributes:
        reading: Its figures in the units of readings, or the reasons for having none.
        partitions: All partitions of a card, those that are not to be touched included; None if it did not say.
    """

    reading: Reading
    partitions: tuple[Card, ...] | None = None


@dataclass(frozen=True, slots=True)
class End:
    """The sample is complete; ``count`` cards exist, those that were not to be touched included."""

    count: int


@dataclass(frozen=True, slots=True)
class Failed:
    """The library as a whole cannot be used; the process ends."""

    state: CollectorState
    detail: str


Line: TypeAlias = Hello | Begin | Announced | Read | End | Failed


_encode: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False).encode


def encode(line: Line) -> bytes:
    """One line with its line break."""
    return _encode(_document(line)).encode("ascii") + b"\n"


def _document(line: Line) -> dict[str, object]:
    match line:
        case Hello(manufacturer, library, fault):
            said = {"libraryName": library, "libraryFault": fault}
            more = {key: value for key, value in said.items() if value is not None}
            return {"hello": {"v": VERSION, "manufacturer": manufacturer, **more}}
        case Begin(monotonic_s, wall):
            return {"begin": {"monotonic": monotonic_s, "wall": wall.timestamp()}}
        case Announced(card):
            return {"card": _identity(card)}
        case Read(reading, partitions):
            listed = None if partitions is None else [_identity(card) for card in partitions]
            return {"reading": _figures(reading) | ({} if listed is None else {"partitions": listed})}
        case End(count):
            return {"end": {"count": count}}
        case Failed(state, detail):
            return {"failed": {"state": state, "detail": detail}}


def _identity(card: Card) -> dict[str, object]:
    if card.parent is not None:
        return {"index": card.index, "parent": card.parent, "id": card.id, "profile": card.profile}
    return {"index": card.index, "id": card.id, "name": card.name, "pci": card.pci_bus_id}


def _figures(reading: Reading) -> dict[str, object]:
    return {
        **_identity(reading.card),
        **{spec.line_key: reading.figures[spec.name] for spec in FIGURES if spec.line_key is not None},
        "unhealthy": reading.unhealthy_reason,
        "unread": dict(reading.unread_checks),
    }


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
    if len(raw) > LINE_LIMIT_BYTES:
        raise DocumentError(f"line: longer than {LINE_LIMIT_BYTES} bytes")
    try:
        document = _DECODER.decode(raw.decode())
    except (ValueError, RecursionError) as error:
        raise DocumentError(f"line: no JSON: {excerpt(raw.decode(errors='replace'), 80)!r}") from error
    match document:
        case {"reading": dict(body)}:
            return Read(_reading(body), _partitions(body))
        case {"card": dict(body)}:
            return Announced(_card(body))
        case {"begin": dict(body)}:
            return Begin(_seconds(body, "monotonic"), _moment(_seconds(body, "wall")))
        case {"end": dict(body)}:
            return End(_integer(body, "count", CARDS_LIMIT))
        case {"hello": {"v": int(version), "manufacturer": str(manufacturer), **more}}:
            if version != VERSION:
                raise DocumentError(f"line: version {version}, not {VERSION}")
            library, fault = _one_line(more.get("libraryName")), _one_line(more.get("libraryFault"))
            return Hello(excerpt(manufacturer), library, fault)
        case {"failed": {"state": str(state), "detail": str(detail)}}:
            return Failed(_state(state), excerpt(detail))
        case _:
            raise DocumentError(f"line: of no known kind: {excerpt(raw.decode(), 80)!r}")


def _reading(body: Mapping[str, object]) -> Reading:
    unread = body.get("unread", {})
    if not isinstance(unread, dict):
        raise DocumentError("line: reading.unread: must be an object")
    return Reading(
        card=_card(body),
        figures=plausibility.reading(
            {spec.name: _raw(body, spec.line_key) for spec in FIGURES if spec.line_key is not None}
        ),
        unhealthy_reason=_unhealthy_reason(body.get("unhealthy")),
        unread_checks={excerpt(check): _reason(word) for check, word in unread.items() if excerpt(check)},
    )


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
