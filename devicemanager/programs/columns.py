"""Text in columns, as wide as a terminal allows."""

from collections.abc import Iterable, Sequence
from typing import Final

from devicemanager.errors import printable

_GAP: Final = "   "
_NARROW_GAP: Final = "  "
_RECOGNISABLE: Final = 10
"""Characters of a cell that are left when it is cut: enough for ``unhealthy…``."""


def columns(
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    width: int | None = None,
    *,
    drop: Sequence[str] = (),
    shorten: Sequence[str] = (),
    drop_last: Sequence[str] = (),
) -> str:
    """Text in columns as wide as their widest cell, without trailing spaces.

    Args:
        header: Names of the columns.
        rows: A cell for each; what a peer calls its devices may hold anything.
        width: What the table should fit in; None, or enough room, leaves it as it is.
        drop: Columns to leave out where it does not fit, the first one first.
        shorten: Columns to cut where it still does not.
        drop_last: Columns to leave out where that would not be enough either, the first one first.
    """
    table = [list(header), *(list(map(printable, row)) for row in rows)]
    gap = _GAP
    if width is not None and _width(table, gap) > width:
        gap = _NARROW_GAP
        for name in drop:
            if _width(table, gap) > width:
                table = _without(table, name)
        for name in drop_last:
            if _width(table, gap, shorten) > width:
                table = _without(table, name)
        _shorten(table, [table[0].index(name) for name in shorten if name in table[0]], _width(table, gap) - width)
    widths = _widths(table)
    return "\n".join(
        gap.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table
    )


def _widths(table: Sequence[Sequence[str]]) -> list[int]:
    return [max(len(cell) for cell in column) for column in zip(*table, strict=True)]


def _width(table: Sequence[Sequence[str]], gap: str, shortened: Sequence[str] = ()) -> int:
    """How wide a table is, with some columns as short as they can be."""
    cells = (
        min(width, _RECOGNISABLE) if name in shortened else width
        for name, width in zip(table[0], _widths(table), strict=True)
    )
    return sum(cells) + len(gap) * (len(table[0]) - 1)


def _without(table: Sequence[list[str]], name: str) -> list[list[str]]:
    index = table[0].index(name)
    return [row[:index] + row[index + 1 :] for row in table]


def _shorten(table: Sequence[list[str]], indexes: Sequence[int], excess: int) -> None:
    """Shorten the columns given, the widest first, to no less than a recognisable rest."""
    widths = _widths(table)
    for _ in range(excess):
        widest = max(indexes, key=lambda index: widths[index], default=None)
        if widest is None or widths[widest] <= _RECOGNISABLE:
            break
        widths[widest] -= 1
    for row in table:
        for index in indexes:
            if len(row[index]) > widths[index]:
                row[index] = row[index][: widths[index] - 1] + "…"
