"""Reads a node's summary through the API server's node proxy.

:class:`KubeletSource` is the interface shared with ``direct_kubelets``.
"""

import asyncio
from collections.abc import Hashable, Set
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Protocol

from typing_extensions import override

from devicemanager.clock import Clock
from devicemanager.errors import FetchError, excerpt
from devicemanager.model.pod_stats import PodStats
from devicemanager.model.usage import PodReading, SourceFailure, SourceState
from devicemanager.rules import freshness
from devicemanager.rules import kubelet as rules
from devicemanager.rules.kubelet_blocks import NodeCapacity, is_stale
from devicemanager.transport.document_limits import BODY_BYTES
from devicemanager.transport.failures import within
from devicemanager.transport.messages import Received
from devicemanager.wire import kubelet_summary
from devicemanager.wire.kubelet_summary import Summary
from devicemanager.wire.pods import Pod
from devicemanager.worker.cluster import Cluster, object_path
from devicemanager.worker.decoding import Decoding

READ_DEADLINE_S: Final = 4.0

ASKED_AGAIN_AFTER_S: Final = 1.0
"""A younger summary is not asked for again because of one pod, however many ask for that pod."""

CLOCKS_DIFFER_BY: Final = timedelta(seconds=5)
"""How far the API server's clock, which says when a pod was created, may lie behind the node's."""

SUMMARY_LIMIT_BYTES: Final = BODY_BYTES
"""Ten times what 500 pods take."""


@dataclass(frozen=True, slots=True)
class NodeRead:
    """One node's summary, and when it came.

    Attributes:
        cpu_nanocores: What the node has, in billionths of a core; None where the Node was not read.
    """

    summary: Summary
    received: Received
    cpu_nanocores: int | None = None

    @property
    def held_bytes(self) -> int:
        """Memory that it takes while it is kept."""
        return self.summary.held_bytes

    def is_stale(self, clock: Clock) -> bool:
        """Whether the node's own figures were old when they came, by the kubelet's own clock."""
        measured_at = self.summary.node_cpu_time
        return measured_at is not None and is_stale(measured_at, self.received.answered_at(clock))

    def predates(self, pod: Pod, clock: Clock) -> bool:
        """Whether it lacks the pod, and may do so because the pod is newer. One that has just come does not."""
        held_s = clock.monotonic() - self.received.received_monotonic_s
        moments = [moment for moment in (pod.created_at, pod.started_at) if moment is not None]
        if held_s < ASKED_AGAIN_AFTER_S or not moments:
            return False
        if max(moments) <= self.received.answered_at(clock) - CLOCKS_DIFFER_BY:
            return False
        return not any(self.summary.lists(pod.namespace, pod.name, uid) for uid in pod.kubelet_uids)

    def reading(self, pod: Pod, clock: Clock) -> PodReading | SourceFailure:
        """The figures of this pod now; a failure if the summary lacks it."""
        stats = self._stats(pod)
        if stats is None:
            return SourceFailure(SourceState.UNKNOWN_POD, "the kubelet has no figures of this pod")
        usage = rules.pod_usage(
            stats,
            node_time=self.summary.node_cpu_time,
            answered_at=self.received.answered_at(clock),
            capacity=NodeCapacity(self.cpu_nanocores, self.summary.node_memory_bytes),
            own=pod.container_names,
            states=pod.containers,
        )
        if usage.is_stale:
            return SourceFailure(SourceState.STALE, "the kubelet's figures of this pod are several minutes old")
        age_s = freshness.age_s(
            timestamp=usage.measured_at,
            now=clock.now(),
            held_s=clock.monotonic() - self.received.received_monotonic_s,
            date=self.received.date,
        )
        return PodReading(usage, age_s)

    def _stats(self, pod: Pod) -> PodStats | None:
        listed = (self.summary.pod(pod.namespace, pod.name, uid) for uid in pod.kubelet_uids)
        return next(filter(None, listed), None)


PROXIED_AT_ONCE: Final = 512
"""Reads through the API server: where a zone is down, each hangs on a connection to it, which others need too."""


class AnotherNodeError(FetchError):
    """A kubelet answered as another node's."""


class KubeletSource(Protocol):
    """A way to a node's summary."""

    async def read(self, node: str) -> NodeRead:
        """The node's summary now. Raises FetchError."""
        ...

    def answering(self, node: str) -> Set[Hashable]:
        """Where the node's kubelet answers, as far as is known and may change; asked while it is in back-off."""
        ...


class ProxiedKubelets(KubeletSource):
    """Through ``nodes/proxy`` of the API server, which must be granted to us."""

    def __init__(self, cluster: Cluster, decoding: Decoding | None = None) -> None:
        self._cluster = cluster
        self._turns = asyncio.Semaphore(PROXIED_AT_ONCE)
        self._decoding = decoding or Decoding()

    @override
    def answering(self, node: str) -> Set[Hashable]:
        return frozenset()

    @override
    async def read(self, node: str) -> NodeRead:
        path = object_path("/api/v1/nodes", node) + "/proxy/stats/summary"
        async with within(READ_DEADLINE_S), self._turns:
            received = await self._cluster.fetch(path, deadline_s=READ_DEADLINE_S, limit_bytes=SUMMARY_LIMIT_BYTES)
        return await decoded(received, self._decoding, node)


async def decoded(received: Received, decoding: Decoding, node: str) -> NodeRead:
    """A node's summary from the bytes of a good answer. Raises FetchError, ``invalid``, where they are none."""
    summary = await decoding(kubelet_summary.decode_in_steps, received.body)
    if summary.node_name is not None and summary.node_name != node:
        raise AnotherNodeError(
            SourceState.INVALID,
            "it answers for another node",
            detail=repr(excerpt(summary.node_name, 64)),
            by_peer=True,
        )
    return NodeRead(summary, received.without_body())
