"""Simulated cards: believable, repeatable, and faulty where the scenario says so."""

import os
from pathlib import Path

import pytest

from collectors.simulated import SimulatedCollector
from devicemanager.errors import CollectorError
from devicemanager.model.accelerator import Card, CollectorState, Reading, Reason
from devicemanager.model.figures import FIGURES, Figures, Scope


class HangError(Exception):
    """Stands for a read that never returns."""


class Simulation:
    """A simulated collector whose scenario and time are set by the test."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.now_s = 1000.0
        self._writes = 0

        def hang() -> None:
            raise HangError

        self.collector = SimulatedCollector("simulated", str(path), now_s=lambda: self.now_s, hang=hang)

    def play(self, text: str) -> None:
        self.path.write_text(text, encoding="utf-8")
        self._writes += 1
        os.utime(self.path, ns=(self._writes, self._writes))

    def read(self) -> list[Reading]:
        return [self.collector.read(card) for card in self.collector.cards()]


@pytest.fixture
def simulation(tmp_path: Path) -> Simulation:
    simulation = Simulation(tmp_path / "cards.toml")
    simulation.play("")
    simulation.collector.open()
    return simulation


def test_the_same_second_shows_the_same_figures(simulation: Simulation) -> None:
    first = simulation.read()
    simulation.now_s += 60
    later = simulation.read()
    simulation.now_s -= 60
    assert simulation.read() == first
    assert [reading.figures["power_usage"] for reading in later] != [
        reading.figures["power_usage"] for reading in first
    ]


def test_cards_do_not_move_in_step(simulation: Simulation) -> None:
    first, second = simulation.read()
    assert first.figures["compute_utilization"] != second.figures["compute_utilization"]


def test_figures_follow_the_load(simulation: Simulation) -> None:
    simulation.play(
        """
        count = 1
        [card]
        name = "Simulated B"
        memory_mib = 1000
        memory_used_percent = { idle = 10, full = 60 }
        temperature_celsius = { idle = 30, full = 80 }
        power_watts = { idle = 100, full = 300 }
        power_limit_watts = { idle = 250, full = 250 }
        load = { shape = "constant", high = 50 }
        """
    )
    assert simulation.read() == [
        Reading(
            Card(0, "SIM-0", "Simulated B"),
            Figures(
                memory_total=1000 << 20,
                memory_used=350 << 20,
                memory_utilization=35,
                compute_utilization=50,
                temperature=55,
                power_usage=200_000,
                power_limit=250_000,
                clock_reduction_reasons=(),
            ),
        )
    ]


def test_a_figure_that_is_absent(simulation: Simulation) -> None:
    simulation.play('[card]\nabsent = { memory = "unsupported", temperature = "permission" }')
    reading = simulation.read()[0]
    assert reading.figures["memory_total"] is Reason.UNSUPPORTED
    assert isinstance(reading.figures["memory_used"], int)
    assert reading.figures["temperature"] is Reason.PERMISSION


def test_clocks_are_reduced_in_their_window(simulation: Simulation) -> None:
    simulation.play(
        '[card]\nclock_reduction = { reasons = ["sw_power_cap"], every = "100s", at = "50s", for = "10s" }'
    )
    assert simulation.read()[0].figures["clock_reduction_reasons"] == ()
    simulation.now_s = 1055.0
    assert simulation.read()[0].figures["clock_reduction_reasons"] == ("sw_power_cap",)


def test_a_card_is_lost_in_its_window_and_comes_back(simulation: Simulation) -> None:
    simulation.play('[[cards]]\nlost = { every = "100s", at = "50s", for = "10s" }')
    assert isinstance(simulation.read()[0].figures["power_usage"], int)
    simulation.now_s = 1055.0
    lost, other = simulation.read()
    assert lost == Reading.unreadable(
        Card(0, "SIM-0", "Simulated Accelerator 80GB"), Reason.LOST, "lost: the scenario says so"
    )
    assert isinstance(other.figures["power_usage"], int)
    simulation.now_s = 1060.0
    assert isinstance(simulation.read()[0].figures["power_usage"], int)


def test_a_card_that_was_never_read_has_no_identity(simulation: Simulation) -> None:
    simulation.play("[[cards]]\nlost = true")
    assert simulation.read()[0].card == Card(0)


def test_a_card_hangs_in_its_window(simulation: Simulation) -> None:
    simulation.play('[[cards]]\nhang = { every = "100s", at = "50s", for = "10s" }')
    assert len(simulation.read()) == 2
    simulation.now_s = 1055.0
    with pytest.raises(HangError):
        simulation.read()


def test_an_unhealthy_card_has_its_figures(simulation: Simulation) -> None:
    simulation.play('[[cards]]\nunhealthy = { reason = "too many errors" }')
    sick, well = simulation.read()
    assert sick.unhealthy_reason == "too many errors"
    assert isinstance(sick.figures["power_usage"], int)
    assert well.unhealthy_reason is None


def test_the_library_fails_as_a_whole(simulation: Simulation) -> None:
    simulation.play('[fail]\nstate = "version_mismatch"\nevery = "100s"\nat = "50s"\nfor = "10s"')
    assert len(simulation.read()) == 2
    simulation.now_s = 1055.0
    with pytest.raises(CollectorError) as caught:
        simulation.read()
    assert caught.value.state is CollectorState.VERSION_MISMATCH


def test_a_scenario_that_changes_takes_effect_at_the_next_tick(simulation: Simulation) -> None:
    assert len(simulation.read()) == 2
    simulation.play("count = 5")
    assert len(simulation.read()) == 5


def test_a_scenario_that_becomes_wrong_is_said_to_be(simulation: Simulation) -> None:
    simulation.play("count = many")
    with pytest.raises(CollectorError, match="scenario"):
        simulation.read()


def test_a_scenario_that_is_missing_is_said_to_be(tmp_path: Path) -> None:
    collector = SimulatedCollector("simulated", str(tmp_path / "nothing.toml"))
    with pytest.raises(CollectorError, match=r"nothing\.toml: cannot be read: No such file"):
        collector.open()


def test_no_scenario_is_two_cards() -> None:
    collector = SimulatedCollector("simulated-a", now_s=lambda: 0.0)
    collector.open()
    assert [collector.read(card).card.id for card in collector.cards()] == ["SIM-a-0", "SIM-a-1"]
    collector.close()


def test_a_partitioned_card_has_no_compute_of_its_own_and_its_partitions_do(simulation: Simulation) -> None:
    simulation.play("[[cards]]\npartitions = [{ memory_mib = 100 }, { absent = { cores = 'unsupported' } }]\n")
    first, second = simulation.read()
    assert first.figures["compute_utilization"] is Reason.PARTITIONED
    assert isinstance(first.figures["memory_used"], int)
    assert isinstance(second.figures["compute_utilization"], int)
    assert list(simulation.collector.partitions(second.card)) == []
    partitions = list(simulation.collector.partitions(first.card))
    assert [(card.key.text, card.index, card.profile) for card in partitions] == [
        ("SIM-0/SIM-0-P0", 0, "1g.10gb"),
        ("SIM-0/SIM-0-P1", 0, "1g.10gb"),
    ]
    one, other = map(simulation.collector.read, partitions)
    assert one.figures["memory_total"] == 100 << 20
    assert isinstance(one.figures["compute_utilization"], int)
    assert other.figures["compute_utilization"] is Reason.UNSUPPORTED
    of_the_board = [one.figures[spec.name] for spec in FIGURES if spec.scope is Scope.BOARD]
    assert set(of_the_board) == {Reason.REPORTED_ON_PRIMARY}


def test_a_partition_hangs_and_is_lost_without_its_card(simulation: Simulation) -> None:
    simulation.play("[[cards]]\npartitions = [{ hang = true }, { lost = true }]\n")
    card = simulation.read()[0].card
    hung, lost = simulation.collector.partitions(card)
    with pytest.raises(HangError):
        simulation.collector.read(hung)
    assert simulation.collector.read(lost).figures["memory_used"] is Reason.LOST
