"""Checks raw figures of vendor libraries. An implausible one is absent ``invalid_data``.

Collectors call this on what they read, and the device manager calls it again on what the collector process wrote: a
process that a vendor library may have corrupted is not trusted to have checked its own figures. A reader of another
program's snapshot calls it too. A number is never clamped into its range, because a clamped figure looks measured.
"""

import re
from collections.abc import Mapping
from typing import Final

from devicemanager.model.figures import FIGURES, NAMES, DeviceFigure, Figures, FigureSpec, Names
from devicemanager.model.reasons import Reason
from devicemanager.rules.units import on_wire, percent_used

CARDS_LIMIT: Final = 1024
"""More cards than any node has, partitions that count as cards included. As many fit the snapshot's 4 MiB."""

PARTITIONS_LIMIT: Final = 1024
"""Of all cards of a node together; 128 cards of eight partitions, which is more than any has."""

SENTINELS: Final = frozenset({0x7FFF_FFFF, 0xFFFF_FFFF, 0x7FFF_FFFF_FFFF_FFFF, 0xFFFF_FFFF_FFFF_FFFF})
"""Values that libraries return for "no value" with success. Odd, so never a size in whole pages."""

_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")


def reading(raw: Mapping[str, object]) -> Figures:
    """The figures of one reading, in the units of readings.

    Args:
        raw: Name of the figure -> the raw value, or the reason for having none; missing ones are ``not_reported``.

    Returns:
        Each figure if it is plausible. What is part of another figure (memory in use) is ``invalid_data`` too where
        it is more, or where that other one is not plausible; it stays where the other is absent for another reason.
        What is computed from other figures is.
    """
    figures = _checked(raw, published=False)
    computed = {spec.name: percent_used(*map(figures.number, spec.share_of)) for spec in FIGURES if spec.share_of}
    return Figures(**{**figures, **computed})


def published(raw: Mapping[str, object]) -> Figures:
    """The figures that another program's snapshot carries, in the units of the wire; otherwise as :func:`reading`.

    A number computed from other figures is ``invalid_data`` where one of them is.
    """
    figures = _checked(raw, published=True)
    doubtful = {
        spec.name: Reason.INVALID_DATA
        for spec in FIGURES
        if spec.share_of
        and isinstance(figures[spec.name], int)
        and Reason.INVALID_DATA in [figures[name] for name in spec.share_of]
    }
    return Figures(**{**figures, **doubtful})


def _checked(raw: Mapping[str, object], *, published: bool) -> Figures:
    found: dict[str, DeviceFigure] = {
        spec.name: _figure(spec, raw.get(spec.name, Reason.NOT_REPORTED), published=published) for spec in FIGURES
    }
    for spec in FIGURES:
        if spec.part_of is not None:
            found[spec.name] = _part(found[spec.name], found[spec.part_of])
    return Figures(**found)


def _figure(spec: FigureSpec, raw: object, *, published: bool) -> DeviceFigure:
    if isinstance(raw, Reason):
        return raw
    lowest, highest = spec.quantity.lowest, spec.quantity.highest
    if published:
        lowest, highest = on_wire(spec, lowest), on_wire(spec, highest)
    if spec.quantity.names:
        return names(raw)
    if not isinstance(raw, int) or isinstance(raw, bool):
        return Reason.INVALID_DATA
    return raw if lowest <= raw <= highest and raw not in SENTINELS else Reason.INVALID_DATA


def names(raw: object) -> Names | Reason:
    """A list of different names of lower-case letters, digits and ``_``; ``invalid_data`` if it is none."""
    if not isinstance(raw, list | tuple) or len(raw) > NAMES.highest:
        return Reason.INVALID_DATA
    found = tuple(name for name in raw if isinstance(name, str) and _NAME.fullmatch(name))
    return found if len(set(found)) == len(raw) else Reason.INVALID_DATA


def _part(part: DeviceFigure, whole: DeviceFigure) -> DeviceFigure:
    if isinstance(part, Reason):
        return part
    if whole is Reason.INVALID_DATA:
        return Reason.INVALID_DATA
    return Reason.INVALID_DATA if isinstance(whole, int) and isinstance(part, int) and part > whole else part
