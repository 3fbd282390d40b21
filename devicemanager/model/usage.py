"""What one workload uses at one moment, and the sources that were asked."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from devicemanager.model.accelerator import CollectorState, Figure, Reason
from devicemanager.model.figures import NOT_REPORTED, Figures


class SourceState(StrEnum):
    """How asking one source ended. Closed; a device manager may also report its collector's own state."""

    OK = "ok"
    NOT_YET = "not_yet"
    NOT_SERVED = "not_served"
    UNKNOWN_POD = "unknown_pod"
    FORBIDDEN = "forbidden"
    UNAUTHORIZED = "unauthorized"
    TIMEOUT = "timeout"
    UNREACHABLE = "unreachable"
    INVALID = "invalid"
    STALE = "stale"


@dataclass(frozen=True, slots=True)
class SourceReport:
    """One source that was asked.

    Attributes:
        name: ``kubelet``, ``metrics.k8s.io``, ``device-manager/<manufacturer>`` or ``allocation``.
        state: How it ended.
        age_s: Whole seconds between the measurement and this answer, never negative; None when unknown.
        message: One line for a person; None when there is nothing to add.
    """

    name: str
    state: SourceState | CollectorState
    age_s: int | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class PodUsage:
    """The usage of one pod from a kubelet or metrics.k8s.io. Figures are exact integers or absent with a reason.

    Attributes:
        cpu_nanocores: CPU in use, in billionths of a core.
        memory_working_set_bytes: As the kubelet's eviction manager counts it.
        rootfs_used_bytes: Writable layers of all containers that have not ended.
        ephemeral_storage_used_bytes: Writable layers, logs and emptyDirs of the pod.
        measured_at: The oldest time among the blocks that a figure was taken from; None without any.
    """

    cpu_nanocores: Figure
    memory_working_set_bytes: Figure
    rootfs_used_bytes: Figure
    ephemeral_storage_used_bytes: Figure
    measured_at: datetime | None = None

    @property
    def is_stale(self) -> bool:
        """Whether there is no figure at all, and one is only too old."""
        cpu, memory = self.cpu_nanocores, self.memory_working_set_bytes
        figures = (cpu, memory, self.rootfs_used_bytes, self.ephemeral_storage_used_bytes)
        return all(isinstance(figure, Reason) for figure in figures) and Reason.STALE in figures


@dataclass(frozen=True, slots=True)
class ContainerMetrics:
    """One container of a metrics.k8s.io answer: CPU in nanocores, memory (working set) in bytes."""

    name: str
    cpu_nanocores: Figure
    memory_bytes: Figure


@dataclass(frozen=True, slots=True)
class PodMetrics:
    """A metrics.k8s.io answer for one pod. ``timestamp`` is None where the answer carries none."""

    timestamp: datetime | None
    containers: tuple[ContainerMetrics, ...]


@dataclass(frozen=True, slots=True)
class SnapshotCard:
    """One card of a peer's snapshot.

    Attributes:
        figures: In the units of the wire.
        pci_bus_id: As the sender spells it; None when it does not say.
        notes: Snapshot key of a figure -> what its value is, where that is not the usual.
    """

    id: str
    index: int | None = None
    name: str | None = None
    figures: Figures = NOT_REPORTED
    unhealthy: bool | Reason = Reason.NOT_REPORTED
    unhealthy_reason: str | None = None
    pci_bus_id: str | None = None
    notes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SliceUsage:
    """What one container holds on one card, or on one partition of it."""

    pod_uid: str
    container: str
    card_id: str
    memory_used_mib: Figure
    utilization_percent: Figure
    partition_id: str | None = None
    memory_total_mib: Figure = Reason.NOT_REPORTED
    profile: str | None = None


@dataclass(frozen=True, slots=True)
class SliceDevice:
    """One card whose processes were listed: a container without a record on it uses a measured 0.

    Attributes:
        memory_reason: Why no record of this card carries memory; None when memory was answered.
        utilization_reason: The same for compute.
    """

    card_id: str
    memory_reason: Reason | None = None
    utilization_reason: Reason | None = None


@dataclass(frozen=True, slots=True)
class PeerSnapshot:
    """A device manager's snapshot as its reader understands it.

    Attributes:
        timestamp: When the sender stored it, on its own clock; None for the zero time.
        period_s: 1..3600; 15 when the document names none or a value outside.
        node_name: None when the sender does not say (the existing operator never does).
        state: The collector's state; ``ok`` when the sender does not say.
        cards: manufacturer -> cards in the sender's order.
        slices: Per-container shares by manufacturer; None where the document carries no usable section.
        slice_devices: The cards those shares were looked for on, by manufacturer.
        slices_reason: Why ``slices`` is None: ``version_skew`` or ``invalid_data`` where there is a section that
            cannot be used, else ``unsupported``; None where ``slices`` is not None, or nobody asked.
        partitions: Partitions that are listed on their cards, by manufacturer; of no pod.
    """

    timestamp: datetime | None
    period_s: int
    node_name: str | None
    state: CollectorState
    detail: str | None
    cards: Mapping[str, tuple[SnapshotCard, ...]]
    slices: Mapping[str, tuple[SliceUsage, ...]] | None = None
    slice_devices: Mapping[str, tuple[SliceDevice, ...]] = field(default_factory=dict)
    slices_reason: Reason | None = None
    partitions: Mapping[str, tuple[SliceUsage, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SourceFailure:
    """A source that failed, or could not be asked.

    Attributes:
        state: Never ``ok``.
        message: One line for a person, in our own words: callers see it.
        detail: What the source itself says, for the log alone: it may name others than the caller's own.
    """

    state: SourceState | CollectorState
    message: str | None = None
    detail: str | None = None

    @property
    def said(self) -> str | None:
        """Both, for the log."""
        return ": ".join(filter(None, (self.message, self.detail))) or None


@dataclass(frozen=True, slots=True)
class PodReading:
    """What a kubelet or metrics.k8s.io answered for one pod.

    Attributes:
        age_s: Seconds since the measurement (``rules.freshness.age_s``); None when unknown.
    """

    usage: PodUsage
    age_s: float | None = None


@dataclass(frozen=True, slots=True)
class SnapshotReading:
    """What a device manager answered.

    Attributes:
        age_s: Seconds since the sample was begun (``rules.freshness.age_s``); None when unknown, which is never
            fresh.
        waited_s: How much of that has passed since the snapshot was here and asked for, because another source took
            longer: that makes no snapshot stale.
    """

    snapshot: PeerSnapshot
    age_s: float | None = None
    waited_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Resources:
    """Requests or limits of a pod, each None when there is none.

    Attributes:
        cpu_millicores: Rounded up.
        memory_mib: Rounded up.
        ephemeral_storage_mib: Rounded up.
    """

    cpu_millicores: int | None = None
    memory_mib: int | None = None
    ephemeral_storage_mib: int | None = None


@dataclass(frozen=True, slots=True)
class AcceleratorUsage:
    """One allocated card, or partition, in an answer.

    Attributes:
        id: The card's vendor UUID; the partition's own for a partition whose UUID is known.
        manufacturer: As the allocation spells it.
        index: The allocator's ordinal, for display; None where it gives none.
        name: The product's name; None where the snapshot does not carry it.
        mode: How the card was given (``Mode.label``).
        figures: In the units of the wire. Those of ``Scope.SHARE`` are the card's when it was given whole or
            shared, else this pod's share's or partition's own.
        unhealthy: Of the board.
        unhealthy_reason: Why it is unhealthy, in the device manager's words; None where it does not say.
        profile: Of the partition (``1g.10gb``); None for anything else.
        memory_granted_mib: Of the card's memory, what was given: a share's own capacity, else ``memory_total``.
    """

    id: str
    manufacturer: str
    index: int | None
    name: str | None
    mode: str
    figures: Figures
    unhealthy: bool | Reason
    unhealthy_reason: str | None = None
    profile: str | None = None
    memory_granted_mib: Figure = Reason.NOT_REPORTED

    @property
    def health_warning(self) -> str | None:
        """One line for a person where it is unhealthy; else None."""
        if self.unhealthy is not True:
            return None
        return f"accelerator {self.id}: unhealthy" + (
            f" ({self.unhealthy_reason})" if self.unhealthy_reason else ""
        )


@dataclass(frozen=True, slots=True)
class UsageSample:
    """One moment of one workload.

    Attributes:
        timestamp: The oldest block used; the time of the read when no block was.
        accelerators: Sorted by manufacturer, index and id: all that are allocated.
        limits: What limits the pod as a whole.
        declared_limits: The sums over its containers, of which one without a limit counts as 0. None where unknown.
        sources: One per source asked, in the order kubelet, metrics.k8s.io, device managers, allocation.
    """

    timestamp: datetime
    cpu_usage_nanocores: Figure
    memory_working_set_mib: Figure
    rootfs_used_mib: Figure
    ephemeral_storage_used_mib: Figure
    accelerators: tuple[AcceleratorUsage, ...]
    requests: Resources
    limits: Resources
    sources: tuple[SourceReport, ...]
    declared_limits: Resources = Resources()


@dataclass(frozen=True, slots=True)
class WorkloadUsage:
    """A workload with its sample: the whole answer.

    Attributes:
        created_at: When its object was created; None where unknown.
        labels: The object's own labels.
        node_name: Where its pod runs.
    """

    namespace: str
    name: str
    uid: str
    created_at: datetime | None
    labels: Mapping[str, str] = field(default_factory=dict)
    node_name: str | None = None
    sample: UsageSample | None = None
