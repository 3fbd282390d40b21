"""The kubelet's ``/stats/summary``: the largest document the worker reads, decoded to the few keys it needs.

Typed decoding costs an eighth of reading everything, so it comes first. It refuses the whole document for one field
of the wrong type; only then the slower way is taken, in which only the malformed pod or field is absent.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import Final

import msgspec

from devicemanager.errors import ExcessError
from devicemanager.model.pod_stats import UNREADABLE, ContainerStats, CpuStats, DiskStats, MemoryStats, PodStats
from devicemanager.rules import kubelet
from devicemanager.wire import bounds, timestamps
from devicemanager.wire.json_values import integer, items, member, members, text
from devicemanager.wire.kubelet_summary_document import (
    Container,
    Cpu,
    Disk,
    Document,
    Memory,
    Node,
    NodeMemory,
    Pod,
    PodRef,
    UnreadableContainer,
)

_KIND: Final = "kubelet summary"

PODS_LIMIT: Final = 2000
"""Entries of one summary: four times the pods of a large node."""

ENTRIES_LIMIT: Final = 8
"""Entries of one pod that are compared. A kubelet that restarts a pod lists two or three for a while."""

CONTAINERS_LIMIT: Final = 64
"""Containers read of one pod. More cost that pod what is added up over them, and no other pod anything: whoever may
make pods must not be able to hide a node's."""

_DECODER: Final = msgspec.json.Decoder(Document)


class Summary:
    """One node's summary. Immutable; the pods are turned into values only when asked for.

    Attributes:
        node_name: As the kubelet calls its node; None where it does not say.
        node_cpu_time: The time of the node's own CPU block, on the node's clock; None where it gives none.
        node_memory_bytes: What the node has; None where the kubelet does not say.
    """

    __slots__ = ("_by_pod", "node_cpu_time", "node_memory_bytes", "node_name")

    def __init__(self, document: Document) -> None:
        node = document.node or Node()
        self.node_name: str | None = node.node_name or None
        self.node_cpu_time: datetime | None = timestamps.parse(node.cpu.time) if node.cpu is not None else None
        self.node_memory_bytes: int | None = _memory_capacity(node.memory)
        self._by_pod: dict[tuple[str, str, str], list[Pod]] = {}
        for pod in document.pods or ():
            if pod.pod_ref is not None and pod.pod_ref.uid:
                key = (pod.pod_ref.namespace, pod.pod_ref.name, pod.pod_ref.uid)
                self._by_pod.setdefault(key, []).append(pod)

    def __len__(self) -> int:
        return len(self._by_pod)

    @property
    def pods(self) -> Iterator[PodStats]:
        """Every pod with an identity, in the kubelet's order; of entries with the same one the newest."""
        return map(_newest, self._by_pod.values())

    def lists(self, namespace: str, name: str, uid: str) -> bool:
        """Whether :meth:`pod` has an entry; to ask costs nothing."""
        return (namespace, name, uid) in self._by_pod

    def pod(self, namespace: str, name: str, uid: str) -> PodStats | None:
        """The newest entry of exactly this pod; None when the kubelet does not carry it.

        Args:
            uid: One of those under which the kubelet may list it (``Pod.kubelet_uids``).
        """
        entries = self._by_pod.get((namespace, name, uid))
        return None if entries is None else _newest(entries)


def decode(body: bytes) -> Summary:
    """The summary in a kubelet's answer.

    Raises:
        DocumentError: Not JSON, or not an object.
        ExcessError: It holds more than the pods of any node.
    """
    summary = decode_typed(body)
    return decode_lenient(body) if summary is None else summary


def decode_typed(body: bytes) -> Summary | None:
    """The summary if every field has its type; None if the slower way is to be taken.

    Raises:
        ExcessError: It holds more than the pods of any node.
    """
    bounds.SUMMARY.check(body, _KIND)
    try:
        document = _DECODER.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    _check_pods(len(document.pods or ()))
    return Summary(document)


def decode_lenient(body: bytes) -> Summary:
    """The summary, in which a malformed field is absent. Takes fifteen times as long.

    Raises:
        DocumentError: Not JSON, or not an object.
        ExcessError: It holds more than the pods of any node.
    """
    document = Document(pods=[])
    for key, value in members(body, _KIND, "pods", bounds.SUMMARY):
        if key == "node":
            document.node = _node(value)
        elif key == "pods" and document.pods is not None:
            document.pods.append(_pod(value))
            _check_pods(len(document.pods))
    return Summary(document)


def _check_pods(count: int) -> None:
    if count > PODS_LIMIT:
        raise ExcessError(f"{_KIND}: more than {PODS_LIMIT} pods")


def _memory_capacity(memory: NodeMemory | None) -> int | None:
    """Kubelets give what is left of the node's memory beyond the working set."""
    if memory is None or memory.available_bytes is None or memory.working_set_bytes is None:
        return None
    if min(memory.available_bytes, memory.working_set_bytes) < 0:
        return None
    return memory.available_bytes + memory.working_set_bytes or None


def _newest(entries: Sequence[Pod]) -> PodStats:
    first = _pod_stats(entries[0])
    if len(entries) == 1:
        return first
    if len(entries) > ENTRIES_LIMIT:  # to compare thousands would take seconds
        return PodStats(first.namespace, first.name, first.uid, containers=None)
    return kubelet.newest([first, *map(_pod_stats, entries[1:])])


def _pod_stats(pod: Pod) -> PodStats:
    ref = pod.pod_ref or PodRef()
    return PodStats(
        namespace=ref.namespace,
        name=ref.name,
        uid=ref.uid,
        containers=_containers(pod.containers or ()),
        cpu=_cpu_stats(pod.cpu),
        memory=_memory_stats(pod.memory),
        ephemeral_storage=_disk_stats(pod.ephemeral_storage),
        started_at=timestamps.parse(pod.start_time),
    )


def _containers(listed: Sequence[Container]) -> tuple[ContainerStats, ...] | None:
    return tuple(map(_container_stats, listed)) if len(listed) <= CONTAINERS_LIMIT else None


def _container_stats(container: Container) -> ContainerStats:
    return ContainerStats(
        name=None if isinstance(container, UnreadableContainer) else container.name,
        started_at=timestamps.parse(container.start_time),
        cpu=_cpu_stats(container.cpu),
        memory=_memory_stats(container.memory),
        rootfs=_disk_stats(container.rootfs),
    )


def _cpu_stats(block: Cpu | None) -> CpuStats | None:
    if block is None:
        return None
    return CpuStats(timestamps.parse(block.time), block.usage_nano_cores, block.usage_core_nano_seconds)


def _memory_stats(block: Memory | None) -> MemoryStats | None:
    if block is None:
        return None
    return MemoryStats(timestamps.parse(block.time), block.working_set_bytes, block.usage_bytes, block.rss_bytes)


def _disk_stats(block: Disk | None) -> DiskStats | None:
    return None if block is None else DiskStats(timestamps.parse(block.time), block.used_bytes)


def _node(entry: object) -> Node:
    memory = _node_memory(member(entry, "memory"))
    return Node(text(member(entry, "nodeName")), _cpu(member(entry, "cpu")), memory)


def _pod(entry: object) -> Pod:
    ref = member(entry, "podRef")
    return Pod(
        pod_ref=PodRef(*(text(member(ref, key)) or "" for key in ("name", "namespace", "uid"))),
        start_time=text(member(entry, "startTime")),
        containers=[
            _container(container) for container in islice(items(member(entry, "containers")), CONTAINERS_LIMIT + 1)
        ],
        cpu=_cpu(member(entry, "cpu")),
        memory=_memory(member(entry, "memory")),
        ephemeral_storage=_disk(member(entry, "ephemeral-storage")),
    )


def _container(entry: object) -> Container:
    name = member(entry, "name")
    if not isinstance(entry, dict) or (name and text(name) is None):
        return UnreadableContainer(cpu=_cpu(UNREADABLE), memory=_memory(UNREADABLE), rootfs=_disk(UNREADABLE))
    return Container(
        name=text(name) or "",
        start_time=text(member(entry, "startTime")),
        cpu=_cpu(member(entry, "cpu")),
        memory=_memory(member(entry, "memory")),
        rootfs=_disk(member(entry, "rootfs")),
    )


def _cpu(block: object) -> Cpu | None:
    if block is None:
        return None
    return Cpu(_time(block), _integer(block, "usageNanoCores"), _integer(block, "usageCoreNanoSeconds"))


def _memory(block: object) -> Memory | None:
    if block is None:
        return None
    keys = ("workingSetBytes", "usageBytes", "rssBytes")
    return Memory(_time(block), *(_integer(block, key) for key in keys))


def _node_memory(block: object) -> NodeMemory | None:
    if block is None:
        return None
    return NodeMemory(_integer(block, "availableBytes"), _integer(block, "workingSetBytes"))


def _disk(block: object) -> Disk | None:
    return None if block is None else Disk(_time(block), _integer(block, "usedBytes"))


def _time(block: object) -> str | None:
    return text(member(block, "time"))


def _integer(block: object, key: str) -> int | None:
    """The integer at ``key``; unreadable too when the block is no object at all."""
    return integer(member(block, key)) if isinstance(block, dict) else UNREADABLE
