"""The state of a collector: what the store holds at once, and what the log says of it, and when."""

from typing import Any

import pytest
import structlog
from structlog.testing import LogCapture

from devicemanager.model.accelerator import CollectorState, RestartReason, Sample, Versions
from devicemanager.node.snapshot_store import SnapshotStore
from devicemanager.node.status import StatusTracker
from tests.timing import FakeClock

OK, CRASHED, GONE = CollectorState.OK, CollectorState.CRASHED, CollectorState.LIBRARY_MISSING


class Harness:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.capture = LogCapture()
        self.store = SnapshotStore("nvidia", 15.0, None, self.clock)
        log = structlog.wrap_logger(None, processors=[self.capture])
        self.tracker = StatusTracker(self.store, self.clock, log)

    def at_every_tick(self, *states: CollectorState) -> None:
        """One state after the other, 15 s apart."""
        for state in states:
            self.tracker.update(state, None if state is OK else "why")
            self.clock.advance(15.0)

    @property
    def logged(self) -> list[tuple[str, str]]:
        """Previous state and state of each line."""
        return [(line["previous"], line["state"]) for line in self.capture.entries]

    def lines(self) -> list[dict[str, Any]]:
        return [dict(line) for line in self.capture.entries]


@pytest.fixture
def harness() -> Harness:
    return Harness()


def test_a_change_is_in_the_store_and_in_the_log(harness: Harness) -> None:
    harness.tracker.update(GONE, "libnvidia-ml.so.1")

    status = harness.store.snapshot.collector
    assert (status.state, status.detail, status.since) == (GONE, "libnvidia-ml.so.1", harness.clock.wall)
    assert harness.tracker.status is status
    assert harness.lines() == [
        {
            "event": "collector_state_changed",
            "log_level": "warning",
            "state": "library_missing",
            "previous": "starting",
            "detail": "libnvidia-ml.so.1",
        }
    ]


@pytest.mark.parametrize("state", [state for state in CollectorState if state is not CollectorState.STARTING])
def test_only_states_that_need_nobody_are_no_warnings(harness: Harness, state: CollectorState) -> None:
    harness.tracker.update(state)

    fine = state in (CollectorState.OK, CollectorState.NO_DEVICES)
    assert [line["log_level"] for line in harness.lines()] == ["info" if fine else "warning"]
    assert "detail" not in harness.lines()[0]


def test_a_state_that_stays_keeps_its_time_and_is_logged_once(harness: Harness) -> None:
    since = harness.clock.wall
    harness.at_every_tick(*[CRASHED] * 100)

    assert harness.store.snapshot.collector.since == since
    assert harness.logged == [("starting", "crashed")]


def test_a_detail_that_changes_is_in_the_store_and_no_line(harness: Harness) -> None:
    harness.tracker.update(CRASHED, "ended by SIGSEGV")
    harness.tracker.update(CRASHED, "ended by SIGBUS")

    assert harness.store.snapshot.collector.detail == "ended by SIGBUS"
    assert len(harness.logged) == 1


def test_the_counts_are_those_of_the_moment_and_stay_as_they_were_published(harness: Harness) -> None:
    harness.tracker.consecutive_failures = 2
    harness.tracker.restarts[RestartReason.MEMORY] += 1
    harness.tracker.update(CRASHED)
    before = harness.store.snapshot.collector
    harness.tracker.restarts[RestartReason.MEMORY] += 1
    harness.tracker.update(CRASHED)

    assert (before.consecutive_failures, before.restarts) == (2, {RestartReason.MEMORY: 1})
    assert harness.store.snapshot.collector.restarts == {RestartReason.MEMORY: 2}


def test_nothing_new_changes_no_byte(harness: Harness) -> None:
    harness.tracker.update(CRASHED, "why")
    version = harness.store.version
    harness.tracker.update(CRASHED, "why")

    assert harness.store.version == version


def test_a_sample_comes_with_its_status(harness: Harness) -> None:
    sample = Sample(harness.clock.wall, harness.clock.monotonic_s, 0.1, ())
    harness.tracker.update(OK, sample=sample)
    harness.tracker.update(CRASHED)

    assert harness.store.snapshot.sample is sample  # it ages
    assert harness.store.snapshot.collector.state is CRASHED


def test_a_collector_that_flaps_is_logged_four_times_and_then_once_a_minute(harness: Harness) -> None:
    harness.at_every_tick(*[CRASHED, OK] * 40)

    assert harness.logged[:4] == [
        ("starting", "crashed"),
        ("crashed", "ok"),
        ("ok", "crashed"),
        ("crashed", "ok"),
    ]
    assert len(harness.logged) <= 4 + 80 * 15 / 60 + 1
    assert all(previous != state for previous, state in harness.logged)


def test_a_change_that_was_not_logged_is_logged_when_it_lasts(harness: Harness) -> None:
    for state in (CRASHED, OK, CRASHED, OK, GONE, OK, GONE):
        harness.tracker.update(state)
    assert harness.logged[-1] == ("crashed", "ok")

    harness.clock.advance(60.0)
    harness.tracker.update(GONE, "still")

    last = harness.lines()[-1]
    assert (last["previous"], last["state"], last["detail"]) == ("ok", "library_missing", "still")
    assert last["changes_not_logged"] == 3


def test_a_change_that_went_by_unlogged_is_not_logged_later(harness: Harness) -> None:
    for state in (CRASHED, OK, CRASHED, OK, GONE, OK):
        harness.tracker.update(state)
    harness.clock.advance(600.0)
    harness.tracker.update(OK)

    assert harness.logged[-1] == ("crashed", "ok")
    assert len(harness.logged) == 4


def test_versions_are_published_with_the_next_status(harness: Harness) -> None:
    harness.tracker.versions = Versions("590.48.01", "13.590")
    harness.tracker.update(OK)

    assert harness.store.snapshot.collector.versions == Versions("590.48.01", "13.590")
