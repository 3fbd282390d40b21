"""A process, or the library in it, fails as a whole: which state that is, what is kept, and that it recovers."""

import itertools
import os
from typing import Any

import pytest

from devicemanager.model.accelerator import CollectorState, Reason, RestartReason, Sample
from devicemanager.serving.line_allowance import BURST
from tests.faults.conftest import Supervise

MOMENT = "the collector says that a sample began before its process, or is still to begin"


def answering(sample: Sample) -> list[int]:
    return [reading.card.index for reading in sample.readings if isinstance(reading.figures["memory_used"], int)]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("mode", "detail"),
    [
        ("HalfLine", "half a line, then ended with exit code 0"),
        ("HugeLine", "a line longer than 65536 bytes"),
        ("InvalidJson", "line: no JSON"),
        ("WrongCard", "the collector says read while reading a card"),
    ],
)
async def test_garbage_ends_the_process_and_keeps_the_cards_written(
    supervise: Supervise, mode: str, detail: str
) -> None:
    async with supervise(mode, card_deadline_s=5.0) as run:  # a line of 10 MB takes a busy machine a while
        await run.store.until(lambda: len(run.store.samples) >= 2)
        status = run.store.snapshot.collector
        assert status.state is CollectorState.FAILED
        assert detail in str(status.detail)
        assert status.consecutive_failures == 2
        assert status.restarts == {RestartReason.FAILED: 1}
        for sample in run.store.samples:
            assert answering(sample) == [0, 1, 2]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("mode", "state", "detail"),
    [
        ("BeginsTomorrow", "failed", MOMENT),
        ("BeganBefore", "failed", MOMENT),
        ("BeginsSometime", "failed", "line: monotonic: must be a number of seconds, not negative"),
        ("Other", "failed", "the collector speaks for amd, not for nvidia"),
        ("HangOpen", "unresponsive", "no answer within 0.5 s while opening the library"),
        ("HangBegin", "unresponsive", "no answer within 2 s while counting cards (acmeCount)"),
        ("CrashBegin", "crashed", "the collector process ended by SIGABRT"),
    ],
)
async def test_nothing_can_be_read(supervise: Supervise, mode: str, state: str, detail: str) -> None:
    async with supervise(mode, open_deadline_s=0.5 if mode == "HangOpen" else 5.0, card_deadline_s=0.4) as run:
        await run.store.until(lambda: run.store.snapshot.collector.consecutive_failures >= 2)
        status = run.store.snapshot.collector
        assert (status.state.value, status.detail) == (state, detail)
        assert run.store.snapshot.sample is None
        assert len(run.events("collector_state_changed")) == 1


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("mode", "control", "options", "state", "detail"),
    [
        ("Exit", "0", {}, "crashed", "the collector process ended with exit code 0: cannot map the device"),
        ("Exit", "71", {}, "crashed", "the collector process ended with exit code 71: cannot map the device"),
        (
            "Exit",
            "71",
            {"exit_states": {71: CollectorState.LIBRARY_MISSING}},
            "library_missing",
            "the collector process ended with exit code 71: cannot map the device",
        ),
        ("Fail", "driver_not_loaded:code 9", {}, "driver_not_loaded", "code 9"),
        ("Fail", "version_mismatch:code 18", {}, "version_mismatch", "code 18"),
        ("Fail", "no_permission:/dev/nvidiactl", {}, "no_permission", "/dev/nvidiactl"),
        ("Fail", "ok:fine", {}, "failed", "fine"),
        ("Fail", "a word of tomorrow:well", {}, "failed", "well"),
    ],
)
async def test_how_a_process_ends_is_a_state(
    supervise: Supervise, mode: str, control: str, options: dict[str, Any], state: str, detail: str
) -> None:
    async with supervise(mode, control=control, **options) as run:
        await run.states(state)
        assert run.store.snapshot.collector.detail == detail


@pytest.mark.asyncio
async def test_a_command_that_cannot_be_started(supervise: Supervise) -> None:
    async with supervise("-", command=["/nonexistent/python"]) as run:
        await run.states("failed")
        assert "cannot be started" in str(run.store.snapshot.collector.detail)


@pytest.mark.asyncio
async def test_the_driver_comes_late(supervise: Supervise) -> None:
    async with supervise("Fail", control="library_missing:libnvidia-ml.so.1", period_s=0.3) as run:
        await run.states("library_missing")
        run.control.write_text("driver_not_loaded:code 9")
        await run.states("library_missing", "driver_not_loaded")
        run.control.unlink()
        await run.states("library_missing", "driver_not_loaded", "ok")
        status = run.store.snapshot.collector
        assert (status.detail, status.consecutive_failures) == (None, 0)
        states = [event["state"] for event in run.events("collector_state_changed")]
        assert states == ["library_missing", "driver_not_loaded", "ok"]


@pytest.mark.asyncio
async def test_a_crash_between_two_cards_keeps_those_before_it(supervise: Supervise) -> None:
    async with supervise("CrashLater") as run:
        first, second = await run.samples(2)
        assert answering(first) == list(range(8))
        assert answering(second) == [0, 1, 2, 3]
        assert len(second.readings) == 8
        rest = second.readings[4:]
        assert [reading.card.id for reading in rest] == ["GPU-4", "GPU-5", "GPU-6", "GPU-7"]
        assert {reading.figures["power_usage"] for reading in rest} == {Reason.TRANSIENT_DRIVER_ERROR}
        assert "before it came to this card" in str(rest[0].unhealthy_reason)
        assert run.store.snapshot.collector.state is CollectorState.CRASHED


@pytest.mark.asyncio
@pytest.mark.parametrize("mode", ["CrashRest", "CrashBetween"])
async def test_a_process_that_crashes_on_every_tick_costs_no_tick_and_no_more_than_one_start(
    supervise: Supervise, mode: str
) -> None:
    async with supervise(mode, period_s=1.5) as run:  # a quarter of it is room for the start of a process
        samples = await run.samples(3)
        gaps = [b.started_monotonic_s - a.started_monotonic_s for a, b in itertools.pairwise(samples)]
        assert all(1.45 < gap < 2 * 1.5 for gap in gaps)
        assert len(run.events("collector_state_changed")) <= BURST
        await run.states("crashed")


@pytest.mark.asyncio
async def test_no_line_between_samples(supervise: Supervise) -> None:
    async with supervise("HangRest", period_s=0.2) as run:
        await run.states("ok", "unresponsive", "ok")
        details = [snapshot.collector.detail for snapshot in run.store.seen]
        assert "no answer within 2.2 s while resting between samples" in details


@pytest.mark.asyncio
async def test_a_process_that_goes_on_after_closing_its_pipe_is_ended(supervise: Supervise) -> None:
    async with supervise("ClosePipe") as run:
        await run.states("ok", "crashed", "ok")
        details = [snapshot.collector.detail for snapshot in run.store.seen]
        assert "the collector process closed its pipe and lives on" in details
        with pytest.raises(ProcessLookupError):
            os.kill(run.pids[0], 0)


@pytest.mark.asyncio
async def test_a_pipe_kept_open_by_others_does_not_hide_a_crash(supervise: Supervise) -> None:
    async with supervise("LeaveHeir", period_s=0.2) as run:
        try:
            await run.states("ok", "crashed")
            assert run.store.snapshot.collector.detail == "the collector process ended by SIGABRT"
        finally:
            os.kill(int(run.control.read_text()), 9)


@pytest.mark.asyncio
async def test_standard_error_reaches_neither_the_lines_nor_memory(supervise: Supervise) -> None:
    async with supervise("Noise") as run:
        for sample in await run.samples(3):
            assert answering(sample) == list(range(8))


@pytest.mark.asyncio
async def test_no_card_where_there_were_some_counts_after_three_periods(supervise: Supervise) -> None:
    async with supervise("Counting", control="8", period_s=0.4) as run:
        await run.samples(1)
        run.control.write_text("0")
        await run.store.until(lambda: run.store.snapshot.collector.detail is not None)
        held = run.store.snapshot
        assert held.sample is not None
        assert len(held.sample.readings) == 8
        assert held.collector.state is CollectorState.OK
        assert held.collector.detail == "the library counts no card, though there were 8; believed after 3 periods"
        await run.states("no_devices")
        empty = run.store.snapshot.sample
        assert empty is not None
        assert empty.readings == ()
        assert empty.started_monotonic_s - held.sample.started_monotonic_s >= 3 * 0.4
        run.control.write_text("8")
        await run.states("no_devices", "ok")


@pytest.mark.asyncio
@pytest.mark.parametrize("mode", ["Counting", "CountNone"])
async def test_no_card_from_the_beginning_counts_at_once(supervise: Supervise, mode: str) -> None:
    async with supervise(mode, control="0") as run:
        await run.states("no_devices")
        assert run.store.snapshot.sample is not None
        assert run.store.snapshot.sample.readings == ()
        assert b'"accelerators":[]' in run.store.document.body


@pytest.mark.asyncio
async def test_cards_that_are_no_longer_counted_stay_listed_as_lost(supervise: Supervise) -> None:
    async with supervise("Counting", control="8", period_s=0.3) as run:
        await run.samples(1)
        run.control.write_text("6")
        await run.store.until(lambda: answering(run.store.samples[-1]) == list(range(6)))
        lost = run.store.samples[-1].readings[6:]
        assert [reading.card.id for reading in lost] == ["GPU-6", "GPU-7"]
        assert {reading.figures["memory_total"] for reading in lost} == {Reason.LOST}
        assert {reading.unhealthy_reason for reading in lost} == {"the library no longer counts this card"}
        run.control.write_text("8")
        await run.store.until(lambda: answering(run.store.samples[-1]) == list(range(8)))
        assert len(run.store.samples[-1].readings) == 8
        said = [(event["id"], event["reason"]) for event in run.events("device_unhealthy")]
        assert said == [("GPU-6", "lost"), ("GPU-7", "lost")]
        assert [event["id"] for event in run.events("device_healthy")] == ["GPU-6", "GPU-7"]


@pytest.mark.asyncio
async def test_the_first_sample_is_there_within_two_seconds(supervise: Supervise) -> None:
    async with supervise("Steady") as run:
        begun_s = run.supervisor.last_progress_monotonic_s
        (first,) = await run.samples(1)
        assert first.started_monotonic_s + first.duration_s - begun_s < 2.0
