"""Converts the units of libraries and clusters to those of the documents. Integers only: a float loses bytes.

Capacity and use are both rounded up, so that rounding never shows more used than there is, nor 0 for some use.
"""

from typing import Final

from devicemanager.model.figures import FIGURES, Figure, Figures, FigureSpec
from devicemanager.model.reasons import Reason

_MIB: Final = 1 << 20
NANOCORES_PER_MILLICORE: Final = 1_000_000


def mib_ceil(size_bytes: int) -> int:
    """Bytes as MiB, rounded up."""
    return -(-size_bytes // _MIB)


def mib(size_bytes: Figure) -> Figure:
    """A figure in bytes as MiB, rounded up."""
    return size_bytes if isinstance(size_bytes, Reason) else mib_ceil(size_bytes)


def percent_used(used: Figure, total: Figure) -> Figure:
    """Share of ``total`` in use, 0..100 percent, truncated.

    Both are in the same unit, bytes where they are known. The use's reason comes before the capacity's; a use
    outside 0..``total`` and a capacity of nothing give ``invalid_data``.
    """
    if isinstance(used, Reason):
        return used
    if isinstance(total, Reason):
        return total
    if total <= 0 or not 0 <= used <= total:
        return Reason.INVALID_DATA
    return 100 * used // total


def on_wire(spec: FigureSpec, value: int) -> int:
    """A value in the unit of readings, in the unit of the snapshot and the sample."""
    divisor = spec.quantity.wire_divisor
    return -(-value // divisor) if spec.quantity.rounds_up else value // divisor


def published(figures: Figures) -> Figures:
    """A reading's figures in the units of the wire."""
    return Figures.in_order(
        on_wire(spec, value) if isinstance(value, int) else value
        for spec, value in zip(FIGURES, figures.values, strict=True)
    )


def period_seconds(period_s: float) -> int:
    """A period as whole seconds, rounded up: 1.5 s is 2, and nothing that samples at all is 0."""
    whole = int(period_s)
    return whole if whole == period_s else whole + 1


def millicores_ceil(nanocores: int) -> int:
    """Billionths of a core as thousandths, rounded up."""
    return -(-nanocores // NANOCORES_PER_MILLICORE)


def millicores(nanocores: Figure) -> Figure:
    """A figure in billionths of a core as thousandths, rounded up: small use is never shown as 0."""
    return nanocores if isinstance(nanocores, Reason) else millicores_ceil(nanocores)
