"""Simulated cards: believable, repeatable, and faulty where the scenario says so."""

import os
from pathlib import Path

import pytest

from collectors.simulated import SimulatedCollector
from devicemanager.errors import CollectorError
from devicemanager.model.accelerator import Card, CollectorState, Reading, Reason


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
    assert [reading.power_milliwatts for reading in later] != [reading.power_milliwatts for reading in first]


def test_cards_do_not_move_in_step(simulation: Simulation) -> None:
    first, second = simulation.read()
    assert first.cores_percent != second.cores_percent


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
        load = { shape = "constant", high = 50 }
        """
    )
    assert simulation.read() == [
        Reading(
            Card(0, "SIM-0", "Simulated B"),
            memory_total_bytes=1000 << 20,
            memory_used_bytes=350 << 20,
            cores_percent=50,
            temperature_celsius=55,
            power_milliwatts=200_000,
        )
    ]


def test_a_figure_that_is_absent(simulation: Simulation) -> None:
    simulation.play('[card]\nabsent = { memory = "unsupported", temperature = "permission" }')
    reading = simulation.read()[0]
    assert reading.memory_total_bytes is Reason.UNSUPPORTED
    assert isinstance(reading.memory_used_bytes, int)
    assert reading.temperature_celsius is Reason.PERMISSION


def test_a_card_is_lost_in_its_window_and_comes_back(simulation: Simulation) -> None:
    simulation.play('[[cards]]\nlost = { every = "100s", at = "50s", for = "10s" }')
    assert isinstance(simulation.read()[0].power_milliwatts, int)
    simulation.now_s = 1055.0
    lost, other = simulation.read()
    assert lost == Reading.unreadable(
        Card(0, "SIM-0", "Simulated Accelerator 80GB"), Reason.LOST, "lost: the scenario says so"
    )
    assert isinstance(other.power_milliwatts, int)
    simulation.now_s = 1060.0
    assert isinstance(simulation.read()[0].power_milliwatts, int)


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
    assert isinstance(sick.power_milliwatts, int)
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
    with pytest.raises(CollectorError, match=r"nothing\.toml: FileNotFoundError"):
        collector.open()


def test_no_scenario_is_two_cards() -> None:
    collector = SimulatedCollector("simulated-a", now_s=lambda: 0.0)
    collector.open()
    assert [collector.read(card).card.id for card in collector.cards()] == ["SIM-a-0", "SIM-a-1"]
    collector.close()


def test_a_partitioned_card_has_no_compute_of_its_own_and_its_partitions_do(simulation: Simulation) -> None:
    simulation.play("[[cards]]\npartitions = [{ memory_mib = 100 }, { absent = { cores = 'unsupported' } }]\n")
    first, second = simulation.read()
    assert first.cores_percent is Reason.PARTITIONED
    assert isinstance(first.memory_used_bytes, int)
    assert isinstance(second.cores_percent, int)
    assert list(simulation.collector.partitions(second.card)) == []
    partitions = list(simulation.collector.partitions(first.card))
    assert [(card.key.text, card.index, card.profile) for card in partitions] == [
        ("SIM-0/SIM-0-P0", 0, "1g.10gb"),
        ("SIM-0/SIM-0-P1", 0, "1g.10gb"),
    ]
    one, other = map(simulation.collector.read, partitions)
    assert one.memory_total_bytes == 100 << 20
    assert isinstance(one.cores_percent, int)
    assert other.cores_percent is Reason.UNSUPPORTED
    assert one.temperature_celsius is one.power_milliwatts is Reason.REPORTED_ON_PRIMARY


def test_a_partition_hangs_and_is_lost_without_its_card(simulation: Simulation) -> None:
    simulation.play("[[cards]]\npartitions = [{ hang = true }, { lost = true }]\n")
    card = simulation.read()[0].card
    hung, lost = simulation.collector.partitions(card)
    with pytest.raises(HangError):
        simulation.collector.read(hung)
    assert simulation.collector.read(lost).memory_used_bytes is Reason.LOST
