"""What simulated cards do: the scenario file, read into values that a time can be asked of.

The format is documented in ``docs/simulated.md``. Everything here is pure but :func:`read_scenario`. Time is the
machine's wall clock, so that a scenario goes on where it was when the collector process is started anew, and so
that several nodes with the same file move together.
"""

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from collectors.scenario_table import Table
from devicemanager.errors import CollectorError
from devicemanager.model.accelerator import CollectorState, Reason
from devicemanager.rules.plausibility import CARDS_LIMIT, PARTITIONS_LIMIT

PARTITION_FIGURES: Final = ("memory", "memoryUsed", "cores")
"""Figures that a partition has of its own."""

FIGURES: Final = ("memory", "memoryUsed", "cores", "temperature", "power")
"""Figures that a scenario can make absent, spelled as on the collector's lines."""

_FAILURES: Final = (
    CollectorState.LIBRARY_MISSING,
    CollectorState.DRIVER_NOT_LOADED,
    CollectorState.VERSION_MISMATCH,
    CollectorState.NO_PERMISSION,
    CollectorState.FAILED,
)
"""States that a library itself can be in. No cards at all is ``count = 0``."""

_SAYS_SO: Final = "the scenario says so"


@dataclass(frozen=True, slots=True)
class Window:
    """When something is the case: ``length_s`` seconds from ``at_s`` on, in every ``every_s`` seconds of the clock.

    Without ``every_s`` it is always the case.
    """

    every_s: float = 0.0
    at_s: float = 0.0
    length_s: float = 0.0

    def covers(self, now_s: float) -> bool:
        """Whether it is the case at this time, in seconds since 1970."""
        if not self.every_s:
            return True
        return (now_s - self.at_s) % self.every_s < self.length_s


@dataclass(frozen=True, slots=True)
class Load:
    """How busy a card is over time, in percent.

    Attributes:
        shape: ``constant`` (always ``high``), ``sine``, ``square``, ``sawtooth``.
        low: Least percent, 0..100.
        high: Greatest percent, 0..100.
        period_s: Length of one cycle.
    """

    shape: str = "sine"
    low: float = 5.0
    high: float = 95.0
    period_s: float = 300.0

    def at(self, now_s: float, phase: float) -> float:
        """Percent busy at this time; ``phase`` (0..1) sets cards apart so that they do not move in step."""
        turn = (now_s / self.period_s + phase) % 1.0
        match self.shape:
            case "constant":
                part = 1.0
            case "square":
                part = 1.0 if turn < 0.5 else 0.0
            case "sawtooth":
                part = turn
            case _:
                ripple = 0.1 * math.sin(2 * math.pi * (now_s / (self.period_s / 7.3) + phase))
                part = 0.5 + 0.4 * math.sin(2 * math.pi * turn) + ripple
        return self.low + (self.high - self.low) * part


@dataclass(frozen=True, slots=True)
class Span:
    """Where a figure lies with nothing to do, and under full load."""

    idle: float
    full: float

    def at(self, load_percent: float) -> float:
        """The value at this load."""
        return self.idle + (self.full - self.idle) * load_percent / 100


@dataclass(frozen=True, slots=True)
class SimulatedCard:
    """One card of a scenario, or one partition of a card, which has ``profile`` and no temperature or power.

    Units are in the names; absences, faults and windows are as the file gives them.
    """

    id: str
    name: str = "Simulated Accelerator 80GB"
    memory_mib: int = 81_920
    memory_used_percent: Span = Span(2, 90)
    temperature_celsius: Span = Span(32, 74)
    power_watts: Span = Span(65, 640)
    load: Load = Load()
    absent: Mapping[str, Reason] = field(default_factory=dict)
    lost: Window | None = None
    hang: Window | None = None
    unhealthy: Window | None = None
    unhealthy_reason: str = _SAYS_SO
    profile: str | None = None
    partitions: tuple["SimulatedCard", ...] = ()


@dataclass(frozen=True, slots=True)
class Scenario:
    """All that simulated cards of one manufacturer do.

    Attributes:
        cards: In index order; may be empty.
        failure: The verdict on the library as a whole while ``failing`` covers the time.
    """

    cards: tuple[SimulatedCard, ...]
    failure: CollectorState | None = None
    failure_detail: str = _SAYS_SO
    failing: Window = Window()


class ScenarioError(CollectorError):
    """A scenario says what it should not.

    Attributes:
        problems: One phrase each, every problem found, in the order of asking.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__(CollectorState.FAILED, f"scenario: {'; '.join(problems)}")
        self.problems = tuple(problems)


def default_scenario(manufacturer: str) -> Scenario:
    """Two healthy cards."""
    return parse_scenario({}, manufacturer)


def read_scenario(path: Path, manufacturer: str) -> Scenario:
    """The scenario in a file.

    Raises:
        CollectorError: The file cannot be read.
        ScenarioError: It says something that it should not.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise CollectorError(CollectorState.FAILED, f"scenario {path}: {type(error).__name__}: {error}") from error
    return parse_scenario(document, manufacturer)


def parse_scenario(document: Mapping[str, Any], manufacturer: str) -> Scenario:
    """The scenario that a parsed TOML document describes.

    Raises:
        ScenarioError: Something in it is unknown, of the wrong kind or out of range.
    """
    top = Table(document, "", [])
    if top.text("manufacturer", manufacturer) != manufacturer:
        top.problem("manufacturer", f"is another one, but {manufacturer} was asked for")
    cards = _cards(top, manufacturer)
    failing = top.child("fail")
    scenario = Scenario(
        cards,
        failure=failing.word("state", _FAILURES, CollectorState.FAILED) if top.has("fail") else None,
        failure_detail=failing.text("detail", _SAYS_SO),
        failing=_window(failing),
    )
    failing.finish()
    top.finish()
    if top.problems:
        raise ScenarioError(list(dict.fromkeys(top.problems)))
    return scenario


def _cards(top: Table, manufacturer: str) -> tuple[SimulatedCard, ...]:
    before = len(top.problems)
    count = top.integer("count", 2, 0, CARDS_LIMIT)
    counted = len(top.problems) == before
    tables = dict.fromkeys(range(count), Table({}, "", top.problems))
    for position, own in enumerate(top.children("cards")):
        index = own.integer("index", position, 0, CARDS_LIMIT - 1)
        if counted and index >= count:
            own.problem("index", f"is {index}, but there are {count} cards")
        tables[index] = own  # a card too many as well, so that what else is wrong with it is found
    common = top.child("card")
    if common.has("id") or common.has("index"):
        common.problem("id", "and index belong to one card, under cards")
    cards = tuple(
        _card(common.overlaid(own, f"card {index}: "), manufacturer, index) for index, own in tables.items()
    )
    if len({card.id for card in cards}) != len(cards):
        top.problems.append("two cards have the same id")
    partitions = [partition for card in cards for partition in card.partitions]
    if len({partition.id for partition in partitions}) != len(partitions):
        top.problems.append("two partitions have the same id")
    if len(partitions) > PARTITIONS_LIMIT:
        top.problems.append(f"there are more than {PARTITIONS_LIMIT} partitions")
    return cards


def _card(table: Table, manufacturer: str, index: int) -> SimulatedCard:
    suffix = manufacturer.partition("-")[2]
    identity = _identity(table, f"SIM-{suffix}-{index}" if suffix else f"SIM-{index}")
    table.integer("index", index, 0, CARDS_LIMIT - 1)
    absent, unhealthy = table.child("absent"), table.child("unhealthy")
    default = SimulatedCard(identity)
    card = SimulatedCard(
        id=identity,
        name=table.text("name", default.name),
        memory_mib=table.integer("memory_mib", default.memory_mib, 1, 1 << 30),
        memory_used_percent=_span(table.child("memory_used_percent"), default.memory_used_percent, 100),
        temperature_celsius=_span(table.child("temperature_celsius"), default.temperature_celsius, 150),
        power_watts=_span(table.child("power_watts"), default.power_watts, 10_000),
        load=_load(table.child("load"), default.load),
        absent=_absent(absent, FIGURES),
        lost=_window_of(table, "lost"),
        hang=_window_of(table, "hang"),
        unhealthy=_window(unhealthy) if table.has("unhealthy") else None,
        unhealthy_reason=unhealthy.text("reason", _SAYS_SO),
        partitions=tuple(
            _partition(own, f"{identity}-P{place}") for place, own in enumerate(table.children("partitions"))
        ),
    )
    for part in (absent, unhealthy, table):
        part.finish()
    return card


def _partition(table: Table, default_id: str) -> SimulatedCard:
    default = SimulatedCard(_identity(table, default_id))
    absent = table.child("absent")
    partition = SimulatedCard(
        id=default.id,
        memory_mib=table.integer("memory_mib", 9_856, 1, 1 << 30),
        memory_used_percent=_span(table.child("memory_used_percent"), default.memory_used_percent, 100),
        load=_load(table.child("load"), default.load),
        absent=_absent(absent, PARTITION_FIGURES),
        lost=_window_of(table, "lost"),
        hang=_window_of(table, "hang"),
        profile=table.text("profile", "1g.10gb"),
    )
    for part in (absent, table):
        part.finish()
    return partition


def _identity(table: Table, default: str) -> str:
    identity = table.text("id", default)
    if not identity.startswith("SIM-"):
        table.problem("id", "must begin with SIM-, so that nobody takes the card for a real one")
    return identity


def _absent(table: Table, figures: Sequence[str]) -> dict[str, Reason]:
    return {key: table.word(key, tuple(Reason), Reason.UNSUPPORTED) for key in figures if table.has(key)}


def _load(table: Table, default: Load) -> Load:
    load = Load(
        shape=table.word("shape", ("constant", "sine", "square", "sawtooth"), default.shape),
        low=table.number("low", default.low, 0, 100),
        high=table.number("high", default.high, 0, 100),
        period_s=table.seconds("period", default.period_s),
    )
    if load.period_s <= 0:
        table.problem("period", "must be above 0")
    table.finish()
    return load


def _span(table: Table, default: Span, highest: float) -> Span:
    span = Span(table.number("idle", default.idle, 0, highest), table.number("full", default.full, 0, highest))
    table.finish()
    return span


def _window_of(table: Table, key: str) -> Window | None:
    """``true`` for always, ``false`` for never, or a table with ``every``, ``at`` and ``for``."""
    flag = table.flag(key)
    if flag is not None:
        return Window() if flag else None
    if not table.has(key):
        return None
    inner = table.child(key)
    window = _window(inner)
    inner.finish()
    return window


def _window(table: Table) -> Window:
    window = Window(table.seconds("every", 0.0), table.seconds("at", 0.0), table.seconds("for", 0.0))
    if bool(window.every_s) != bool(window.length_s):
        table.problem("every", "and for belong together")
    elif window.length_s > window.every_s:
        table.problem("for", "must not be longer than every")
    return window
