"""The kubelet's ``/stats/summary``: the largest document the worker reads.

It is split into its pods where kubelets begin one, each of which stays JSON until its figures are asked for: so a
summary takes as much memory as it came with, and nothing that a peer sends takes long at once. Typed decoding of a
pod, to the few keys that are needed, costs an eighth of reading everything, so it comes first. It refuses the pod
for one field of the wrong type; only then the slower way is taken, in which only the malformed field is absent. A
summary that is not written as kubelets write it is read in the slower way as a whole.

Longer than 300 lines: both ways read the same keys, and are changed together.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice, starmap
from typing import Final, TypeAlias

import msgspec

from devicemanager.errors import DocumentError, ExcessError
from devicemanager.model.pod_stats import UNREADABLE, ContainerStats, CpuStats, DiskStats, MemoryStats, PodStats
from devicemanager.rules import kubelet
from devicemanager.wire import bounds, timestamps
from devicemanager.wire.json_values import integer, items, load, member, members, text
from devicemanager.wire.kubelet_summary_document import (
    Container,
    Cpu,
    Disk,
    Memory,
    Node,
    NodeMemory,
    Pod,
    PodRef,
    UnreadableContainer,
)
from devicemanager.wire.memory_of import size_in_steps
from devicemanager.wire.steps import Steps, at_once

_KIND: Final = "kubelet summary"

_Identity: TypeAlias = tuple[str, str, str]
"""A pod's namespace, name and UID, as its kubelet has them."""

_Entry: TypeAlias = bytes | Pod
"""A pod as it came, or what could be read of it."""

PODS_LIMIT: Final = 2000
"""Entries of one summary: four times the pods of a large node."""

ENTRIES_LIMIT: Final = 8
"""Entries of one pod that are compared. A kubelet that restarts a pod lists two or three for a while."""

CONTAINERS_LIMIT: Final = 64
"""Containers read of one pod. More cost that pod what is added up over them, and no other pod anything: whoever may
make pods must not be able to hide a node's."""

POD_BYTES: Final = 256 * 1024
"""A longer pod has no figures: 64 containers with every block take 70 KiB. To read one takes some milliseconds."""

REFERENCE_BYTES: Final = 4096
"""A longer ``podRef`` is none: a name has 253 characters at most, and as text it is kept beside the JSON."""

LENIENT_BYTES: Final = 3 * 1024 * 1024
"""The longest summary that is read in the slower way: as text it takes up to four times as much, and twice."""


_POD_BEGINS: Final = b'{"podRef":'
"""Where kubelets begin a pod. No text within valid JSON looks so: its quotes would be escaped."""

_PODS_BEGIN: Final = b'"pods":['
_PODS_END: Final = b"]}"


class _Envelope(msgspec.Struct, gc=False):
    """A summary without its pods."""

    node: msgspec.Raw = msgspec.Raw(b"null")


class _Reference(msgspec.Struct, gc=False, rename="camel"):
    """A pod, of which only the identity is looked at, once its length is known."""

    pod_ref: msgspec.Raw = msgspec.Raw(b"null")


_ENVELOPE: Final = msgspec.json.Decoder(_Envelope)
_REFERENCE: Final = msgspec.json.Decoder(_Reference)
_POD_REF: Final = msgspec.json.Decoder(PodRef | None)
_NODE: Final = msgspec.json.Decoder(Node | None)
_POD: Final = msgspec.json.Decoder(Pod)

_UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What decoding raises where a field has not its type, or the text is no JSON as kubelets write it."""


class Summary:
    """One node's summary. Immutable once it is decoded; pods are turned into values only when asked for.

    Attributes:
        node_name: As the kubelet calls its node; None where it does not say.
        node_cpu_time: The time of the node's own CPU block, on the node's clock; None where it gives none.
        node_memory_bytes: What the node has; None where the kubelet does not say.
        held_bytes: Memory that it takes.
    """

    __slots__ = ("_by_pod", "held_bytes", "node_cpu_time", "node_memory_bytes", "node_name")

    def __init__(self, node: Node | None, by_pod: Mapping[_Identity, Sequence[_Entry]], held_bytes: int) -> None:
        node = node or Node()
        self.held_bytes = held_bytes
        self.node_name: str | None = node.node_name or None
        self.node_cpu_time: datetime | None = timestamps.parse(node.cpu.time) if node.cpu is not None else None
        self.node_memory_bytes: int | None = _memory_capacity(node.memory)
        self._by_pod = by_pod

    def __len__(self) -> int:
        return len(self._by_pod)

    @property
    def pods(self) -> Iterator[PodStats]:
        """Every pod with an identity, in the kubelet's order; of entries with the same one the newest."""
        return starmap(_newest, self._by_pod.items())

    def lists(self, namespace: str, name: str, uid: str) -> bool:
        """Whether :meth:`pod` has an entry; to ask costs nothing."""
        return (namespace, name, uid) in self._by_pod

    def pod(self, namespace: str, name: str, uid: str) -> PodStats | None:
        """The newest entry of exactly this pod; None when the kubelet does not carry it.

        Args:
            uid: One of those under which the kubelet may list it (``Pod.kubelet_uids``).
        """
        identity = (namespace, name, uid)
        entries = self._by_pod.get(identity)
        return None if entries is None else _newest(identity, entries)


def decode(body: bytes) -> Summary:
    """The summary in a kubelet's answer.

    Raises:
        DocumentError: Not JSON, or not an object.
        ExcessError: It holds more than the pods of any node.
    """
    return at_once(decode_in_steps(body))


def decode_in_steps(body: bytes) -> Steps[Summary]:
    """The same in steps, of which the longest is the search for the pods: 1 ms for each MiB."""
    yield from bounds.SUMMARY.check_in_steps(body, _KIND)
    body = body.strip(b" \t\r\n")
    split = _split(body)
    yield
    if split is None:
        return (yield from decode_lenient_in_steps(body))
    node, pods = split
    _check_pods(len(pods))
    by_pod: dict[_Identity, list[_Entry]] = {}
    pods.reverse()
    while pods:
        text = _POD_BEGINS + pods.pop()
        try:
            _add(by_pod, _read_reference(_REFERENCE.decode(text).pod_ref), text)
        except _UNREADABLE:
            if len(body) <= LENIENT_BYTES:
                return (yield from decode_lenient_in_steps(body))
            pod = _read(text)
            _add(by_pod, None if pod is None else pod.pod_ref, text)
        yield
    return Summary(node, by_pod, (yield from size_in_steps(by_pod)))


def _split(body: bytes) -> tuple[Node | None, list[bytes]] | None:
    """The node, and the pods behind their beginnings; None where the body is not as kubelets write it."""
    head, *pods = body.split(_POD_BEGINS, PODS_LIMIT + 1)
    if not pods or len(head) > POD_BYTES or not head.endswith(_PODS_BEGIN):
        return None
    if not pods[-1].endswith(_PODS_END) or not all(piece.endswith(b",") for piece in pods[:-1]):
        return None
    try:
        envelope = _ENVELOPE.decode(head + _PODS_END)
    except _UNREADABLE:
        return None
    last = pods.pop().removesuffix(_PODS_END)
    return _read_node(envelope.node), [*(piece[:-1] for piece in pods), last]


def decode_lenient_in_steps(body: bytes) -> Steps[Summary]:
    """The summary, in which a malformed field is absent. Takes fifteen times as long.

    Raises:
        DocumentError: Not JSON, or not an object.
        ExcessError: It holds too much to be read in this way.
    """
    if len(body) > LENIENT_BYTES:
        raise ExcessError(f"{_KIND}: not as kubelets write it, and more than {LENIENT_BYTES} bytes")
    yield from bounds.LENIENT_SUMMARY.check_in_steps(body, _KIND)
    node: Node | None = None
    by_pod: dict[_Identity, list[_Entry]] = {}
    count = 0
    for key, value in members(body, _KIND, "pods"):
        if key == "node":
            node = _node(value)
        elif key == "pods":
            count += 1
            _check_pods(count)
            pod = _pod(value)
            _add(by_pod, pod.pod_ref, pod)
        yield
    return Summary(node, by_pod, (yield from size_in_steps(by_pod)))


def _read_node(raw: msgspec.Raw) -> Node | None:
    """What can be read of the node; nothing where it holds more than any."""
    try:
        return _NODE.decode(raw) if len(raw) <= POD_BYTES else None
    except _UNREADABLE:
        return _node(_load(raw))


def _read_reference(raw: msgspec.Raw) -> PodRef | None:
    return _POD_REF.decode(raw) if len(raw) <= REFERENCE_BYTES else None


def _read(entry: _Entry) -> Pod | None:
    """The figures of an entry; None where it holds more than any pod, or is no JSON."""
    if isinstance(entry, Pod):
        return entry
    if len(entry) > POD_BYTES:
        return None
    try:
        return _POD.decode(entry)
    except _UNREADABLE:
        # What is no pod, and stands behind it, costs it nothing.
        pod = next(items(_load(b"[" + entry + b"]")), None)
        return None if pod is None else _pod(pod)


def _load(raw: msgspec.Raw | bytes) -> object:
    """The value; None where it is no JSON, or holds more than a pod or node."""
    try:
        return load(bytes(raw), _KIND, bounds.POD) if len(raw) <= POD_BYTES else None
    except DocumentError:
        return None


def _add(by_pod: dict[_Identity, list[_Entry]], ref: PodRef | None, entry: _Entry) -> None:
    if ref is not None and ref.uid:
        by_pod.setdefault((ref.namespace, ref.name, ref.uid), []).append(entry)


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


def _newest(identity: _Identity, entries: Sequence[_Entry]) -> PodStats:
    if len(entries) > ENTRIES_LIMIT:  # to compare thousands would take seconds
        return PodStats(*identity, containers=None)
    found = [
        PodStats(*identity, containers=None) if (pod := _read(each)) is None else _pod_stats(pod)
        for each in entries
    ]
    return found[0] if len(found) == 1 else kubelet.newest(found)


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
        return _UNREADABLE_CONTAINER
    return Container(
        name=text(name) or "",
        start_time=text(member(entry, "startTime")),
        cpu=_cpu(member(entry, "cpu")),
        memory=_memory(member(entry, "memory")),
        rootfs=_disk(member(entry, "rootfs")),
    )


def _cpu(block: object) -> Cpu | None:
    if not isinstance(block, dict):
        return None if block is None else _UNREADABLE_CPU
    return Cpu(_time(block), _integer(block, "usageNanoCores"), _integer(block, "usageCoreNanoSeconds"))


def _memory(block: object) -> Memory | None:
    if not isinstance(block, dict):
        return None if block is None else _UNREADABLE_MEMORY
    keys = ("workingSetBytes", "usageBytes", "rssBytes")
    return Memory(_time(block), *(_integer(block, key) for key in keys))


def _node_memory(block: object) -> NodeMemory | None:
    if block is None:
        return None
    return NodeMemory(_integer(block, "availableBytes"), _integer(block, "workingSetBytes"))


def _disk(block: object) -> Disk | None:
    if not isinstance(block, dict):
        return None if block is None else _UNREADABLE_DISK
    return Disk(_time(block), _integer(block, "usedBytes"))


def _time(block: object) -> str | None:
    return text(member(block, "time"))


def _integer(block: object, key: str) -> int | None:
    """The integer at ``key``; unreadable too when the block is no object at all."""
    return integer(member(block, key)) if isinstance(block, dict) else UNREADABLE


# One of each for all, as a peer may send a hundred thousand.
_UNREADABLE_CPU: Final = Cpu(None, UNREADABLE, UNREADABLE)
_UNREADABLE_MEMORY: Final = Memory(None, UNREADABLE, UNREADABLE, UNREADABLE)
_UNREADABLE_DISK: Final = Disk(None, UNREADABLE)
_UNREADABLE_CONTAINER: Final = UnreadableContainer(
    cpu=_UNREADABLE_CPU, memory=_UNREADABLE_MEMORY, rootfs=_UNREADABLE_DISK
)
