"""The merge: what each source says, and what it costs when it says nothing."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from devicemanager.model.accelerator import CollectorState, Reason
from devicemanager.model.allocation import AllocatedCard, Allocation, Mode
from devicemanager.model.usage import (
    PeerSnapshot,
    PodReading,
    PodUsage,
    Resources,
    SnapshotCard,
    SnapshotReading,
    SourceFailure,
    SourceReport,
    SourceState,
    UsageSample,
)
from devicemanager.rules.merge import PodOutcome, SnapshotOutcome, device_manager, merge
from tests import devices

NOW = datetime(2026, 1, 1, 10, 0, tzinfo=UTC)
MEASURED = NOW - timedelta(seconds=9)
USAGE = PodUsage(120_345_678, 536_870_912, 4096, 671_088_641, measured_at=MEASURED)
KUBELET = PodReading(USAGE, 9.4)
NVIDIA = AllocatedCard("nvidia", "GPU-1", 0, Mode.EXCLUSIVE, "main")
AMD = AllocatedCard("amd", "GPU-2", 1, Mode.SHARED, "main")


def snapshot(
    card_id: str = "GPU-1",
    *,
    manufacturer: str = "nvidia",
    state: CollectorState = CollectorState.OK,
    timestamp: datetime | None = MEASURED,
    detail: str | None = None,
) -> PeerSnapshot:
    card = SnapshotCard(card_id, 0, "H100", devices.published(), unhealthy=False)
    return PeerSnapshot(timestamp, 15, "node-a", state, detail, {manufacturer: (card,)})


def read(
    *cards: AllocatedCard,
    kubelet: PodOutcome = KUBELET,
    metrics_server: PodOutcome | None = None,
    problem: str | None = None,
    **device_managers: SnapshotOutcome,
) -> UsageSample:
    return merge(
        now=NOW,
        pod_uid="uid-1",
        allocation=Allocation(cards, problem),
        kubelet=kubelet,
        metrics_server=metrics_server,
        device_managers=device_managers,
    )


def test_the_kubelets_figures_with_bytes_rounded_up_to_mib() -> None:
    sample = read()
    assert sample.cpu_usage_nanocores == 120_345_678
    assert sample.memory_working_set_mib == 512
    assert sample.rootfs_used_mib == 1
    assert sample.ephemeral_storage_used_mib == 641
    assert sample.timestamp == MEASURED
    assert sample.accelerators == ()
    assert sample.sources == (SourceReport("kubelet", SourceState.OK, 9),)


def test_the_workloads_own_cards_of_two_manufacturers() -> None:
    sample = read(
        NVIDIA,
        AMD,
        nvidia=SnapshotReading(snapshot(), 3.0),
        amd=SnapshotReading(snapshot("GPU-2", manufacturer="amd"), 4.0),
    )
    assert [(entry.manufacturer, entry.id, entry.mode) for entry in sample.accelerators] == [
        ("amd", "GPU-2", "Shared"),
        ("nvidia", "GPU-1", "Exclusive"),
    ]
    assert sample.sources[1:] == (
        SourceReport("device-manager/amd", CollectorState.OK, 4),
        SourceReport("device-manager/nvidia", CollectorState.OK, 3),
    )


def test_a_snapshot_serves_its_own_manufacturer_only() -> None:
    both = replace(snapshot(), cards={"nvidia": (), "amd": snapshot("GPU-2").cards["nvidia"]})
    sample = read(NVIDIA, AMD, nvidia=SnapshotReading(both, 1.0), amd=SourceFailure(SourceState.TIMEOUT))
    assert [(entry.id, entry.figures["memory_total"]) for entry in sample.accelerators] == [
        ("GPU-1", Reason.NOT_REPORTED)
    ]


def test_snapshots_nobody_allocated_from_are_ignored() -> None:
    sample = read(NVIDIA, nvidia=SnapshotReading(snapshot(), 1.0), amd=SnapshotReading(snapshot("GPU-1"), 1.0))
    assert [entry.manufacturer for entry in sample.accelerators] == ["nvidia"]
    assert [source.name for source in sample.sources] == ["kubelet", "device-manager/nvidia"]


def test_a_device_manager_that_cannot_be_read_costs_its_own_cards_their_entries() -> None:
    sample = read(
        NVIDIA,
        AMD,
        nvidia=SourceFailure(SourceState.UNREACHABLE, "connection refused"),
        amd=SnapshotReading(snapshot("GPU-2", manufacturer="amd"), 1.0),
    )
    assert [entry.id for entry in sample.accelerators] == ["GPU-2"]
    assert sample.sources[2] == SourceReport(
        "device-manager/nvidia", SourceState.UNREACHABLE, message="connection refused"
    )
    assert sample.memory_working_set_mib == 512


def test_a_device_manager_that_was_not_found_is_named() -> None:
    sample = read(NVIDIA)
    assert sample.sources[1].name == device_manager("nvidia")
    assert sample.sources[1].state is SourceState.NOT_SERVED
    assert sample.accelerators == ()


@pytest.mark.parametrize(("age", "listed"), [(45.0, 1), (45.1, 0), (None, 0)])
def test_a_stale_snapshot_costs_its_cards_their_entries(age: float | None, listed: int) -> None:
    sample = read(NVIDIA, nvidia=SnapshotReading(snapshot(), age))
    assert len(sample.accelerators) == listed
    assert sample.sources[1].state is (CollectorState.OK if listed else SourceState.STALE)


def test_a_stale_snapshot_keeps_the_collectors_own_state() -> None:
    peer = snapshot(state=CollectorState.UNRESPONSIVE, detail="no answer for 60 s")
    report = read(NVIDIA, nvidia=SnapshotReading(peer, 95.0)).sources[1]
    assert (report.state, report.age_s) == (CollectorState.UNRESPONSIVE, 95)
    assert report.message == "no answer for 60 s; the last sample is older than 3 x 15 s"


def test_a_fresh_snapshot_of_a_failing_collector_is_used_and_says_so() -> None:
    sample = read(NVIDIA, nvidia=SnapshotReading(snapshot(state=CollectorState.CRASHED), 20.0))
    assert sample.accelerators[0].figures["memory_used"] == 20480
    assert sample.sources[1].state is CollectorState.CRASHED


@pytest.mark.parametrize(
    ("state", "reported"),
    [(CollectorState.OK, SourceState.NOT_YET), (CollectorState.LIBRARY_MISSING, CollectorState.LIBRARY_MISSING)],
)
def test_a_snapshot_without_a_sample_has_no_cards(
    state: CollectorState, reported: SourceState | CollectorState
) -> None:
    peer = snapshot(state=state, timestamp=None)
    sample = read(NVIDIA, nvidia=SnapshotReading(peer, 0.0))
    assert sample.accelerators == ()
    assert sample.sources[1].state is reported


def test_the_fallback_gives_cpu_and_memory_and_the_kubelets_failure_explains_the_rest() -> None:
    fallback = PodUsage(5, 6, Reason.NOT_REPORTED, Reason.NOT_REPORTED, measured_at=NOW - timedelta(seconds=30))
    sample = read(
        kubelet=SourceFailure(SourceState.TIMEOUT, "no answer in 4 s"), metrics_server=PodReading(fallback, 30.0)
    )
    assert (sample.cpu_usage_nanocores, sample.memory_working_set_mib) == (5, 1)
    assert (sample.rootfs_used_mib, sample.ephemeral_storage_used_mib) == (Reason.TIMEOUT, Reason.TIMEOUT)
    assert sample.timestamp == NOW - timedelta(seconds=30)
    assert sample.sources == (
        SourceReport("kubelet", SourceState.TIMEOUT, message="no answer in 4 s"),
        SourceReport("metrics.k8s.io", SourceState.OK, 30),
    )


def test_the_kubelet_wins_over_a_fallback_that_answered_too() -> None:
    fallback = PodReading(PodUsage(1, 1, Reason.NOT_REPORTED, Reason.NOT_REPORTED, measured_at=NOW), 1.0)
    sample = read(metrics_server=fallback)
    assert sample.cpu_usage_nanocores == 120_345_678
    assert [source.name for source in sample.sources] == ["kubelet", "metrics.k8s.io"]


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (SourceState.FORBIDDEN, Reason.PERMISSION),
        (SourceState.UNAUTHORIZED, Reason.PERMISSION),
        (SourceState.TIMEOUT, Reason.TIMEOUT),
        (SourceState.INVALID, Reason.INVALID_DATA),
        (SourceState.NOT_YET, Reason.NOT_YET),
        (SourceState.STALE, Reason.STALE),
        (SourceState.UNREACHABLE, Reason.NOT_REPORTED),
        (SourceState.UNKNOWN_POD, Reason.NOT_REPORTED),
    ],
)
def test_without_any_usage_source_the_figures_say_why(state: SourceState, reason: Reason) -> None:
    sample = read(kubelet=SourceFailure(state), metrics_server=SourceFailure(SourceState.NOT_SERVED))
    assert sample.cpu_usage_nanocores is reason
    assert sample.rootfs_used_mib is reason
    assert sample.timestamp == NOW


def test_the_oldest_block_used_dates_the_sample() -> None:
    old = NOW - timedelta(seconds=40)
    reading = SnapshotReading(snapshot(timestamp=old), 40.0)
    assert read(NVIDIA, nvidia=reading).timestamp == old
    assert read(NVIDIA, nvidia=replace(reading, age_s=99.0)).timestamp == MEASURED


def test_a_problem_with_the_allocation_is_a_source_of_its_own() -> None:
    sample = read(problem="allocation annotation is not an object")
    assert sample.sources[-1] == SourceReport(
        "allocation", SourceState.INVALID, message="allocation annotation is not an object"
    )


def test_cards_are_ordered_as_the_allocator_counts_within_a_manufacturer() -> None:
    cards = [
        replace(NVIDIA, id=card_id, index=index) for card_id, index in (("c", None), ("b", 10), ("a", 2), ("d", 2))
    ]
    sample = read(*cards, nvidia=SnapshotReading(snapshot(), 1.0))
    assert [entry.id for entry in sample.accelerators] == ["a", "d", "b", "c"]


def test_requests_and_limits_pass_through() -> None:
    requests, limits = Resources(1, 2, 3), Resources(4, None, 6)
    sample = merge(now=NOW, pod_uid="u", allocation=Allocation(), kubelet=KUBELET, requests=requests, limits=limits)
    assert (sample.requests, sample.limits) == (requests, limits)
    assert read().limits == Resources()
