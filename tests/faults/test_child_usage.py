"""A library that leaks, and a process that others end: the process is replaced, and no card is blamed."""

import itertools
import os

import pytest

from devicemanager.model.accelerator import CollectorState, RestartReason, Sample
from devicemanager.node.process_usage import MIB, UsageLimits
from tests.faults.conftest import Run, Supervise


def answering(sample: Sample) -> list[int]:
    return [reading.card.index for reading in sample.readings if isinstance(reading.figures["memory_used"], int)]


async def replaced(run: Run, why: RestartReason, times: int = 1) -> None:
    await run.store.until(lambda: run.store.snapshot.collector.restarts.get(why, 0) >= times)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("mode", "usage", "why"),
    [
        ("LeakMemory", UsageLimits(memory_bytes=60 * MIB), RestartReason.MEMORY),
        ("LeakDescriptors", UsageLimits(descriptors=100), RestartReason.DESCRIPTORS),
    ],
)
async def test_a_process_that_leaks_is_replaced_between_two_samples(
    supervise: Supervise, mode: str, usage: UsageLimits, why: RestartReason
) -> None:
    async with supervise(mode, control="4", usage=usage) as run:
        await replaced(run, why, times=2)
        for sample in run.store.samples:
            assert answering(sample) == list(range(8))
            assert not any(reading.unhealthy_reason for reading in sample.readings)
        begun_s = [sample.started_monotonic_s for sample in run.store.samples]
        assert all(later - earlier >= 0.4 for earlier, later in itertools.pairwise(begun_s))
        assert {snapshot.collector.state for snapshot in run.store.seen} == {CollectorState.OK}
        (line,) = run.events("collector_process_replaced")
        assert (line["reason"], line["times"]) == (why.value, 1)
        assert set(run.store.snapshot.collector.restarts) == {why}


@pytest.mark.asyncio
async def test_a_process_that_outgrows_its_limit_within_a_sample_is_ended_before_the_container_is(
    supervise: Supervise,
) -> None:
    async with supervise("LeakMemory", control="30", usage=UsageLimits(memory_bytes=80 * MIB)) as run:
        await run.states("failed")
        status = run.store.snapshot.collector
        assert "MiB of memory, of 100 MiB allowed within a sample" in str(status.detail)
        (sample,) = await run.samples(1)
        assert answering(sample) in [list(range(count)) for count in (3, 4, 5)]  # the next are read meanwhile
        assert not run.events("device_quarantined")
        run.control.write_text("0")
        await run.states("failed", "ok")


@pytest.mark.asyncio
async def test_a_card_that_takes_memory_without_end_costs_itself_alone(supervise: Supervise) -> None:
    """Its process is ended while the card is waited for, probes included, and long before the card's deadline."""
    limits = UsageLimits(memory_bytes=80 * MIB)
    async with supervise("SwallowMemory", control="1000", usage=limits, card_deadline_s=30.0) as run:
        first, _ = await run.samples(2)
        assert answering(first) == [0, 1, 2, 4, 5, 6, 7]
        fault = str(next(r.unhealthy_reason for r in first.readings if r.card.index == 3))
        assert "MiB of memory, of 100 MiB allowed within a sample, while reading this card" in fault
        assert run.store.snapshot.collector.restarts == {RestartReason.MEMORY: 1}
        await run.store.until(lambda: any("only index:3" in start for start in run.starts))
        run.control.write_text("0")
        await run.store.until(lambda: bool(run.events("device_recovered")))


@pytest.mark.asyncio
async def test_a_card_that_is_only_slow_is_not_blamed_for_the_memory_that_others_took(supervise: Supervise) -> None:
    limits = UsageLimits(memory_bytes=80 * MIB)
    async with supervise("SlowWithMuchMemory", control="200", usage=limits, card_deadline_s=30.0) as run:
        await run.states("failed")
        (sample,) = await run.samples(1)
        assert answering(sample) == [0, 1, 2]
        assert not run.events("device_quarantined")


@pytest.mark.asyncio
async def test_a_process_that_leaks_nothing_is_not_replaced(supervise: Supervise) -> None:
    async with supervise("Steady", period_s=0.05) as run:
        await run.samples(20)
        assert run.starts == ["skip only"]


@pytest.mark.asyncio
@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM", "SIGHUP", "SIGSTOP"])
async def test_a_signal_from_others_blames_no_card_and_costs_no_tick(supervise: Supervise, name: str) -> None:
    async with supervise("Killed", control=f"{name} 1") as run:
        (sample,) = await run.samples(1)
        assert answering(sample) == list(range(8))
        assert not any(reading.unhealthy_reason for reading in sample.readings)
        assert run.starts == ["skip only", "skip only"]
        assert run.store.snapshot.collector.state is CollectorState.OK
        assert run.store.snapshot.collector.restarts == {RestartReason.KILLED: 1}
        assert not run.events("device_quarantined")


@pytest.mark.asyncio
async def test_a_process_killed_again_and_again_is_a_state_that_says_so(supervise: Supervise) -> None:
    async with supervise("Killed", control="SIGKILL 100") as run:
        await run.states("crashed")
        who = "which somebody else sent: the kernel does when memory runs out"
        assert run.store.snapshot.collector.detail == f"the collector process ended by SIGKILL, {who}"
        assert answering(run.store.samples[-1]) == [0, 1, 2]
        assert not run.events("device_quarantined")
        assert not any("only index" in start for start in run.starts)
        run.control.unlink()
        await run.states("crashed", "ok")


@pytest.mark.asyncio
async def test_a_process_stopped_again_and_again_is_a_state_that_says_so(supervise: Supervise) -> None:
    async with supervise("Killed", control="SIGSTOP 100") as run:
        await run.states("crashed")
        detail = "the collector process was stopped by a signal or a debugger"
        assert run.store.snapshot.collector.detail == detail
        assert not run.events("device_quarantined")
        run.control.unlink()
        await run.states("crashed", "ok")


@pytest.mark.asyncio
async def test_a_fault_of_the_process_itself_still_blames_the_card(supervise: Supervise) -> None:
    async with supervise("Killed", control="SIGBUS 100") as run:
        (sample,) = await run.samples(1)
        assert answering(sample) == [0, 1, 2, 4, 5, 6, 7]
        assert [event["index"] for event in run.events("device_quarantined")] == [3]
        assert run.store.snapshot.collector.restarts == {RestartReason.DEVICE_CRASH: 1}


@pytest.mark.asyncio
async def test_a_crash_leaves_no_core(supervise: Supervise) -> None:
    async with supervise("Dump") as run:
        await run.samples(2)
        assert run.control.read_text() == "0 0"
        assert os.getpid() not in run.pids
