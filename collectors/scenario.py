"""The scenario file, read into what simulated cards do (:mod:`collectors.scenario_values`).

The format is documented in ``docs/simulated.md``. Everything here is pure but :func:`read_scenario`.
"""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from collectors.scenario_table import Table
from collectors.scenario_values import SAYS_SO, SPANS, Load, Scenario, SimulatedCard, Span, Window
from devicemanager.errors import CollectorError, excerpt
from devicemanager.model.accelerator import CollectorState, Reason
from devicemanager.model.figures import BY_NAME, FIGURES, FigureSpec, Scope
from devicemanager.rules.plausibility import CARDS_LIMIT, PARTITIONS_LIMIT
from devicemanager.rules.units import on_wire

_PARTITION_FIGURES: Final = tuple(spec for spec in FIGURES if spec.scope is Scope.SHARE)
"""Figures that a partition has of its own."""

_FAILURES: Final = (
    CollectorState.LIBRARY_MISSING,
    CollectorState.DRIVER_NOT_LOADED,
    CollectorState.VERSION_MISMATCH,
    CollectorState.NO_PERMISSION,
    CollectorState.FAILED,
)
"""States that a library itself can be in. No cards at all is ``count = 0``."""


class ScenarioError(CollectorError):
    """A scenario is not valid.

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
        ScenarioError: It is not valid.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        what = f"cannot be read: {error.strerror}"
        raise CollectorError(CollectorState.FAILED, f"scenario {path}: {what}") from error
    except RecursionError as error:
        raise CollectorError(CollectorState.FAILED, f"scenario {path}: is nested too deep") from error
    except ValueError as error:  # no UTF-8, or no TOML
        what = "is not text in UTF-8" if isinstance(error, UnicodeDecodeError) else f"is not TOML: {error}"
        raise CollectorError(CollectorState.FAILED, f"scenario {path}: {what}") from error
    return parse_scenario(document, manufacturer)


def parse_scenario(document: Mapping[str, Any], manufacturer: str) -> Scenario:
    """The scenario that a parsed TOML document describes.

    Raises:
        ScenarioError: Something in it is unknown, of the wrong kind or out of range.
    """
    top = Table(document, "", [])
    named = top.text("manufacturer", manufacturer)
    if named != manufacturer:
        top.problem("manufacturer", f"is {excerpt(named)}, but {manufacturer} was asked for")
    cards = _cards(top, manufacturer)
    failing = top.child("fail")
    scenario = Scenario(
        cards,
        failure=failing.word("state", _FAILURES, CollectorState.FAILED) if top.has("fail") else None,
        failure_detail=failing.text("detail", SAYS_SO),
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
    places: dict[int, int] = {}
    for position, own in enumerate(top.children("cards")):
        before = len(top.problems)
        index = own.integer("index", position, 0, CARDS_LIMIT - 1)
        if counted and index >= count:
            own.problem("index", f"is {index}, but there are {count} cards")
        elif index in places and len(top.problems) == before:
            own.problem("index", f"is {index}, which cards[{places[index]}] has already")
        places[index] = position
        tables[index] = own  # a card too many as well, so that what else is wrong with it is found
    common = top.child("card")
    for key in ("id", "index"):
        if common.has(key):
            common.problem(key, "belongs to one card, in [[cards]]")
    common = common.without("id", "index")
    cards = tuple(_card(common.overlaid(own), manufacturer, index) for index, own in tables.items())
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
    absent, unhealthy, clocks = (table.child(key) for key in ("absent", "unhealthy", "clock_reduction"))
    default = SimulatedCard(identity)
    card = SimulatedCard(
        id=identity,
        name=table.text("name", default.name),
        memory_mib=table.integer("memory_mib", default.memory_mib, 1, 1 << 30),
        memory_used_percent=_span(table.child("memory_used_percent"), default.memory_used_percent, 100),
        spans={
            name: _span(table.child(key), span, on_wire(BY_NAME[name], BY_NAME[name].quantity.highest))
            for name, (key, span) in SPANS.items()
        },
        load=_load(table.child("load"), default.load),
        absent=_absent(absent, FIGURES),
        lost=_window_of(table, "lost"),
        hang=_window_of(table, "hang"),
        unhealthy=_window(unhealthy) if table.has("unhealthy") else None,
        unhealthy_reason=unhealthy.text("reason", SAYS_SO),
        clock_reduction=_window(clocks) if table.has("clock_reduction") else None,
        clock_reduction_reasons=clocks.names("reasons"),
        partitions=tuple(
            _partition(own, f"{identity}-P{place}") for place, own in enumerate(table.children("partitions"))
        ),
    )
    for part in (absent, unhealthy, clocks, table):
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
        absent=_absent(absent, _PARTITION_FIGURES),
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


def _absent(table: Table, figures: Iterable[FigureSpec]) -> dict[str, Reason]:
    """By name of the figure; the table spells them as on the collector's lines."""
    keys = ((spec.name, spec.line_key) for spec in figures if spec.line_key is not None)
    read = [(name, key, table.word(key, tuple(Reason), Reason.UNSUPPORTED)) for name, key in keys]
    return {name: reason for name, key, reason in read if table.has(key)}


def _load(table: Table, default: Load) -> Load:
    load = Load(
        shape=table.word("shape", ("constant", "sine", "square", "sawtooth"), default.shape),
        low=table.number("low", default.low, 0, 100),
        high=table.number("high", default.high, 0, 100),
        period_s=table.seconds("period", default.period_s),
    )
    if load.period_s <= 0:
        table.problem("period", "must be above 0")
    if load.shape != "constant":  # which is always high
        table.ordered("low", "high", (load.low, load.high))
    table.finish()
    return load


def _span(table: Table, default: Span, highest: float) -> Span:
    span = Span(table.number("idle", default.idle, 0, highest), table.number("full", default.full, 0, highest))
    table.ordered("idle", "full", (span.idle, span.full))
    table.finish()
    return span


def _window_of(table: Table, key: str) -> Window | None:
    """``true`` for always, ``false`` for never, or a table with ``every``, ``at`` and ``for``."""
    flag = table.flag(key)
    if flag is not None:
        return Window() if flag else None
    if not table.has(key):
        return None
    inner = table.child(key, "must be true, false, or a table with every, at and for")
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
