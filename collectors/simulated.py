"""Simulated cards, for trying alerts, dashboards and this project without hardware.

They are named as simulated wherever they appear: manufacturer ``simulated`` or ``simulated-<x>``, ids ``SIM-…``.
What they do comes from a scenario (:mod:`collectors.scenario`) and the time alone, so that the same second always
shows the same figures.
"""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from collectors.scenario import default_scenario, read_scenario
from collectors.scenario_values import Scenario, SimulatedCard
from devicemanager.errors import CollectorError
from devicemanager.model.accelerator import Card, Reading, Reason
from devicemanager.model.figures import BY_NAME, FIGURES, Scope
from devicemanager.rules import plausibility

_BYTES_PER_MIB: Final = 1 << 20
_GOLDEN: Final = 0.618034
"""Successive multiples of it, modulo 1, spread evenly: neighbouring cards are never in step."""

_REPORTED_ON_PRIMARY: Final = {
    spec.name: Reason.REPORTED_ON_PRIMARY for spec in FIGURES if spec.scope is Scope.BOARD
}
"""Of a partition."""


def _wall_clock_s() -> float:
    return time.time_ns() / 1e9


def _hang() -> None:
    while True:
        time.sleep(3600)


class SimulatedCollector:
    """The cards of one scenario, which is read again whenever its file changes.

    Args:
        manufacturer: ``simulated`` or ``simulated-<x>``.
        path: The scenario file; None for two healthy cards.
        now_s: Seconds since 1970.
        hang: Called in place of a read that never returns.
    """

    def __init__(
        self,
        manufacturer: str,
        path: str | None = None,
        *,
        now_s: Callable[[], float] = _wall_clock_s,
        hang: Callable[[], None] = _hang,
    ) -> None:
        self._manufacturer = manufacturer
        self._path = None if path is None else Path(path)
        self._now_s = now_s
        self._hang = hang
        self._scenario = Scenario(())
        self._seen: tuple[int, int, int] | None = None
        self._names: dict[int, SimulatedCard] = {}

    def open(self) -> None:
        if self._path is None:
            self._scenario = default_scenario(self._manufacturer)
        self._refresh()

    def cards(self) -> Iterator[Card]:
        self._refresh()
        for index in range(len(self._scenario.cards)):
            known = self._names.get(index)
            yield Card(index, known.id, known.name) if known else Card(index)

    def read(self, card: Card) -> Reading:
        now_s = self._now_s()
        simulated = self._simulated(card)
        if simulated.hang and simulated.hang.covers(now_s):
            self._hang()
        if simulated.lost and simulated.lost.covers(now_s):
            return Reading.unreadable(card, Reason.LOST, "lost: the scenario says so")
        if card.parent is not None:
            return _partition_reading(card, simulated, now_s)
        self._names[card.index] = simulated
        return _reading(card.index, simulated, now_s)

    def partitions(self, card: Card) -> Iterator[Card]:
        for one in self._scenario.cards[card.index].partitions:
            yield Card(card.index, one.id, parent=card.id, profile=one.profile)

    def _simulated(self, device: Card) -> SimulatedCard:
        card = self._scenario.cards[device.index]
        if device.parent is None:
            return card
        return next(one for one in card.partitions if one.id == device.id)

    def close(self) -> None:
        """Nothing is held."""

    def _refresh(self) -> None:
        """Read the file again if it has changed, and fail as a whole while the scenario says so."""
        if self._path is not None:
            try:
                status = os.stat(self._path)
            except OSError:
                status = None  # read_scenario says why
            seen = (status.st_mtime_ns, status.st_size, status.st_ino) if status else None
            if seen is None or seen != self._seen:
                self._scenario = read_scenario(self._path, self._manufacturer)
                self._seen = seen
                self._names.clear()
        scenario = self._scenario
        if scenario.failure and scenario.failing.covers(self._now_s()):
            raise CollectorError(scenario.failure, scenario.failure_detail)


def _partition_reading(device: Card, simulated: SimulatedCard, now_s: float) -> Reading:
    """A partition's own figures; temperature and power are the card's."""
    load = simulated.load.at(now_s, sum(map(ord, simulated.id)) * _GOLDEN % 1.0)
    total = simulated.memory_mib * _BYTES_PER_MIB

    values: dict[str, object] = {
        "memory_total": total,
        "memory_used": int(total * simulated.memory_used_percent.at(load) / 100),
        "compute_utilization": int(load),
    }
    return Reading(device, plausibility.reading({**_REPORTED_ON_PRIMARY, **values, **simulated.absent}))


def _reading(index: int, card: SimulatedCard, now_s: float) -> Reading:
    load = card.load.at(now_s, index * _GOLDEN % 1.0)
    unhealthy = card.unhealthy is not None and card.unhealthy.covers(now_s)
    reduced = card.clock_reduction is not None and card.clock_reduction.covers(now_s)
    values: dict[str, object] = {
        "memory_total": card.memory_mib * _BYTES_PER_MIB,
        "memory_used": int(card.memory_mib * _BYTES_PER_MIB * card.memory_used_percent.at(load) / 100),
        "compute_utilization": int(load),
        "clock_reduction_reasons": card.clock_reduction_reasons if reduced else (),
    }
    for name, span in card.spans.items():
        values[name] = int(span.at(load) * BY_NAME[name].quantity.wire_divisor)
    if card.partitions:
        values["compute_utilization"] = Reason.PARTITIONED
    return Reading(
        Card(index, card.id, card.name),
        plausibility.reading({**values, **card.absent}),
        unhealthy_reason=card.unhealthy_reason if unhealthy else None,
    )
