"""The figures of a device: one entry each, and everything that spells a figure follows from its entry.

The collector's lines, plausibility, the snapshot, the sample and its OpenAPI schema, Prometheus metrics, tables and
``docs/figures.md`` are all written from :data:`FIGURES`. To add a figure, add its entry here, let the collectors
read it, and run ``python docs/tables.py``; a collector that does not read it leaves it ``not_reported``.

In a reading a figure is in the unit in which libraries give it (bytes, milliwatts); in the snapshot and the sample,
in the unit of the wire (MiB, watts). The module is longer than others because the whole table is in one place.
"""

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, Self, TypeAlias

from devicemanager.model.reasons import Reason

Figure: TypeAlias = int | Reason
"""A measured integer, or the reason for having none. There is no third case: no 0 for unknown, no float."""

Names: TypeAlias = tuple[str, ...]

DeviceFigure: TypeAlias = int | Names | Reason
"""A figure of a device: a number, or names; an empty tuple means that there are measured to be none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """What a figure counts in, and which values can be true.

    Attributes:
        unit: Of a reading.
        lowest: The least plausible value of a reading; for names, the least number of them.
        highest: The greatest plausible value of a reading; for names, the greatest number of them.
        wire_unit: Of the snapshot and the sample.
        wire_divisor: ``unit`` in one ``wire_unit``.
        rounds_up: How what is left of that division rounds; otherwise it is cut off.
        base_divisor: ``unit`` in one Prometheus base unit.
        cell_unit: What kubectl's cells write behind the number.
        bits: Of the integer type into which a Go client reads the sample.
        names: Whether the figure is a list of names and no number.
    """

    unit: str
    lowest: int = 0
    highest: int
    wire_unit: str
    wire_divisor: int = 1
    rounds_up: bool = False
    base_divisor: int = 1
    cell_unit: str = ""
    bits: int = 32
    names: bool = False


MEMORY: Final = Quantity(
    unit="bytes",
    highest=1 << 50,  # 1 PiB; no card is near it, and every sum of cards stays exact in a 64-bit JSON reader
    wire_unit="MiB",
    wire_divisor=1 << 20,
    rounds_up=True,
    cell_unit="Mi",
    bits=64,
)
CAPACITY: Final = replace(MEMORY, lowest=1)
PERCENTAGE: Final = Quantity(unit="%", highest=100, wire_unit="%", base_divisor=100, cell_unit="%")
TEMPERATURE: Final = Quantity(
    unit="°C",
    highest=150,  # chips shut down well before; this finds a library that answers in hundredths
    wire_unit="°C",
    cell_unit="C",
)
"""The wire has no sign, and no running card is below freezing."""
POWER: Final = Quantity(
    unit="mW",
    highest=10_000_000,  # boards draw up to about 3 kW; this finds milliwatts taken for watts
    wire_unit="W",
    wire_divisor=1000,
    base_divisor=1000,
    cell_unit="W",
)
POWER_LIMIT: Final = replace(POWER, lowest=1)
NAMES: Final = Quantity(unit="names", highest=32, wire_unit="names", names=True)


class Scope(StrEnum):
    """What a figure belongs to when a device is divided among tenants."""

    BOARD = "board"
    """The whole board's: temperature, power."""
    SHARE = "share"
    """Of a share or a partition only what was measured of itself; the card's holds other tenants' too."""


class Fold(StrEnum):
    """What one cell shows of several cards."""

    MEAN = "averaged over the cards that were measured"
    SUM = "of all cards together"
    HIGHEST = "the highest of all cards"
    UNION = "of any card"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of tables.

    Attributes:
        heading: As kubectl names it; other tables leave a leading ``GPU-`` out.
        fold: What a row of several cards shows.
        priority: 0: kubectl always shows it. 1: with ``-o wide``. 2: likewise, and other tables only where there is
            room.
    """

    heading: str
    fold: Fold
    priority: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureSpec:
    """One figure.

    Attributes:
        name: The key of :class:`Figures`.
        description: What it is, for a person: OpenAPI, HELP, tables and ``docs/figures.md`` begin with it.
        quantity: Its units and plausible range.
        line_key: In the collector's line; None where it is computed from others.
        snapshot_key: In a card of the snapshot.
        sample_key: In an accelerator of the sample.
        metric: The device manager's Prometheus gauge; for names, of how many there are.
        member: For names: the gauge that has a series of 1 for each name, and the label that carries it.
        scope: Whose it is on a divided device.
        column: None where no column shows it alone.
        part_of: The figure that this one cannot exceed.
        at_most: The figure of the same device that bounds this one where it is known, and how many times that.
        share_of: For what is computed: the two figures whose quotient it is, in percent.
    """

    name: str
    description: str
    quantity: Quantity
    line_key: str | None = None
    snapshot_key: str
    sample_key: str
    metric: str
    member: tuple[str, str] | None = None
    scope: Scope
    column: Column | None = None
    part_of: str | None = None
    at_most: tuple[str, int] | None = None
    share_of: tuple[str, str] | None = None


FIGURES: Final = (
    FigureSpec(
        name="memory_total",
        description="Memory capacity, as the manufacturer's library reports it",
        quantity=CAPACITY,
        line_key="memory",
        snapshot_key="memory",
        sample_key="memoryMiB",
        metric="accelerator_memory_total_bytes",
        scope=Scope.SHARE,
    ),
    FigureSpec(
        name="memory_used",
        description="Memory in use, without what the driver reserves for itself where the library tells it apart",
        quantity=MEMORY,
        line_key="memoryUsed",
        snapshot_key="memoryUsage",
        sample_key="memoryUsageMiB",
        metric="accelerator_memory_used_bytes",
        scope=Scope.SHARE,
        part_of="memory_total",
    ),
    FigureSpec(
        name="memory_utilization",
        description="Memory in use as a share of the capacity",
        quantity=PERCENTAGE,
        snapshot_key="memoryUtilization",
        sample_key="memoryUtilizationPercent",
        metric="accelerator_memory_used_ratio",
        scope=Scope.SHARE,
        share_of=("memory_used", "memory_total"),
    ),
    FigureSpec(
        name="compute_utilization",
        description="Compute units, or time, in use",
        quantity=PERCENTAGE,
        line_key="cores",
        snapshot_key="coresUtilization",
        sample_key="coresUtilizationPercent",
        metric="accelerator_cores_utilization_ratio",
        scope=Scope.SHARE,
        column=Column("GPU-Util", Fold.MEAN, priority=0),
    ),
    FigureSpec(
        name="temperature",
        description="Temperature",
        quantity=TEMPERATURE,
        line_key="temperature",
        snapshot_key="temperature",
        sample_key="temperatureCelsius",
        metric="accelerator_temperature_celsius",
        scope=Scope.BOARD,
        column=Column("Temp", Fold.HIGHEST),
    ),
    FigureSpec(
        name="power_usage",
        description="Power drawn",
        quantity=POWER,
        line_key="power",
        snapshot_key="powerUsage",
        sample_key="powerUsageWatts",
        metric="accelerator_power_watts",
        scope=Scope.BOARD,
        column=Column("Power", Fold.SUM),
        at_most=("power_limit", 2),  # boards exceed their limit for moments, and never twofold
    ),
    FigureSpec(
        name="power_limit",
        description="The most power that may be drawn, as enforced now",
        quantity=POWER_LIMIT,
        line_key="powerLimit",
        snapshot_key="powerLimit",
        sample_key="powerLimitWatts",
        metric="accelerator_power_limit_watts",
        scope=Scope.BOARD,
        column=Column("Power-Limit", Fold.SUM, priority=2),
    ),
    FigureSpec(
        name="clock_reduction_reasons",
        description="What lowers the clocks now, in the library's words; empty when nothing does",
        quantity=NAMES,
        line_key="clockReductionReasons",
        snapshot_key="clockReductionReasons",
        sample_key="clockReductionReasons",
        metric="accelerator_clock_reduction_reasons",
        member=("accelerator_clock_reduction_reason", "reason"),
        scope=Scope.BOARD,
        column=Column("Clock-Reduction", Fold.UNION, priority=2),
    ),
)
"""In the order in which every document and table has them."""

SHOWN: Final = tuple((spec, spec.column) for spec in FIGURES if spec.column is not None)
"""The figures that have a column of their own, with it."""

BY_NAME: Final[Mapping[str, FigureSpec]] = {spec.name: spec for spec in FIGURES}

PLACES: Final[Mapping[str, int]] = {spec.name: place for place, spec in enumerate(FIGURES)}
"""Where a figure is in :attr:`Figures.values`."""

_READ: Final = tuple(spec.share_of is None for spec in FIGURES)


def unit_text(quantity: Quantity) -> str:
    """The unit of the wire and its rounding: ``, MiB, rounded up``; nothing for names."""
    if quantity.names:
        return ""
    if quantity.rounds_up:
        return f", {quantity.wire_unit}, rounded up"
    return f", {quantity.wire_unit}" + (", truncated" if quantity.base_divisor > 1 else "")


@dataclass(frozen=True, slots=True, init=False)
class Figures:
    """Every figure of one device, by name: its value, or why it is absent.

    Attributes:
        values: In the order of the table.
    """

    values: tuple[DeviceFigure, ...]

    def __init__(self, missing: Reason = Reason.NOT_REPORTED, /, **values: DeviceFigure) -> None:
        """Figures by name.

        Args:
            missing: Why those that are not given are absent.
            values: By name.

        Raises:
            KeyError: The table has no such figure.
        """
        found = dict.fromkeys(BY_NAME, missing) | values
        if len(found) != len(BY_NAME):
            raise KeyError(*(values.keys() - BY_NAME.keys()))
        object.__setattr__(self, "values", tuple(found.values()))

    @classmethod
    def in_order(cls, values: Iterable[DeviceFigure]) -> Self:
        """All figures of the table, in its order. Unlike the constructor, it checks nothing and costs little."""
        figures = object.__new__(cls)
        object.__setattr__(figures, "values", tuple(values))
        return figures

    def __getitem__(self, name: str) -> DeviceFigure:
        """A figure by its name."""
        return self.values[PLACES[name]]

    def keys(self) -> Iterable[str]:
        """The names, in the order of the table; with them, ``**figures`` gives all."""
        return BY_NAME.keys()

    def number(self, name: str) -> Figure:
        """A figure that is a number."""
        value = self[name]
        if isinstance(value, tuple):
            raise TypeError(f"{name} is no number")
        return value

    @property
    def measured(self) -> bool:
        """Whether any figure is there at all."""
        for value in self.values:  # noqa: SIM110 - asked several times for every reading, and the first decides mostly
            if not isinstance(value, Reason):
                return True
        return False

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """The reason of each absent figure, without those that are computed from others."""
        return tuple(value for value in itertools.compress(self.values, _READ) if isinstance(value, Reason))


NOT_REPORTED: Final = Figures(Reason.NOT_REPORTED)
"""Of a device of which nothing is known."""
