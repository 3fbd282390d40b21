"""What a bench found, as Markdown, each budget with its result beside the figure."""

import statistics
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TextIO

from typing_extensions import override

Cell = str | int | float


@dataclass(frozen=True, slots=True)
class Spread:
    """Several measurements of one thing."""

    low: float
    median: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> "Spread":
        """Of at least one value."""
        ordered = sorted(values)
        return cls(ordered[0], statistics.median(ordered), ordered[-1])

    @override
    def __str__(self) -> str:
        return " / ".join(figure(value) for value in (self.low, self.median, self.high))


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """Round by round, so that what slowed both in one round cancels out."""
    return Spread.of(one / other for one, other in zip(ours, theirs, strict=True))


class Report:
    """Prints sections as they come, and counts the budgets that were missed.

    Args:
        out: Where to; standard output if not given.
    """

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self.missed: list[str] = []

    def section(self, title: str, explanation: str) -> None:
        """A heading, and how what follows was measured."""
        self._write(f"\n## {title}\n\n{explanation}\n")

    def note(self, text: str) -> None:
        """A sentence below the last table."""
        self._write(f"\n{text}\n")

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[Cell | Spread]]) -> None:
        """A table; numbers come with three significant digits, spreads as lowest / median / highest."""
        self._write(f"\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}\n")
        for row in rows:
            self._write(f"| {' | '.join(_text(cell) for cell in row)} |\n")

    def budgets(self, *checked: "Budget") -> None:
        """A table of budgets."""
        self.table(
            ("budget", "limit", "measured", "result"),
            [(one.what, one.limit, one.measured, "ok" if one.kept else "**over**") for one in checked],
        )
        self.missed += [one.what for one in checked if not one.kept]

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()


@dataclass(frozen=True, slots=True)
class Budget:
    """One promise and what was measured; of a spread the median counts.

    Attributes:
        what: With the unit.
        measured: The figure.
        at_most: Upper limit; None without one.
        at_least: Lower limit; None without one.
    """

    what: str
    measured: Spread | float
    at_most: float | None = None
    at_least: float | None = None

    @property
    def kept(self) -> bool:
        """Whether the figure is within its limits. What is no number is not."""
        value = self.measured.median if isinstance(self.measured, Spread) else self.measured
        above = self.at_least is None or value >= self.at_least
        below = self.at_most is None or value <= self.at_most
        return above and below

    @property
    def limit(self) -> str:
        """The limits as text."""
        limits = [(self.at_least, "at least"), (self.at_most, "at most")]
        return ", ".join(f"{word} {figure(limit)}" for limit, word in limits if limit is not None)


def figure(value: float) -> str:
    """Three significant digits, thousands separated, never an exponent."""
    if isinstance(value, int):
        return f"{value:,}"
    magnitude = abs(value)
    decimals = 0 if magnitude >= 100 else 1 if magnitude >= 10 else 2 if magnitude >= 1 else 3
    return f"{value:,.{decimals}f}"


def _text(cell: Cell | Spread) -> str:
    text = figure(cell) if isinstance(cell, int | float) else str(cell)
    return text.replace("|", "\\|").replace("\n", " ")
