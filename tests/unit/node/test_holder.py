"""One snapshot, one reference, one encoding per change."""

import json
from datetime import timedelta

from devicemanager.clock import Clock
from devicemanager.model.accelerator import Card, CollectorState, CollectorStatus, Reading, Reason, Sample
from devicemanager.node.holder import Holder
from tests.timing import FakeClock


def sample(clock: Clock, started_s: float = 100.0) -> Sample:
    card = Reading.unreadable(Card(0, "GPU-1"), Reason.LOST, "code 15")
    return Sample(clock.now(), started_s, 0.1, (card,))


def test_it_begins_without_a_sample() -> None:
    holder = Holder("nvidia", 15.0, "worker-1", FakeClock())
    assert holder.snapshot.sample is None
    assert holder.snapshot.collector.state is CollectorState.STARTING
    assert holder.age_s(1e9) is None
    assert holder.version == 0
    assert json.loads(holder.document.body)["nodeName"] == "worker-1"


def test_a_sample_replaces_snapshot_bytes_tag_and_version_together() -> None:
    clock = FakeClock()
    holder = Holder("nvidia", 15.0, None, clock)
    before = holder.document
    holder.publish(sample(clock))
    assert holder.version == 1
    assert holder.snapshot.collector.state is CollectorState.OK
    assert holder.document.etag != before.etag
    assert json.loads(holder.document.body)["groups"][0]["accelerators"][0]["id"] == "GPU-1"
    assert holder.document is holder.document


def test_ok_keeps_the_time_at_which_it_began() -> None:
    clock = FakeClock()
    holder = Holder("nvidia", 15.0, None, clock)
    holder.publish(sample(clock))
    began = clock.wall
    clock.wall += timedelta(seconds=15)
    holder.publish(sample(clock))
    assert holder.snapshot.collector.since == began


def test_a_verdict_keeps_the_sample_and_changes_the_tag() -> None:
    clock = FakeClock()
    holder = Holder("nvidia", 15.0, None, clock)
    holder.publish(sample(clock))
    held, tag = holder.snapshot.sample, holder.document.etag
    holder.report(CollectorStatus(CollectorState.UNRESPONSIVE, clock.now(), "no card answers", 1))
    assert holder.snapshot.sample is held
    assert holder.document.etag != tag
    assert json.loads(holder.document.body)["collector"]["state"] == "unresponsive"


def test_a_verdict_that_says_nothing_new_changes_nothing() -> None:
    clock = FakeClock()
    holder = Holder("nvidia", 15.0, None, clock)
    status = CollectorStatus(CollectorState.LIBRARY_MISSING, clock.now(), "libnvidia-ml.so.1")
    holder.report(status)
    document, version = holder.document, holder.version
    holder.report(status)
    assert holder.document is document
    assert holder.version == version


def test_age_counts_from_the_beginning_of_the_reading_and_is_never_negative() -> None:
    clock = FakeClock()
    holder = Holder("nvidia", 15.0, None, clock)
    holder.publish(sample(clock, started_s=100.0))
    assert holder.age_s(107.9) == 7
    assert holder.age_s(99.0) == 0
