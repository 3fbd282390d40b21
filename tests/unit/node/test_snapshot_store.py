"""One snapshot, one reference, one encoding per change."""

import json
from datetime import UTC, datetime

from devicemanager.clock import Clock
from devicemanager.model.accelerator import Card, CollectorState, CollectorStatus, Reading, Reason, Sample
from devicemanager.node.snapshot_store import SnapshotStore
from tests.timing import FakeClock

OK = CollectorStatus(CollectorState.OK, datetime(2026, 8, 12, tzinfo=UTC))


def sample(clock: Clock, started_s: float = 100.0) -> Sample:
    card = Reading.unreadable(Card(0, "GPU-1"), Reason.LOST, "code 15")
    return Sample(clock.now(), started_s, 0.1, (card,))


def test_it_begins_without_a_sample() -> None:
    store = SnapshotStore("nvidia", 15.0, "worker-1", FakeClock())
    assert store.snapshot.sample is None
    assert store.snapshot.collector.state is CollectorState.STARTING
    assert store.age_s(1e9) is None
    assert store.version == 0
    assert json.loads(store.document.body)["nodeName"] == "worker-1"


def test_a_sample_replaces_snapshot_bytes_tag_and_version_together() -> None:
    clock = FakeClock()
    store = SnapshotStore("nvidia", 15.0, None, clock)
    before = store.document
    store.update(OK, sample(clock))
    assert store.version == 1
    assert store.snapshot.collector.state is CollectorState.OK
    assert store.document.etag != before.etag
    assert json.loads(store.document.body)["groups"][0]["accelerators"][0]["id"] == "GPU-1"
    assert store.document is store.document


def test_a_status_keeps_the_sample_and_changes_the_tag() -> None:
    clock = FakeClock()
    store = SnapshotStore("nvidia", 15.0, None, clock)
    store.update(OK, sample(clock))
    held, tag = store.snapshot.sample, store.document.etag
    store.update(CollectorStatus(CollectorState.UNRESPONSIVE, clock.now(), "no card answers", 1))
    assert store.snapshot.sample is held
    assert store.document.etag != tag
    assert json.loads(store.document.body)["collector"]["state"] == "unresponsive"


def test_a_status_that_says_nothing_new_changes_nothing() -> None:
    clock = FakeClock()
    store = SnapshotStore("nvidia", 15.0, None, clock)
    status = CollectorStatus(CollectorState.LIBRARY_MISSING, clock.now(), "libnvidia-ml.so.1")
    store.update(status)
    document, version = store.document, store.version
    store.update(status)
    assert store.document is document
    assert store.version == version


def test_age_counts_from_the_beginning_of_the_reading_and_is_never_negative() -> None:
    clock = FakeClock()
    store = SnapshotStore("nvidia", 15.0, None, clock)
    store.update(OK, sample(clock, started_s=100.0))
    assert store.age_s(107.9) == 7
    assert store.age_s(99.0) == 0
