"""One bad card never costs another its figures: real processes that hang or crash on one card, several, or all."""

import os
import re
import threading
from datetime import UTC, datetime, timedelta

import pytest

from devicemanager.model.accelerator import CollectorState, Reading, Reason, Sample
from devicemanager.node import supervisor
from tests.faults.conftest import Supervise


def answering(sample: Sample) -> list[int]:
    return [reading.card.index for reading in sample.readings if isinstance(reading.figures["memory_used"], int)]


def card(sample: Sample, index: int) -> Reading:
    return next(reading for reading in sample.readings if reading.card.index == index)


@pytest.mark.asyncio
async def test_eight_cards_of_which_one_hangs_on_every_tick(supervise: Supervise) -> None:
    async with supervise("HangCard") as run:
        for sample in await run.samples(5):
            assert answering(sample) == [0, 1, 2, 4, 5, 6, 7]
            assert len(sample.readings) == 8
            assert card(sample, 3).figures["temperature"] is Reason.TIMEOUT
            assert card(sample, 3).unhealthy_reason == "the card did not answer within 0.6 s"
        assert {snapshot.collector.state for snapshot in run.store.seen} == {CollectorState.OK}
        assert [event["index"] for event in run.events("device_quarantined")] == [3]


@pytest.mark.asyncio
async def test_the_tick_in_which_a_card_hangs_is_completed(
    supervise: Supervise,
) -> None:
    async with supervise("HangCard") as run:
        (first,) = await run.samples(1)
        assert first.duration_s >= 0.6
        assert answering(first) == [0, 1, 2, 4, 5, 6, 7]
        assert run.starts[:2] == ["skip only", "skip index:3 only"]


@pytest.mark.asyncio
async def test_a_card_that_hangs_keeps_its_id_and_comes_back_by_itself(supervise: Supervise) -> None:
    async with supervise("HangNamed") as run:
        (first,) = await run.samples(1)
        assert answering(first) == list(range(8))
        run.control.write_text("3")
        await run.store.until(lambda: 3 not in answering(run.store.samples[-1]))
        hung = card(run.store.samples[-1], 3)
        assert (hung.card.id, hung.card.name, hung.card.pci_bus_id) == ("GPU-3", "Fake", "0000:03:00.0")
        run.control.unlink()
        await run.store.until(lambda: answering(run.store.samples[-1]) == list(range(8)))
        assert "skip only index:3" in run.starts
        await run.store.until(lambda: bool(run.events("device_recovered")))
        (unhealthy,), (healthy,) = run.events("device_unhealthy"), run.events("device_healthy")
        assert (unhealthy["id"], unhealthy["reason"], healthy["id"]) == ("GPU-3", "timeout", "GPU-3")


@pytest.mark.asyncio
async def test_a_card_never_read_is_known_by_the_only_address_left(supervise: Supervise) -> None:
    bus = [f"0000:{index:02x}:00.0" for index in range(8)]
    async with supervise("HangCard", bus_addresses=lambda: bus) as run:
        (first,) = await run.samples(1)
        assert card(first, 3).card.id == "pci:0000:03:00.0"


@pytest.mark.asyncio
async def test_a_bus_that_cannot_be_read_costs_an_address_only(supervise: Supervise) -> None:
    def unreadable() -> list[str]:
        raise PermissionError("/sys")

    async with supervise("HangCard", bus_addresses=unreadable) as run:
        (first,) = await run.samples(1)
        assert card(first, 3).card.id == "index:3"
        assert answering(first) == [0, 1, 2, 4, 5, 6, 7]


@pytest.mark.asyncio
async def test_a_bus_that_hangs_costs_an_address_and_one_thread(
    supervise: Supervise, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "_BUS_DEADLINE_S", 0.1)
    opened, before = threading.Event(), threading.active_count()
    try:
        async with supervise("HangCard", bus_addresses=lambda: [str(opened.wait())]) as run:
            for sample in await run.samples(4):
                assert card(sample, 3).card.id == "index:3"
                assert answering(sample) == [0, 1, 2, 4, 5, 6, 7]
            named = [thread for thread in threading.enumerate() if thread.name == "the PCI bus"]
            assert len(named) == 1
            assert named[0].daemon
    finally:
        opened.set()
    assert threading.active_count() <= before + 1


@pytest.mark.asyncio
async def test_several_cards_hang(supervise: Supervise) -> None:
    async with supervise("HangNamed", control="2 5") as run:
        for sample in await run.samples(3):
            assert answering(sample) == [0, 1, 3, 4, 6, 7]
            assert {card(sample, index).figures["power_usage"] for index in (2, 5)} == {Reason.TIMEOUT}


@pytest.mark.asyncio
async def test_all_cards_hang(supervise: Supervise) -> None:
    async with supervise("HangNamed", card_deadline_s=0.25) as run:
        (good,) = await run.samples(1)
        run.control.write_text("0 1 2 3 4 5 6 7")
        await run.states("ok", "unresponsive")
        detail = "none of 8 cards can be read: 8 did not answer in time"
        await run.store.until(lambda: run.store.snapshot.collector.detail == detail)
        status = run.store.snapshot.collector
        assert status.consecutive_failures >= 1
        held = run.store.snapshot.sample
        assert held is not None
        assert answering(held) == answering(good)
        run.control.unlink()
        await run.store.until(
            lambda: answering(run.store.samples[-1]) == list(range(8)) and run.store.samples[-1] is not held
        )
        assert run.store.snapshot.collector.state is CollectorState.OK


@pytest.mark.asyncio
async def test_a_card_that_crashes_the_process(supervise: Supervise) -> None:
    async with supervise("CrashCard") as run:
        for sample in await run.samples(4):
            assert answering(sample) == [0, 1, 2, 4, 5, 6, 7]
            crashed = card(sample, 3)
            assert crashed.figures["compute_utilization"] is Reason.TRANSIENT_DRIVER_ERROR
            fault = "the collector crashed while reading this card: ended by SIGSEGV"
            assert crashed.unhealthy_reason == fault
        assert {snapshot.collector.state for snapshot in run.store.seen} == {CollectorState.OK}


@pytest.mark.asyncio
async def test_all_cards_crash_the_process(supervise: Supervise) -> None:
    async with supervise("CrashAll") as run:
        await run.states("crashed")
        status = run.store.snapshot.collector
        assert status.detail == "none of 8 cards can be read: the collector crashed on each"
        assert run.store.snapshot.sample is None


@pytest.mark.asyncio
async def test_a_card_that_hangs_only_beside_others_costs_no_tick(supervise: Supervise) -> None:
    async with supervise("HangInCompany") as run:
        await run.store.until(lambda: len(run.events("device_readmitted")) >= 2)
        assert all(set(answering(sample)) >= {0, 1, 2, 4, 5, 6, 7} for sample in run.store.samples)
        assert len(run.store.samples) >= 3


@pytest.mark.asyncio
async def test_slow_is_not_stuck(supervise: Supervise) -> None:
    async with supervise("Slow", control="0.05", period_s=0.5, card_deadline_s=1.0) as run:
        for sample in await run.samples(2):
            assert answering(sample) == list(range(8))
            assert sample.duration_s >= 8 * 0.05
        assert run.starts == ["skip only"]


@pytest.mark.asyncio
async def test_a_process_that_touches_what_it_should_not_is_not_followed(supervise: Supervise) -> None:
    async with supervise("Disobedient") as run:
        await run.states("failed")
        assert "card 3, which it should not touch" in str(run.store.snapshot.collector.detail)
        held = run.store.snapshot.sample
        assert held is not None
        assert answering(held) == [0, 1, 2]


@pytest.mark.asyncio
async def test_a_hung_process_is_killed(supervise: Supervise) -> None:
    async with supervise("HangCard") as run:
        await run.samples(3)
        hung = run.pids[0]
        with pytest.raises(ProcessLookupError):
            os.kill(hung, 0)


@pytest.mark.asyncio
async def test_cards_that_never_answer_do_not_add_up_their_first_touches(supervise: Supervise) -> None:
    """The first touch of a card may take long, and two of a tick may do so in vain."""
    async with supervise("HangNamed", control="0 1 2 3", card_deadline_s=0.2, first_touch_s=0.8) as run:
        (first,) = await run.samples(1)
        assert answering(first) == [4, 5, 6, 7]
        faults = [card(first, index).unhealthy_reason for index in range(4)]
        long, short = "the card did not answer within 0.8 s", "the card did not answer within 0.2 s"
        assert faults == [long, long, short, short]


@pytest.mark.asyncio
async def test_a_sample_that_waits_for_many_cards_is_no_state_of_ok(supervise: Supervise) -> None:
    """The one before it is stale by then."""
    async with supervise("HangNamed") as run:
        await run.samples(1)
        run.control.write_text("0 1 2 3 4 5 6")
        await run.states("ok", "unresponsive", "ok")
        late = next(seen.collector for seen in run.store.seen if seen.collector.state == "unresponsive")
        assert re.match(r"no sample for [\d.]+ s: the next waited [\d.]+ s for devices", str(late.detail))
        assert answering(run.store.samples[-1]) == [7]
        assert run.store.snapshot.collector.detail is None


@pytest.mark.asyncio
async def test_many_cards_that_hang_at_once_get_less_and_less_time(supervise: Supervise) -> None:
    """The figures of the others wait for them for a bounded time. Probed alone, each has its whole time."""
    async with supervise("HangNamed", control="0 1 2 3", card_deadline_s=1.0) as run:
        (first,) = await run.samples(1)
        assert answering(first) == [4, 5, 6, 7]
        faults = [card(first, index).unhealthy_reason for index in range(4)]
        long, short = "the card did not answer within 1 s", "the card did not answer within 0.5 s"
        assert faults == [long, long, short, short]


@pytest.mark.asyncio
async def test_cards_that_are_slow_once_in_a_process_are_all_read(supervise: Supervise) -> None:
    """The time of those that do answer is not limited in sum."""
    async with supervise("SlowFirst", control="0.4", card_deadline_s=0.2, first_touch_s=5.0) as run:
        first, second = await run.samples(2)
        assert answering(first) == answering(second) == list(range(8))
        assert run.starts == ["skip only"]


@pytest.mark.asyncio
async def test_a_tick_that_a_second_process_completes_is_as_old_as_the_first_began(supervise: Supervise) -> None:
    """What was read before a card hung is the oldest of the sample."""
    async with supervise("HangCard") as run:
        (first,) = await run.samples(1)
        begun = [float(line) for line in run.control.with_suffix(".begun").read_text().split()]
        assert first.started_monotonic_s == begun[0] < begun[1]
        assert first.taken_at <= datetime.now(UTC) - timedelta(seconds=0.6)
