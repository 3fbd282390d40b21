"""The merge: what each source says, and what it costs when it says nothing."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from devicemanager.model.accelerator import CollectorState, Reason
from devicemanager.model.allocation import AllocatedCard, Allocation, Mode
from devicemanager.model.figures import Figures
from devicemanager.model.usage import (
    AcceleratorUsage,
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
        ("GPU-2", Reason.TIMEOUT),
        ("GPU-1", Reason.NOT_REPORTED),
    ]


def test_snapshots_nobody_allocated_from_are_ignored() -> None:
    sample = read(NVIDIA, nvidia=SnapshotReading(snapshot(), 1.0), amd=SnapshotReading(snapshot("GPU-1"), 1.0))
    assert [entry.manufacturer for entry in sample.accelerators] == ["nvidia"]
    assert [source.name for source in sample.sources] == ["kubelet", "device-manager/nvidia"]


def test_a_device_manager_that_cannot_be_read_costs_its_own_cards_their_figures() -> None:
    sample = read(
        NVIDIA,
        AMD,
        nvidia=SourceFailure(SourceState.UNREACHABLE, "connection refused"),
        amd=SnapshotReading(snapshot("GPU-2", manufacturer="amd"), 1.0),
    )
    assert [(entry.id, entry.figures.measured) for entry in sample.accelerators] == [
        ("GPU-2", True),
        ("GPU-1", False),
    ]
    assert sample.accelerators[1] == AcceleratorUsage(
        "GPU-1",
        "nvidia",
        0,
        None,
        "Exclusive",
        Figures(Reason.NOT_REPORTED),
        Reason.NOT_REPORTED,
        memory_granted_mib=Reason.NOT_REPORTED,
    )
    assert sample.sources[2] == SourceReport(
        "device-manager/nvidia", SourceState.UNREACHABLE, message="connection refused"
    )
    assert sample.memory_working_set_mib == 512


def test_a_device_manager_that_was_not_found_is_named() -> None:
    sample = read(NVIDIA)
    assert sample.sources[1].name == device_manager("nvidia")
    assert sample.sources[1].state is SourceState.NOT_SERVED
    assert [entry.figures for entry in sample.accelerators] == [Figures(Reason.NOT_REPORTED)]


@pytest.mark.parametrize(("age", "fresh"), [(45.0, True), (45.1, False), (None, False)])
def test_a_stale_snapshot_costs_its_cards_their_figures(age: float | None, fresh: bool) -> None:
    sample = read(NVIDIA, nvidia=SnapshotReading(snapshot(), age))
    assert sample.accelerators[0].figures == (devices.published() if fresh else Figures(Reason.STALE))
    assert sample.sources[1].state is (CollectorState.OK if fresh else SourceState.STALE)


@pytest.mark.parametrize(
    ("age", "waited", "fresh"),
    [(3.1, 3.0, True), (6.0, 3.0, True), (6.1, 3.0, False), (3.1, 0.0, False), (None, 3.0, False)],
)
def test_waiting_for_another_source_makes_no_snapshot_stale_and_its_age_stays_true(
    age: float | None, waited: float, fresh: bool
) -> None:
    peer = replace(snapshot(), period_s=1)
    sample = read(NVIDIA, nvidia=SnapshotReading(peer, age, waited))
    assert sample.accelerators[0].figures.measured is fresh
    assert sample.sources[1].age_s == (None if age is None else int(age))


def test_a_clock_that_was_never_set_dates_no_sample() -> None:
    unset = snapshot(timestamp=datetime(1970, 1, 1, 0, 5, tzinfo=UTC))
    sample = read(NVIDIA, nvidia=SnapshotReading(unset, 3.0))
    assert sample.accelerators[0].figures.measured
    assert (sample.timestamp, sample.sources[1].age_s) == (MEASURED, 3)


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (CollectorState.STARTING, Reason.NOT_YET),
        (CollectorState.NO_PERMISSION, Reason.PERMISSION),
        (CollectorState.UNRESPONSIVE, Reason.TIMEOUT),
        (CollectorState.VERSION_MISMATCH, Reason.VERSION_SKEW),
        (CollectorState.LIBRARY_MISSING, Reason.NOT_REPORTED),
        (CollectorState.DRIVER_NOT_LOADED, Reason.NOT_REPORTED),
        (CollectorState.CRASHED, Reason.NOT_REPORTED),
    ],
)
def test_the_cards_of_a_device_manager_in_a_bad_state_stay_listed_with_the_reason(
    state: CollectorState, reason: Reason
) -> None:
    sample = read(NVIDIA, nvidia=SnapshotReading(snapshot(state=state, timestamp=None), None))
    (entry,) = sample.accelerators
    assert (entry.id, entry.mode, entry.index) == ("GPU-1", "Exclusive", 0)
    assert (entry.figures, entry.unhealthy) == (Figures(reason), reason)
    old = read(NVIDIA, nvidia=SnapshotReading(snapshot(state=state), 99.0))
    assert old.accelerators[0].figures == Figures(Reason.STALE)


def test_without_a_snapshot_a_partition_and_a_share_are_listed_as_they_were_given() -> None:
    partition = replace(NVIDIA, mode=Mode.PARTITIONED, partition_id="MIG-1", profile="1g.10gb")
    share = replace(NVIDIA, id="GPU-3", index=3, mode=Mode.SLICED, units=400_000)
    seen = replace(NVIDIA, id="GPU-4", mode=Mode.VISIBILITY)
    sample = read(partition, share, seen, nvidia=SourceFailure(SourceState.TIMEOUT))
    assert [(entry.id, entry.mode, entry.profile) for entry in sample.accelerators] == [
        ("MIG-1", "Partitioned", "1g.10gb"),
        ("GPU-3", "Sliced", None),
    ]
    assert {entry.memory_granted_mib for entry in sample.accelerators} == {Reason.TIMEOUT}


def test_a_card_that_is_known_to_be_another_pods_is_not_shown_and_its_device_manager_not_asked() -> None:
    sample = merge(
        now=NOW,
        pod_uid="uid-1",
        allocation=Allocation((NVIDIA,)),
        kubelet=KUBELET,
        device_managers={"nvidia": SnapshotReading(snapshot(), 1.0)},
        holders={("nvidia", "GPU-1"): {"uid-2"}},
    )
    assert sample.accelerators == ()
    assert [(report.name, report.state) for report in sample.sources] == [
        ("kubelet", SourceState.OK),
        ("allocation", SourceState.INVALID),
    ]


def test_a_stale_snapshot_keeps_the_collectors_own_state() -> None:
    peer = snapshot(state=CollectorState.UNRESPONSIVE, detail="no answer for 60 s")
    report = read(NVIDIA, nvidia=SnapshotReading(peer, 95.0)).sources[1]
    assert (report.state, report.age_s) == (CollectorState.UNRESPONSIVE, 95)
    assert report.message == "the library or the driver does not answer; the last sample is older than 3 x 15 s"


def test_a_fresh_snapshot_of_a_failing_collector_is_used_and_says_so() -> None:
    sample = read(NVIDIA, nvidia=SnapshotReading(snapshot(state=CollectorState.CRASHED), 20.0))
    assert sample.accelerators[0].figures["memory_used"] == 20480
    assert sample.sources[1].state is CollectorState.CRASHED


@pytest.mark.parametrize(
    ("state", "reported"),
    [(CollectorState.OK, SourceState.NOT_YET), (CollectorState.LIBRARY_MISSING, CollectorState.LIBRARY_MISSING)],
)
def test_a_snapshot_without_a_sample_has_no_figures(
    state: CollectorState, reported: SourceState | CollectorState
) -> None:
    peer = snapshot(state=state, timestamp=None)
    sample = read(NVIDIA, nvidia=SnapshotReading(peer, 0.0))
    assert not sample.accelerators[0].figures.measured
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
    declared = Resources(4, 5, 6)
    sample = merge(
        now=NOW,
        pod_uid="u",
        allocation=Allocation(),
        kubelet=KUBELET,
        requests=requests,
        limits=limits,
        declared_limits=declared,
    )
    assert (sample.requests, sample.limits, sample.declared_limits) == (requests, limits, declared)
    assert (read().limits, read().declared_limits) == (Resources(), Resources())
