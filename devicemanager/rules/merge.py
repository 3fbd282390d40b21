"""Merges an allocation and the answers of all sources into one sample.

Pure. Every figure of an answer passes here: only this pod's usage and this pod's cards, each figure measured or
absent with a reason, and one line per source that was asked.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Final, TypeAlias

from devicemanager.model.accelerator import CollectorState, Reason
from devicemanager.model.allocation import Allocation
from devicemanager.model.usage import (
    AcceleratorUsage,
    PeerSnapshot,
    PodReading,
    PodUsage,
    Resources,
    SnapshotReading,
    SourceFailure,
    SourceReport,
    SourceState,
    UsageSample,
)
from devicemanager.rules import cards
from devicemanager.rules.claims import UNKNOWN, Holders, confirmed
from devicemanager.rules.freshness import EARLIEST, STALE_AFTER_PERIODS, effective_period_s, is_stale
from devicemanager.rules.units import mib

KUBELET: Final = "kubelet"
METRICS_SERVER: Final = "metrics.k8s.io"
ALLOCATION: Final = "allocation"

PodOutcome: TypeAlias = PodReading | SourceFailure
SnapshotOutcome: TypeAlias = SnapshotReading | SourceFailure

NO_SNAPSHOTS: Final[Mapping[str, SnapshotOutcome]] = MappingProxyType({})

_REASONS: Final[Mapping[SourceState | CollectorState, Reason]] = {
    CollectorState.STARTING: Reason.NOT_YET,
    CollectorState.NO_PERMISSION: Reason.PERMISSION,
    CollectorState.UNRESPONSIVE: Reason.TIMEOUT,
    CollectorState.VERSION_MISMATCH: Reason.VERSION_SKEW,
    SourceState.NOT_YET: Reason.NOT_YET,
    SourceState.FORBIDDEN: Reason.PERMISSION,
    SourceState.UNAUTHORIZED: Reason.PERMISSION,
    SourceState.TIMEOUT: Reason.TIMEOUT,
    SourceState.INVALID: Reason.INVALID_DATA,
    SourceState.STALE: Reason.STALE,
}
"""Reason for the figures of a failed source, by its state; for any other state ``not_reported``."""


_NOT_ASKED: Final = SourceFailure(SourceState.NOT_SERVED, "no device manager of this manufacturer was found")


def device_manager(manufacturer: str) -> str:
    """The name of a manufacturer's device manager among the sources."""
    return f"device-manager/{manufacturer}"


def merge(
    *,
    now: datetime,
    pod_uid: str,
    allocation: Allocation,
    kubelet: PodOutcome,
    metrics_server: PodOutcome | None = None,
    device_managers: Mapping[str, SnapshotOutcome] = NO_SNAPSHOTS,
    requests: Resources | None = None,
    limits: Resources | None = None,
    declared_limits: Resources | None = None,
    holders: Holders = UNKNOWN,
) -> UsageSample:
    """One pod's sample.

    Args:
        now: The reader's wall clock.
        pod_uid: The pod's own UID, as the API server gives it; slices are matched by it.
        allocation: The pod's cards.
        kubelet: What its node's kubelet said of this pod.
        metrics_server: What metrics.k8s.io said of it; None when it was not asked. Used only without the kubelet.
        device_managers: Manufacturer -> what its device manager on the pod's node said. Those whose manufacturer
            is not in the allocation are ignored; one that is missing counts as not served.
        requests: The pod's.
        limits: What limits the pod as a whole.
        declared_limits: The sums over its containers.
        holders: Who holds which device, as far as that is known from elsewhere than the annotation.

    Returns:
        The sample. The order of nothing that goes in matters, and a failing source changes no other's figure. Every
        card of the allocation is listed, but those known to be another pod's; where its device manager failed, with
        the reason for each figure.
    """
    allocation = confirmed(allocation, pod_uid, holders)
    usage = _usage(kubelet, metrics_server)
    groups = [
        _group(manufacturer, pod_uid, allocation, device_managers.get(manufacturer, _NOT_ASKED))
        for manufacturer in allocation.manufacturers
    ]
    times = [usage.measured_at, *(group.measured_at for group in groups)]
    return UsageSample(
        timestamp=min((time for time in times if time is not None), default=now),
        cpu_usage_nanocores=usage.cpu_nanocores,
        memory_working_set_mib=mib(usage.memory_working_set_bytes),
        rootfs_used_mib=mib(usage.rootfs_used_bytes),
        ephemeral_storage_used_mib=mib(usage.ephemeral_storage_used_bytes),
        accelerators=tuple(sorted((entry for group in groups for entry in group.entries), key=_order)),
        requests=requests or Resources(),
        limits=limits or Resources(),
        declared_limits=declared_limits or Resources(),
        sources=(
            _pod_report(KUBELET, kubelet),
            *(() if metrics_server is None else (_pod_report(METRICS_SERVER, metrics_server),)),
            *sorted((group.report for group in groups), key=lambda report: report.name),
            *_allocation_report(allocation),
        ),
    )


def _usage(kubelet: PodOutcome, metrics_server: PodOutcome | None) -> PodUsage:
    """The kubelet's figures, or else the fallback's; what neither gives is absent for the kubelet's reason."""
    if isinstance(kubelet, PodReading):
        return kubelet.usage
    reason = _REASONS.get(kubelet.state, Reason.NOT_REPORTED)
    if isinstance(metrics_server, PodReading):
        fallback = metrics_server.usage
        return PodUsage(
            fallback.cpu_nanocores, fallback.memory_working_set_bytes, reason, reason, fallback.measured_at
        )
    return PodUsage(reason, reason, reason, reason)


def _order(entry: AcceleratorUsage) -> tuple[str, bool, int, str]:
    """By manufacturer, then as the allocator counts, cards it does not number last."""
    return entry.manufacturer, entry.index is None, entry.index or 0, entry.id


@dataclass(frozen=True, slots=True)
class _Group:
    """What one manufacturer adds to the sample."""

    report: SourceReport
    entries: Sequence[AcceleratorUsage] = ()
    measured_at: datetime | None = None


def _group(manufacturer: str, pod_uid: str, allocation: Allocation, outcome: SnapshotOutcome) -> _Group:
    """The cards of one manufacturer: with figures when its snapshot is fresh, else with the reason for none."""
    name = device_manager(manufacturer)

    def cards_of(snapshot: PeerSnapshot | Reason) -> Sequence[AcceleratorUsage]:
        return cards.entries(manufacturer, pod_uid, allocation, snapshot)

    if isinstance(outcome, SourceFailure):
        report = SourceReport(name, outcome.state, message=outcome.message)
        return _Group(report, cards_of(_REASONS.get(outcome.state, Reason.NOT_REPORTED)))
    snapshot, age = outcome.snapshot, _whole_seconds(outcome.age_s)
    if snapshot.timestamp is None:
        state = _unless_ok(snapshot.state, SourceState.NOT_YET)
        report = SourceReport(name, state, age, said_of(snapshot.state) or said_of(CollectorState.STARTING))
        return _Group(report, cards_of(_REASONS.get(state, Reason.NOT_REPORTED)))
    if is_stale(None if outcome.age_s is None else outcome.age_s - outcome.waited_s, snapshot.period_s):
        state = _unless_ok(snapshot.state, SourceState.STALE)
        old = f"the last sample is older than {STALE_AFTER_PERIODS} x {effective_period_s(snapshot.period_s)} s"
        report = SourceReport(name, state, age, "; ".join(filter(None, (said_of(snapshot.state), old))))
        return _Group(report, cards_of(Reason.STALE))
    return _Group(
        SourceReport(name, snapshot.state, age, said_of(snapshot.state)),
        cards_of(snapshot),
        # A clock that was never set dates no sample; the age does not come from it.
        snapshot.timestamp if snapshot.timestamp >= EARLIEST else None,
    )


def said_of(state: CollectorState) -> str | None:
    """What callers are told of a collector's state. Its own words may name cards of others, and are for the log."""
    return _SAID.get(state)


_SAID: Final[Mapping[CollectorState, str]] = {
    CollectorState.STARTING: "no sample has been taken yet",
    CollectorState.NO_DEVICES: "the node has no device of this manufacturer",
    CollectorState.LIBRARY_MISSING: "the manufacturer's library was not found",
    CollectorState.DRIVER_NOT_LOADED: "the driver is not loaded",
    CollectorState.VERSION_MISMATCH: "driver and library are of different versions",
    CollectorState.NO_PERMISSION: "the device manager may not open the devices",
    CollectorState.UNRESPONSIVE: "the library or the driver does not answer",
    CollectorState.CRASHED: "the collector crashed",
    CollectorState.RELEASED: "the devices were given back on purpose",
    CollectorState.FAILED: "the collector failed",
}


def _unless_ok(state: CollectorState, instead: SourceState) -> SourceState | CollectorState:
    """The collector's own state is more precise than what follows from it."""
    return instead if state is CollectorState.OK else state


def _pod_report(name: str, outcome: PodOutcome) -> SourceReport:
    if isinstance(outcome, SourceFailure):
        return SourceReport(name, outcome.state, message=outcome.message)
    return SourceReport(name, SourceState.OK, _whole_seconds(outcome.age_s))


def _allocation_report(allocation: Allocation) -> Sequence[SourceReport]:
    if allocation.problem is None:
        return ()
    return (SourceReport(ALLOCATION, SourceState.INVALID, message=allocation.problem),)


def _whole_seconds(age: float | None) -> int | None:
    return None if age is None else int(age)
