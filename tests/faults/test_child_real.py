"""The real collector process under the real supervisor, with simulated cards: both sides speak the same lines."""

import sys
from pathlib import Path

import pytest

from devicemanager.model.accelerator import CollectorState, Reason
from tests.faults.conftest import Supervise

COMMAND = [sys.executable, "-P", "-m", "collectors", "simulated"]


@pytest.mark.asyncio
async def test_simulated_cards_are_read(supervise: Supervise) -> None:
    async with supervise("", command=COMMAND, manufacturer="simulated") as run:
        samples = await run.samples(3)
        for sample in samples:
            assert [reading.card.id for reading in sample.readings] == ["SIM-0", "SIM-1"]
            for reading in sample.readings:
                assert isinstance(reading.figures["memory_used"], int)
                assert isinstance(reading.figures["power_usage"], int)
        assert run.store.snapshot.collector.restarts == {}


@pytest.mark.asyncio
async def test_one_simulated_card_hangs_and_comes_back(supervise: Supervise, tmp_path: Path) -> None:
    scenario = tmp_path / "cards.toml"
    hanging = "count = 4\n[[cards]]\nindex = 2\nhang = true\n"
    scenario.write_text(hanging)
    command = [*COMMAND, "--scenario", str(scenario)]
    async with supervise("", command=command, manufacturer="simulated") as run:
        for sample in await run.samples(3):
            figures = [reading.figures["compute_utilization"] for reading in sample.readings]
            assert figures[2] is Reason.TIMEOUT
            assert all(isinstance(figure, int) for index, figure in enumerate(figures) if index != 2)
        scenario.write_text("count = 4\n")
        await run.store.until(
            lambda: isinstance(run.store.samples[-1].readings[2].figures["compute_utilization"], int)
        )
        assert run.store.samples[-1].readings[2].card.id == "SIM-2"


@pytest.mark.asyncio
async def test_a_library_that_fails_says_so_and_comes_back(supervise: Supervise, tmp_path: Path) -> None:
    scenario = tmp_path / "cards.toml"
    scenario.write_text('[fail]\nstate = "driver_not_loaded"\ndetail = "the upgrade is not done"\n')
    command = [*COMMAND, "--scenario", str(scenario)]
    async with supervise("", command=command, manufacturer="simulated", period_s=0.3) as run:
        await run.states("driver_not_loaded")
        assert run.store.snapshot.collector.detail == "the upgrade is not done"
        scenario.write_text("")
        await run.states("driver_not_loaded", "ok")


@pytest.mark.asyncio
async def test_a_process_of_another_manufacturer_is_refused(supervise: Supervise) -> None:
    async with supervise("", command=COMMAND, manufacturer="nvidia") as run:
        await run.states("failed")
        assert run.store.snapshot.sample is None
        status = run.store.snapshot.collector
        assert status.state is CollectorState.FAILED
        assert status.detail == "the collector speaks for simulated, not for nvidia"
