"""A pod's usage from its entry in a kubelet's summary: each figure complete, or absent with a reason.

A container that has ended leaves every sum; any other unknown makes that sum absent, because a sum with a hole
looks like a smaller pod. Times are compared only with the node's own, so no clock skew matters.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Final, TypeVar

from devicemanager.model.accelerator import Reason
from devicemanager.model.pod_stats import (
    UNREADABLE,
    ContainerState,
    ContainerStats,
    CpuStats,
    DiskStats,
    MemoryStats,
    PodStats,
)
from devicemanager.model.usage import PodUsage
from devicemanager.rules.kubelet_blocks import HIGHEST_BYTES, UNKNOWN_CAPACITY, BlockReader, Measure, NodeCapacity

PRECEDENCE: Final = (
    Reason.INVALID_DATA,
    Reason.BOUNDED,
    Reason.STALE,
    Reason.NOT_YET,
    Reason.NOT_REPORTED,
)
"""If a sum is absent for several reasons, the first in this order is given."""

NO_STATES: Final[Mapping[str, ContainerState]] = MappingProxyType({})

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def newest(entries: Sequence[PodStats]) -> PodStats:
    """The newest of several entries with the same identity: the one started last, then read last.

    A kubelet that restarted a pod may list what is left of its past life beside it. Entries are never added up.
    Where neither time tells two apart, a block that they do not share is not to be believed.
    """
    first, *others = _latest(entries, _pod_recency)
    for other in others:
        same = first.containers == other.containers
        first = replace(
            first,
            containers=first.containers if same else (_unreadable(None),),
            cpu=_same(first.cpu, other.cpu, _UNREADABLE_CPU),
            memory=_same(first.memory, other.memory, _UNREADABLE_MEMORY),
            ephemeral_storage=_same(first.ephemeral_storage, other.ephemeral_storage, _UNREADABLE_DISK),
        )
    return first


def pod_usage(
    pod: PodStats,
    *,
    node_time: datetime | None,
    answered_at: datetime | None = None,
    capacity: NodeCapacity = UNKNOWN_CAPACITY,
    own: Collection[str] | None = None,
    states: Mapping[str, ContainerState] = NO_STATES,
) -> PodUsage:
    """The pod's usage.

    CPU and memory come from the pod's own block, which counts what runs beside the containers too, and from the sum
    over the containers where that block does not carry the figure. Root file systems exist per container only,
    ephemeral storage per pod only.

    Args:
        pod: The kubelet's entry.
        node_time: The time of the node's own CPU block; None where the kubelet gives none.
        answered_at: The kubelet's own clock when it answered; None where it is not known.
        capacity: What the node has.
        own: The names of the pod's containers, as its spec gives them: entries under other names are not its own.
            None where the spec is not known.
        states: Container name -> state, from the pod's status. For others, their blocks tell.
    """
    blocks = BlockReader(node_time, answered_at, capacity)
    live = _Live.of(pod.containers, own, states)
    cpu = live.unless_carried(blocks.cpu(pod.cpu), lambda stats: blocks.cpu(stats.cpu), blocks.highest_nanocores)
    memory = live.unless_carried(
        blocks.memory(pod.memory), lambda stats: blocks.memory(stats.memory), blocks.highest_memory_bytes
    )
    rootfs = live.sum(lambda stats: blocks.disk(stats.rootfs), HIGHEST_BYTES)
    ephemeral = blocks.disk(pod.ephemeral_storage)
    return PodUsage(
        cpu_nanocores=cpu.figure,
        memory_working_set_bytes=memory.figure,
        rootfs_used_bytes=rootfs.figure,
        ephemeral_storage_used_bytes=ephemeral.figure,
        measured_at=_oldest((cpu, memory, rootfs, ephemeral)),
    )


@dataclass(frozen=True, slots=True)
class _Live:
    """The containers that have not ended.

    Attributes:
        containers: Each once, as the newest of its entries gives it.
        gap: Why a sum over them is not the whole pod; None when it is.
    """

    containers: Sequence[ContainerStats]
    gap: Reason | None

    @classmethod
    def of(
        cls,
        containers: Iterable[ContainerStats] | None,
        own: Collection[str] | None,
        states: Mapping[str, ContainerState],
    ) -> "_Live":
        if containers is None:
            return cls((), Reason.BOUNDED)
        listed = _newest(stats for stats in containers if own is None or stats.name is None or stats.name in own)
        live = [stats for name, stats in listed.items() if not _has_ended(stats, states.get(name or ""))]
        if any(state is ContainerState.RUNNING and name not in listed for name, state in states.items()):
            return cls(live, Reason.NOT_YET)
        if live:
            return cls(live, None)
        return cls(live, Reason.NOT_YET if ContainerState.WAITING in states.values() else Reason.NOT_REPORTED)

    def unless_carried(
        self, of_pod: Measure, of_container: Callable[[ContainerStats], Measure], highest: int
    ) -> Measure:
        """The pod's own measure, or the sum over the containers where the pod's block does not carry it."""
        if of_pod.carried:
            return of_pod
        summed = self.sum(of_container, highest)
        if isinstance(summed.figure, Reason) and isinstance(of_pod.figure, Reason):
            return Measure(_first((summed.figure, of_pod.figure)))
        return summed

    def sum(self, of_container: Callable[[ContainerStats], Measure], highest: int) -> Measure:
        """The sum over the containers, absent when any of them is, or it is more than ``highest``."""
        measures = [of_container(stats) for stats in self.containers]
        reasons = [measure.figure for measure in measures if isinstance(measure.figure, Reason)]
        if self.gap is not None:
            reasons.append(self.gap)
        if reasons:
            return Measure(_first(reasons))
        total = sum(measure.figure for measure in measures if not isinstance(measure.figure, Reason))
        return Measure(total, _oldest(measures)) if total <= highest else Measure(Reason.INVALID_DATA)


_UNREADABLE_CPU: Final = CpuStats(None, UNREADABLE, UNREADABLE)
_UNREADABLE_MEMORY: Final = MemoryStats(None, UNREADABLE)
_UNREADABLE_DISK: Final = DiskStats(None, UNREADABLE)

_Block = TypeVar("_Block", CpuStats, MemoryStats, DiskStats)


def _unreadable(name: str | None) -> ContainerStats:
    return ContainerStats(name, None, _UNREADABLE_CPU, _UNREADABLE_MEMORY, _UNREADABLE_DISK)


def _same(one: _Block | None, other: _Block | None, unreadable: _Block) -> _Block | None:
    return one if one == other else unreadable


def _newest(containers: Iterable[ContainerStats]) -> dict[str | None, ContainerStats]:
    """Each container once, by name: kubelets may list one twice, restarted or read again a moment later."""
    entries: dict[str | None, list[ContainerStats]] = {}
    for stats in containers:
        entries.setdefault(stats.name, []).append(stats)
    return {name: found[0] if len(found) == 1 else _newest_of(found) for name, found in entries.items()}


def _newest_of(entries: Sequence[ContainerStats]) -> ContainerStats:
    first, *others = _latest(entries, _recency)
    for other in others:
        first = replace(
            first,
            cpu=_same(first.cpu, other.cpu, _UNREADABLE_CPU),
            memory=_same(first.memory, other.memory, _UNREADABLE_MEMORY),
            rootfs=_same(first.rootfs, other.rootfs, _UNREADABLE_DISK),
        )
    return first


_Entry = TypeVar("_Entry", ContainerStats, PodStats)


def _latest(entries: Sequence[_Entry], recency: Callable[[_Entry], tuple[datetime, datetime]]) -> list[_Entry]:
    latest = max(map(recency, entries))
    return [entry for entry in entries if recency(entry) == latest]


def _recency(stats: ContainerStats) -> tuple[datetime, datetime]:
    """When the container started, then when it was last read."""
    return stats.started_at or _EPOCH, _last_read(stats.cpu, stats.memory, stats.rootfs)


def _pod_recency(pod: PodStats) -> tuple[datetime, datetime]:
    return pod.started_at or _EPOCH, _last_read(pod.cpu, pod.memory, pod.ephemeral_storage)


def _last_read(*blocks: CpuStats | MemoryStats | DiskStats | None) -> datetime:
    return max((block.time for block in blocks if block is not None and block.time is not None), default=_EPOCH)


def _has_ended(stats: ContainerStats, state: ContainerState | None) -> bool:
    """Whether a container has ended, and uses nothing now.

    The status knows best of a container that runs or has ended. Of any other the blocks tell: one that has consumed
    no CPU time and holds no memory has ended or never begun, even when a last CPU rate is still written.
    """
    if state is ContainerState.ENDED:
        return True
    if state is ContainerState.RUNNING:
        return False
    cpu, memory = stats.cpu or CpuStats(), stats.memory or MemoryStats()
    consumed = cpu.usage_nanocores if cpu.usage_core_nanoseconds is None else cpu.usage_core_nanoseconds
    return not consumed and not memory.working_set_bytes


def _first(reasons: Iterable[Reason]) -> Reason:
    return min(reasons, key=PRECEDENCE.index)


def _oldest(measures: Iterable[Measure]) -> datetime | None:
    times = (measure.time for measure in measures if not isinstance(measure.figure, Reason))
    return min((time for time in times if time is not None), default=None)
