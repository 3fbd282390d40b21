"""What the ends of ticks and processes come to, on a clock of the test's own."""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import structlog
from structlog.testing import LogCapture

from devicemanager.model.accelerator import Card, CollectorState, Reading, Reason, RestartReason, Sample
from devicemanager.model.figures import Figures
from devicemanager.node.quarantine import PROBATION_SAMPLES, Quarantine
from devicemanager.node.snapshot_publisher import RunFailure, SnapshotPublisher
from devicemanager.node.snapshot_store import SnapshotStore
from devicemanager.node.tick import Tick
from devicemanager.rules.freshness import is_stale
from devicemanager.wire.collector_lines import Read
from tests import devices
from tests.timing import FakeClock

PERIOD_S = 15.0


@dataclass
class Harness:
    clock: FakeClock = field(default_factory=FakeClock)
    quarantine: Quarantine = field(default_factory=lambda: Quarantine(PERIOD_S))
    capture: LogCapture = field(default_factory=LogCapture)

    def __post_init__(self) -> None:
        log = structlog.wrap_logger(None, processors=[self.capture])
        self.store = SnapshotStore("nvidia", PERIOD_S, None, self.clock)
        self.publisher = SnapshotPublisher(PERIOD_S, self.store, self.quarantine, self.clock, log)

    def tick(self, *indexes: int) -> Tick:
        readings = {i: devices.reading(Card(i, f"GPU-{i}")) for i in indexes}
        return Tick(self.clock.monotonic_s, self.clock.wall, readings)

    def good(self, *indexes: int) -> None:
        self.publisher.complete(self.tick(*indexes), len(indexes), ())

    def fail(self, state: CollectorState, tick: Tick | None = None) -> None:
        self.publisher.fail(RunFailure(state, "why"), tick, ())

    @property
    def sample(self) -> Sample:
        held = self.store.snapshot.sample
        assert held is not None
        return held

    @property
    def logged(self) -> list[Any]:
        return [entry["state"] for entry in self.changes]

    @property
    def changes(self) -> list[Any]:
        return [entry for entry in self.capture.entries if entry["event"] == "collector_state_changed"]


def test_a_good_tick_is_a_sample() -> None:
    harness = Harness()
    tick = harness.tick(0, 1)
    harness.clock.advance(0.25)
    harness.publisher.complete(tick, 2, ())
    assert (harness.sample.started_monotonic_s, harness.sample.duration_s) == (1000.0, 0.25)
    assert harness.sample.taken_at == tick.started_at < harness.clock.wall
    assert harness.store.snapshot.collector.state is CollectorState.OK


def test_failures_are_counted_and_forgotten_by_a_good_sample() -> None:
    harness = Harness()
    for failures in (1, 2, 3):
        harness.fail(CollectorState.LIBRARY_MISSING)
        assert harness.store.snapshot.collector.consecutive_failures == failures
    harness.good(0)
    assert harness.store.snapshot.collector.consecutive_failures == 0
    assert harness.store.snapshot.collector.detail is None


def test_a_failure_without_a_reading_leaves_the_sample_to_age() -> None:
    harness = Harness()
    harness.good(0, 1)
    held = harness.sample
    harness.clock.advance(20)
    harness.fail(CollectorState.DRIVER_NOT_LOADED, harness.tick())
    assert harness.sample is held
    assert harness.store.age_s(harness.clock.monotonic_s) == 20
    assert harness.store.snapshot.collector.state is CollectorState.DRIVER_NOT_LOADED


def test_a_failure_after_which_no_card_has_answered_leaves_the_sample_to_age() -> None:
    harness = Harness()
    harness.good(0, 1)
    held = harness.sample
    unanswered = Tick(
        harness.clock.monotonic_s,
        harness.clock.wall,
        {0: Reading.unreadable(Card(0, "GPU-0"), Reason.TRANSIENT_DRIVER_ERROR, "gone")},
    )
    harness.fail(CollectorState.DRIVER_NOT_LOADED, unanswered)
    assert harness.sample is held
    assert harness.store.snapshot.collector.state is CollectorState.DRIVER_NOT_LOADED


def test_back_off_grows_to_a_minute_without_cards_and_resets_with_them() -> None:
    harness = Harness()
    delays = []
    for _ in range(8):
        harness.fail(CollectorState.LIBRARY_MISSING)
        delays.append(harness.publisher.delay_s())
    assert delays == [1, 2, 4, 8, 16, 32, 60, 60]
    harness.good(0)
    harness.clock.advance(PERIOD_S)
    harness.fail(CollectorState.CRASHED)
    assert harness.publisher.delay_s() == 1


def test_back_off_grows_when_cards_that_could_be_read_no_longer_can() -> None:
    harness = Harness()
    harness.good(0)
    delays = []
    for _ in range(8):
        harness.clock.advance(PERIOD_S)
        harness.fail(CollectorState.DRIVER_NOT_LOADED)
        delays.append(harness.publisher.delay_s())
    assert delays == [1, 2, 4, 8, 16, 32, 60, 60]


def test_after_a_crash_cards_that_can_be_read_wait_for_their_next_tick() -> None:
    harness = Harness()
    harness.good(0)
    harness.clock.advance(1)
    harness.fail(CollectorState.CRASHED)
    assert harness.publisher.delay_s() == PERIOD_S - 1


def test_a_process_that_crashes_in_every_tick_is_started_once_in_less_than_two_periods() -> None:
    harness = Harness()
    for _ in range(50):
        harness.fail(CollectorState.CRASHED, harness.tick(0, 1))
        delay_s = harness.publisher.delay_s()
        assert PERIOD_S <= delay_s < 2 * PERIOD_S
        harness.clock.advance(delay_s)
    assert harness.store.snapshot.collector.consecutive_failures == 50
    assert [reading.card.id for reading in harness.sample.readings] == ["GPU-0", "GPU-1"]


def test_a_tick_that_none_answered_is_no_sample() -> None:
    harness = Harness()
    harness.quarantine.record_failure(Card(0), Reason.TIMEOUT, "x", harness.clock.monotonic_s)
    harness.publisher.complete(harness.tick(), 1, ())
    assert harness.store.snapshot.sample is None
    assert harness.store.snapshot.collector.state is CollectorState.UNRESPONSIVE


def test_a_changed_count_releases_cards_known_by_their_index_alone() -> None:
    harness = Harness()
    harness.good(0, 1, 2)
    harness.quarantine.record_failure(Card(2), Reason.TIMEOUT, "x", harness.clock.monotonic_s)
    harness.clock.advance(PERIOD_S)
    harness.good(0, 1)
    assert not harness.quarantine


def test_no_cards_after_some_counts_after_three_periods() -> None:
    harness = Harness()
    harness.good(0)
    held = harness.sample
    for _ in range(3):
        harness.fail(CollectorState.NO_DEVICES)
        assert harness.sample is held
        assert harness.store.snapshot.collector.state is CollectorState.OK
        expected = "why, though there were 1; believed after 3 periods"
        assert harness.store.snapshot.collector.detail == expected
        assert harness.publisher.delay_s() <= PERIOD_S
        harness.clock.advance(PERIOD_S)
    harness.fail(CollectorState.NO_DEVICES)
    assert harness.sample.readings == ()
    assert harness.store.snapshot.collector.state is CollectorState.NO_DEVICES
    assert harness.store.snapshot.collector.consecutive_failures == 0


def test_cards_that_come_back_in_time_were_never_away() -> None:
    harness = Harness()
    harness.good(0)
    harness.fail(CollectorState.NO_DEVICES)
    harness.clock.advance(2 * PERIOD_S)
    harness.good(0)
    harness.clock.advance(2 * PERIOD_S)
    harness.fail(CollectorState.NO_DEVICES)
    assert len(harness.sample.readings) == 1
    assert harness.logged == ["ok"]


def test_no_cards_after_another_failure_are_waited_for_anew() -> None:
    harness = Harness()
    harness.good(0)
    held = harness.sample
    harness.fail(CollectorState.NO_DEVICES)
    harness.clock.advance(4 * PERIOD_S)
    harness.fail(CollectorState.DRIVER_NOT_LOADED)
    harness.clock.advance(PERIOD_S)
    harness.fail(CollectorState.NO_DEVICES)
    assert harness.sample is held


def test_that_there_is_no_card_does_not_go_stale_for_want_of_asking() -> None:
    harness = Harness()
    for _ in range(20):
        harness.fail(CollectorState.NO_DEVICES)
        harness.clock.advance(harness.publisher.delay_s())
        assert not is_stale(harness.store.age_s(harness.clock.monotonic_s), int(PERIOD_S))


def test_a_library_that_goes_after_it_counted_no_card_is_asked_ever_less_often() -> None:
    harness = Harness()
    for _ in range(20):
        harness.fail(CollectorState.NO_DEVICES)
    harness.fail(CollectorState.LIBRARY_MISSING)
    assert harness.publisher.delay_s() == 60


def test_a_card_that_answered_alone_keeps_its_reason_until_it_is_read_with_the_others() -> None:
    harness = Harness()
    harness.good(0, 1)
    harness.quarantine.record_failure(Card(1, "GPU-1"), Reason.TIMEOUT, "did not answer", harness.clock.monotonic_s)
    assert harness.quarantine.probed(harness.quarantine.skipped[0], Card(1, "GPU-1"))
    harness.publisher.complete(harness.tick(0), 2, ())
    assert [reading.unhealthy_reason for reading in harness.sample.readings] == [None, "did not answer"]
    harness.good(0, 1)
    assert [reading.unhealthy_reason for reading in harness.sample.readings] == [None, None]


def test_a_collector_that_flaps_is_logged_a_few_times_and_then_once_a_minute() -> None:
    harness = Harness()
    for _ in range(120):
        harness.good(0)
        harness.clock.advance(5)
        harness.fail(CollectorState.CRASHED)
        harness.clock.advance(5)
    assert harness.logged[:4] == ["ok", "crashed", "ok", "crashed"]
    assert 4 + 15 <= len(harness.logged) <= 4 + 20


def test_a_recovery_that_is_held_back_is_logged_as_soon_as_a_line_may_be_written() -> None:
    harness = Harness()
    for _ in range(3):
        harness.good(0)
        harness.fail(CollectorState.CRASHED)
    harness.good(0)
    assert harness.logged[-1] == "crashed"
    for _ in range(8):
        harness.clock.advance(PERIOD_S)
        harness.good(0)
    assert harness.logged == ["ok", "crashed", "ok", "crashed", "ok"]
    assert harness.changes[-1]["previous"] == "crashed"
    assert harness.changes[-1]["changes_not_logged"] == 3


def test_what_is_empty_is_left_out_of_the_line() -> None:
    harness = Harness()
    harness.good(0)
    assert set(harness.changes[0]) == {"event", "log_level", "state", "previous"}
    harness.fail(CollectorState.CRASHED)
    assert harness.changes[1]["detail"] == "why"


def test_a_state_keeps_the_time_at_which_it_began() -> None:
    harness = Harness()
    harness.fail(CollectorState.LIBRARY_MISSING)
    began = harness.clock.wall
    harness.clock.advance(60)
    harness.fail(CollectorState.LIBRARY_MISSING)
    assert harness.store.snapshot.collector.since == began


def test_restarts_are_counted_by_why_the_process_before_ended() -> None:
    harness = Harness()
    harness.good(0)
    assert harness.store.snapshot.collector.restarts == {}
    for why in (RestartReason.DEVICE_TIMEOUT, RestartReason.MEMORY, RestartReason.DEVICE_TIMEOUT):
        harness.publisher.restarted(why)
    harness.good(0)
    assert harness.store.snapshot.collector.restarts == {RestartReason.DEVICE_TIMEOUT: 2, RestartReason.MEMORY: 1}


@pytest.mark.parametrize(
    ("failure", "why"),
    [
        (RunFailure(CollectorState.UNRESPONSIVE, ""), RestartReason.UNRESPONSIVE),
        (RunFailure(CollectorState.CRASHED, ""), RestartReason.CRASHED),
        (RunFailure(CollectorState.CRASHED, "", killed=True), RestartReason.KILLED),
        (RunFailure(CollectorState.FAILED, ""), RestartReason.FAILED),
        (RunFailure(CollectorState.DRIVER_NOT_LOADED, ""), RestartReason.UNUSABLE),
        (RunFailure(CollectorState.NO_DEVICES, ""), RestartReason.UNUSABLE),
    ],
)
def test_what_a_failure_counts_as_when_the_next_process_is_started(failure: RunFailure, why: RestartReason) -> None:
    assert failure.restart is why


def line(index: int, card_id: str | None = None) -> Read:
    return Read(devices.reading(Card(index, card_id or f"GPU-{index}"), memory_used=1 << 30))


def test_a_card_at_another_index_shows_that_no_index_means_what_it_did() -> None:
    harness = Harness()
    harness.good(0, 1, 2)
    harness.quarantine.record_failure(Card(2, "GPU-2"), Reason.TIMEOUT, "x", harness.clock.monotonic_s)
    harness.quarantine.record_failure(Card(0), Reason.TIMEOUT, "x", harness.clock.monotonic_s)
    tick = harness.tick()
    harness.publisher.read(tick, line(1))
    assert not tick.renumbered
    harness.publisher.read(tick, line(1, "GPU-0"))
    assert tick.renumbered
    assert harness.quarantine.selection.assumed == {}
    assert [key.text for key in harness.quarantine.selection.skip] == ["GPU-2"]


def test_what_hangs_after_a_renumbering_is_skipped_where_it_hung() -> None:
    """Or each process of the tick would meet it again."""
    harness = Harness()
    harness.good(0, 1, 2)
    tick = harness.tick()
    harness.publisher.read(tick, line(1, "GPU-0"))
    harness.quarantine.record_failure(Card(0), Reason.TIMEOUT, "x", harness.clock.monotonic_s)
    harness.publisher.read(tick, line(1, "GPU-0"))
    assert [key.text for key in harness.quarantine.selection.skip] == ["index:0"]


PARTITION = Card(0, "MIG-1", parent="GPU-0", profile="1g.10gb")


def partition_read(card: Card = PARTITION) -> Read:
    return Read(devices.partition(card, memory_total=10 << 30, memory_used=1 << 30))


def partitioned(harness: Harness, *reads: Read, partitions: tuple[Card, ...] | None = (PARTITION,)) -> Tick:
    tick = harness.tick()
    for read in (replace(line(0), partitions=partitions), *reads):
        harness.publisher.read(tick, read)
    return tick


def listed(harness: Harness) -> list[tuple[str | None, object]]:
    return [(one.card.id, one.figures["memory_used"]) for one in harness.sample.readings[0].partitions]


def test_partitions_are_published_on_their_card() -> None:
    harness = Harness()
    harness.publisher.complete(partitioned(harness, partition_read()), 1, ())
    assert listed(harness) == [("MIG-1", 1 << 30)]
    harness.publisher.complete(partitioned(harness, partitions=()), 1, ())
    assert listed(harness) == []


def test_a_partition_that_is_left_out_is_listed_with_its_reason() -> None:
    harness = Harness()
    harness.quarantine.record_failure(PARTITION, Reason.TIMEOUT, "x", harness.clock.monotonic_s)
    harness.publisher.complete(partitioned(harness), 1, ())
    assert listed(harness) == [("MIG-1", Reason.TIMEOUT)]
    assert harness.sample.readings[0].figures["memory_used"] == 1 << 30


def test_partitions_that_a_card_does_not_tell_are_those_that_it_had() -> None:
    harness = Harness()
    harness.publisher.complete(partitioned(harness, partition_read()), 1, ())
    harness.publisher.complete(partitioned(harness, partitions=None), 1, ())
    assert listed(harness) == [("MIG-1", Reason.TRANSIENT_DRIVER_ERROR)]


def test_partitions_of_a_card_that_does_not_answer_have_its_reason() -> None:
    harness = Harness()
    harness.publisher.complete(partitioned(harness, partition_read()), 1, ())
    tick = harness.tick(1)
    tick.readings[0] = Reading.unreadable(Card(0, "GPU-0"), Reason.LOST, "gone")
    harness.publisher.complete(tick, 2, ())
    assert listed(harness) == [("MIG-1", Reason.LOST)]


def test_a_tick_that_fails_before_a_partition_leaves_it_without_figures() -> None:
    harness = Harness()
    harness.fail(CollectorState.UNRESPONSIVE, partitioned(harness))
    assert listed(harness) == [("MIG-1", Reason.TIMEOUT)]


def test_figures_of_a_partition_alone_are_a_sample() -> None:
    harness = Harness()
    tick = harness.tick()
    card = Reading(Card(0, "GPU-0"), Figures(Reason.TRANSIENT_DRIVER_ERROR))
    for read in (Read(card, (PARTITION,)), partition_read()):
        harness.publisher.read(tick, read)
    harness.publisher.complete(tick, 1, ())
    assert listed(harness) == [("MIG-1", 1 << 30)]


def test_a_partition_recovers_after_a_few_samples() -> None:
    harness = Harness()
    harness.quarantine.record_failure(PARTITION, Reason.TIMEOUT, "x", harness.clock.monotonic_s)
    assert harness.quarantine.probed(harness.quarantine.skipped[0], PARTITION)
    for _ in range(PROBATION_SAMPLES):
        harness.publisher.complete(partitioned(harness, partition_read()), 1, ())
    (event,) = [entry for entry in harness.capture.entries if entry["event"] == "device_recovered"]
    assert (event["id"], event["parent"]) == ("MIG-1", "GPU-0")


def test_a_sample_that_does_not_come_is_a_state() -> None:
    harness = Harness()
    harness.good(0, 1)
    assert harness.publisher.overdue_in_s() == 3 * PERIOD_S
    harness.clock.advance(3 * PERIOD_S - 1)
    waiting = harness.tick()
    waiting.timeouts, waiting.unanswered_s = 2, 12.0
    harness.publisher.overdue(waiting)
    assert harness.store.snapshot.collector.state is CollectorState.OK
    assert harness.publisher.overdue_in_s() == 1

    harness.clock.advance(1)
    harness.publisher.overdue(waiting)
    status = harness.store.snapshot.collector
    assert status.state is CollectorState.UNRESPONSIVE
    assert status.detail == "no sample for 45 s: the next waited 12 s for devices that do not answer (2)"
    assert harness.publisher.overdue_in_s() == PERIOD_S
    harness.good(0, 1)
    assert harness.logged == [CollectorState.OK, CollectorState.UNRESPONSIVE, CollectorState.OK]
    assert harness.store.snapshot.collector.detail is None


def test_a_library_that_does_not_begin_a_sample_is_a_state() -> None:
    harness = Harness()
    harness.good(0)
    harness.clock.advance(3 * PERIOD_S)
    harness.publisher.overdue(None)
    assert harness.store.snapshot.collector.state is CollectorState.UNRESPONSIVE


def test_cards_that_answer_slowly_and_a_known_failure_keep_their_own_state() -> None:
    harness = Harness()
    harness.good(0)
    harness.clock.advance(3 * PERIOD_S)
    harness.publisher.overdue(harness.tick(0))
    assert harness.store.snapshot.collector.state is CollectorState.OK
    harness.fail(CollectorState.CRASHED)
    harness.publisher.overdue(None)
    status = harness.store.snapshot.collector
    assert (status.state, status.detail) == (CollectorState.CRASHED, "why")
