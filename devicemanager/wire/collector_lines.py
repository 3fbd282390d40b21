"""The lines between a collector process and the device manager: one compact JSON object each, ASCII only.

Every reading is announced by a ``card`` line before that device is touched, so that the reader knows which device a
call hangs on, or crashed on. The collector process imports this module, so it imports little; the device manager
reads lines with :mod:`devicemanager.wire.collector_line_decoding`.
"""

import json
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Final, TypeAlias

from devicemanager.model.accelerator import Card, CollectorState, Reading, Versions
from devicemanager.model.figures import FIGURES, PLACES, DeviceFigure
from devicemanager.rules.plausibility import CARDS_LIMIT, PARTITIONS_LIMIT

LINE_LIMIT_BYTES: Final = 64 << 10
"""The longest line that is read. A reading takes about 400 bytes."""

VERSION: Final = 3
"""Raised with incompatible changes. 2: a sample has its time of beginning. 3: a card lists its partitions, which
are announced and read like cards."""


@dataclass(frozen=True, slots=True)
class Hello:
    """The library is open.

    Attributes:
        manufacturer: For which the process speaks.
        library: Which file or package it found; None where it does not say.
        library_fault: What is unusual about that; None where nothing is.
        count_call: The library's call that counts the devices; None where it does not say.
        versions: Of driver and library.
    """

    manufacturer: str
    library: str | None = None
    library_fault: str | None = None
    count_call: str | None = None
    versions: Versions = Versions()  # noqa: RUF009 - it is frozen


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


LINE_KEYS: Final = [(spec.name, spec.line_key) for spec in FIGURES if spec.line_key is not None]
"""Of a reading: each figure that a line carries, and its key."""

_MEMBERS: Final = [(PLACES[name], f'"{key}":') for name, key in LINE_KEYS]

_encode: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False).encode


def encode(line: Line) -> bytes:
    """One line with its line break."""
    if isinstance(line, Announced):
        text = f'{{"card":{{{_identity(line.card)}}}}}'
    elif isinstance(line, Read):
        text = f'{{"reading":{{{_read(line)}}}}}'
    else:
        text = _encode(_document(line))
    return text.encode("ascii") + b"\n"


def _document(line: Hello | Begin | End | Failed) -> dict[str, object]:
    match line:
        case Hello(manufacturer, library, fault, count_call, versions):
            said = {
                "libraryName": library,
                "libraryFault": fault,
                "countCall": count_call,
                "driverVersion": versions.driver,
                "libraryVersion": versions.library,
            }
            more = {key: value for key, value in said.items() if value is not None}
            return {"hello": {"v": VERSION, "manufacturer": manufacturer, **more}}
        case Begin(monotonic_s, wall):
            return {"begin": {"monotonic": monotonic_s, "wall": wall.timestamp()}}
        case End(count):
            return {"end": {"count": count}}
        case Failed(state, detail):
            return {"failed": {"state": state, "detail": detail}}


# What follows is done for every device of every sample, so without dictionaries, which cost more than all the rest.
# Each returns the members of an object, without its braces.


@lru_cache(maxsize=CARDS_LIMIT + PARTITIONS_LIMIT)
def _identity(card: Card) -> str:
    if card.parent is not None:
        members = {"index": card.index, "parent": card.parent, "id": card.id, "profile": card.profile}
    else:
        members = {"index": card.index, "id": card.id, "name": card.name, "pci": card.pci_bus_id}
        if card.serial is not None:
            members["serial"] = card.serial
    return _encode(members)[1:-1]


def _read(line: Read) -> str:
    reading, partitions = line.reading, line.partitions
    values = reading.figures.values
    members = [_identity(reading.card)]
    members += [key + _figure(values[place]) for place, key in _MEMBERS]
    members.append(
        f'"unhealthy":{"null" if reading.unhealthy_reason is None else _encode(reading.unhealthy_reason)}'
    )
    members.append(f'"unread":{_encode(dict(reading.unread_checks)) if reading.unread_checks else "{}"}')
    if reading.notes:
        members.append(f'"notes":{_encode(dict(reading.notes))}')
    if partitions is not None:
        members.append(f'"partitions":[{",".join(f"{{{_identity(card)}}}" for card in partitions)}]')
    return ",".join(members)


def _figure(value: DeviceFigure) -> str:
    return str(value) if type(value) is int else _words(value)


_words: Final = lru_cache(maxsize=64)(_encode)
"""Reasons and names are the same in sample after sample."""


def ends_sample(raw: bytes) -> bool:
    """Whether a line looks like the last of a sample, without decoding it."""
    return raw.startswith(b'{"end"')
