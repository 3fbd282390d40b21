"""What a collector process writes: one compact JSON object a line, ASCII only.

The reader is ``devicemanager.wire.collector_lines``. Every reading is announced by a ``card`` line before that card
is touched, so that whoever reads knows which card a call hangs on, or crashed on. This module encodes and nothing
more; it writes to no descriptor.
"""

import json
from typing import Final

from devicemanager.errors import CollectorError
from devicemanager.model.accelerator import Card, Reading
from devicemanager.model.figures import FIGURES

LINES_VERSION: Final = 2
"""Raised when one side cannot do with the other's older or newer lines. 2: a sample says when it began."""

_encode: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False).encode


def hello(manufacturer: str, pid: int, *, library: str | None = None, fault: str | None = None) -> bytes:
    """The first line of a process: its library is open. Which one it found, and what is unusual about it."""
    said = {"libraryName": library, "libraryFault": fault}
    more = {key: value for key, value in said.items() if value is not None}
    return _line({"hello": {"v": LINES_VERSION, "manufacturer": manufacturer, "pid": pid, **more}})


def begin(monotonic_s: float, wall_s: float) -> bytes:
    """A sample starts.

    Args:
        monotonic_s: Seconds of CLOCK_MONOTONIC, which all processes of a machine share, before the library is asked
            for anything. The age of every figure of the sample counts from here.
        wall_s: Seconds since 1970 of the wall clock at that same moment.
    """
    return _line({"begin": {"monotonic": monotonic_s, "wall": wall_s}})


def announcement(card: Card) -> bytes:
    """This card is touched next. What an earlier sample learned of it is repeated, the rest is null."""
    return _line({"card": _card(card)})


def reading(reading: Reading) -> bytes:
    """One card's figures in the units of readings, or the reasons for having none."""
    return _line(
        {
            "reading": {
                **_card(reading.card),
                **{spec.line_key: reading.figures[spec.name] for spec in FIGURES if spec.line_key},
                "unhealthy": reading.unhealthy_reason,
                "unread": dict(reading.unread_checks),
            }
        }
    )


def end(count: int) -> bytes:
    """The sample is complete; ``count`` cards exist, those that were not to be touched included."""
    return _line({"end": {"count": count}})


def failed(error: CollectorError) -> bytes:
    """The last line of a process whose library as a whole cannot be used."""
    return _line({"failed": {"state": error.state, "detail": error.detail}})


def _card(card: Card) -> dict[str, object]:
    return {"index": card.index, "id": card.id, "name": card.name, "pci": card.pci_bus_id}


def _line(document: dict[str, object]) -> bytes:
    return _encode(document).encode("ascii") + b"\n"
