"""Checks raw figures of vendor libraries. An implausible one is absent ``invalid_data``.

Collectors call this on what they read, and the device manager calls it again on what the collector process wrote: a
process that a vendor library may have corrupted is not trusted to have checked its own figures. A reader of another
program's snapshot calls it too. A number is never clamped into its range, because a clamped figure looks measured.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from devicemanager.model.figures import FIGURES, NAMES, PLACES, DeviceFigure, Figure, Figures, FigureSpec, Names
from devicemanager.model.reasons import Reason
from devicemanager.rules.units import on_wire, percent_used

CARDS_LIMIT: Final = 1024
"""More cards than any node has, partitions that count as cards included. As many fit the snapshot's 4 MiB."""

PARTITIONS_LIMIT: Final = 1024
"""Of all cards of a node together; 128 cards of eight partitions, which is more than any has."""

SENTINELS: Final = frozenset({0x7FFF_FFFF, 0xFFFF_FFFF, 0x7FFF_FFFF_FFFF_FFFF, 0xFFFF_FFFF_FFFF_FFFF})
"""Values that libraries return for "no value" with success. Odd, so never a size in whole pages."""

_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")


_Range: TypeAlias = tuple[str, int, int]
"""Name of a figure, its lowest and its highest plausible value; for names, which are no numbers, an empty range."""


def _range(spec: FigureSpec, *, on_the_wire: bool) -> _Range:
    quantity = spec.quantity
    if quantity.names:
        return spec.name, 1, 0
    if on_the_wire:
        return spec.name, on_wire(spec, quantity.lowest), on_wire(spec, quantity.highest)
    return spec.name, quantity.lowest, quantity.highest


_READ: Final = [_range(spec, on_the_wire=False) for spec in FIGURES]
_PUBLISHED: Final = [_range(spec, on_the_wire=True) for spec in FIGURES]

# These hold places in the table of figures, because they are gone through for every reading.
_PARTS: Final = [(PLACES[spec.name], PLACES[spec.part_of]) for spec in FIGURES if spec.part_of]
_BOUNDED: Final = [
    (PLACES[spec.name], PLACES[spec.at_most[0]], spec.at_most[1]) for spec in FIGURES if spec.at_most
]
_SHARES: Final = [
    (PLACES[spec.name], PLACES[spec.share_of[0]], PLACES[spec.share_of[1]]) for spec in FIGURES if spec.share_of
]


def reading(raw: Mapping[str, object], *, missing: Reason = Reason.NOT_REPORTED) -> Figures:
    """The figures of one reading, in the units of readings.

    Args:
        raw: Name of the figure -> the raw value, or the reason for having none.
        missing: Why those that are not given are absent.

    Returns:
        Each figure if it is plausible. What is part of another figure (memory in use) is ``invalid_data`` too where
        it is more, or where that other one is not plausible; it stays where the other is absent for another reason.
        So is what is bounded by another figure that is there (power by its limit) and is more.
        What is computed from other figures is.
    """
    found = _checked(raw, _READ, missing, truncated=0)
    for place, part, whole in _SHARES:
        found[place] = percent_used(_number(found[part]), _number(found[whole]))
    return Figures.in_order(found)


def published(raw: Mapping[str, object]) -> Figures:
    """The figures that another program's snapshot carries, in the units of the wire; otherwise as :func:`reading`.

    A number computed from other figures is ``invalid_data`` where one of them is.
    """
    found = _checked(raw, _PUBLISHED, Reason.NOT_REPORTED, truncated=1)
    _doubt_shares(found)
    return Figures.in_order(found)


def on_card(part: Figures, card: Figures) -> Figures:
    """The figures of a partition or share, as far as its card can hold them.

    Capacity and use above the card's own capacity are ``invalid_data``, and what is computed from them. Nothing
    changes where the card's capacity is not known.

    Args:
        part: Its figures, each plausible by itself.
        card: Of the card, in the same units.
    """
    found = list(part.values)
    for used, total in _PARTS:
        most = card.values[total]
        if _exceeds(found[total], most):
            found[total], found[used] = Reason.INVALID_DATA, _doubted(found[used])
        elif _exceeds(found[used], most):
            found[used] = Reason.INVALID_DATA
    _doubt_shares(found)
    return Figures.in_order(found)


def number(raw: object, highest: int) -> Figure:
    """A number that is no figure, such as a count of errors: 0 to ``highest``, else ``invalid_data``."""
    if isinstance(raw, Reason):
        return raw
    if isinstance(raw, int) and not isinstance(raw, bool) and 0 <= raw <= highest and raw not in SENTINELS:
        return raw
    return Reason.INVALID_DATA


def _checked(
    raw: Mapping[str, object], ranges: Sequence[_Range], missing: Reason, *, truncated: int
) -> list[DeviceFigure]:
    """Each figure by itself, then against those that limit it; ``truncated`` units may be missing from a limit."""
    found: list[DeviceFigure] = []
    for name, lowest, highest in ranges:
        value = raw.get(name, missing)
        if isinstance(value, Reason):
            found.append(value)
        elif isinstance(value, int) and value is not True and value is not False:
            plausible = lowest <= value <= highest and value not in SENTINELS
            found.append(value if plausible else Reason.INVALID_DATA)
        else:
            found.append(names(value) if lowest > highest else Reason.INVALID_DATA)
    for place, whole in _PARTS:
        if found[whole] is Reason.INVALID_DATA or _exceeds(found[place], found[whole]):
            found[place] = _doubted(found[place])
    for place, limit, times in _BOUNDED:
        most = found[limit]
        if isinstance(most, int) and _exceeds(found[place], times * (most + truncated) - truncated):
            found[place] = Reason.INVALID_DATA
    return found


def _number(figure: DeviceFigure) -> Figure:
    return Reason.INVALID_DATA if isinstance(figure, tuple) else figure


def _exceeds(figure: DeviceFigure, limit: DeviceFigure) -> bool:
    return isinstance(figure, int) and isinstance(limit, int) and figure > limit


def _doubt_shares(found: list[DeviceFigure]) -> None:
    """What is computed from a figure that is not plausible is not plausible."""
    for place, part, whole in _SHARES:
        if isinstance(found[place], int) and Reason.INVALID_DATA in (found[part], found[whole]):
            found[place] = Reason.INVALID_DATA


def _doubted(figure: DeviceFigure) -> DeviceFigure:
    return figure if isinstance(figure, Reason) else Reason.INVALID_DATA


def names(raw: object) -> Names | Reason:
    """A list of different names of lower-case letters, digits and ``_``; ``invalid_data`` if it is none."""
    if not isinstance(raw, list | tuple) or len(raw) > NAMES.highest:
        return Reason.INVALID_DATA
    if not raw:
        return ()
    found = tuple(name for name in raw if isinstance(name, str) and _NAME.fullmatch(name))
    return found if len(set(found)) == len(raw) else Reason.INVALID_DATA
