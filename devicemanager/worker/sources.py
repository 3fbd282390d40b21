"""The three kinds of source: kubelets, metrics.k8s.io and device managers, and how their answers become one sample.

One read of a peer is shared by all who need it. A fault of a peer is logged when it begins, changes and ends, and
not for each read.
"""

import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self, TypeVar

from devicemanager.clock import Clock
from devicemanager.errors import FetchError
from devicemanager.model.accelerator import CollectorState
from devicemanager.model.usage import PeerSnapshot, SourceFailure, SourceState, WorkloadUsage
from devicemanager.rules import freshness, retries
from devicemanager.rules.merge import (
    KUBELET,
    METRICS_SERVER,
    PodOutcome,
    SnapshotOutcome,
    device_manager,
    merge,
    said_of,
)
from devicemanager.transport import peer_time
from devicemanager.transport.body_memory import BodyMemory
from devicemanager.transport.document_limits import WORKER_DOCUMENTS, DocumentLimits
from devicemanager.transport.failures import attempt
from devicemanager.wire.pods import Pod
from devicemanager.worker.device_manager_pods import Place
from devicemanager.worker.device_managers import DeviceManagers, SnapshotRead
from devicemanager.worker.kubelet import KubeletSource, NodeRead
from devicemanager.worker.metrics_server import MetricsRead, MetricsServer
from devicemanager.worker.single_flight import Keeping, Pending, SharedReads
from devicemanager.worker.slices import Slices
from devicemanager.worker.source_health import SourceHealth
from devicemanager.worker.workloads.reads import Name
from devicemanager.worker.workloads.workload import Located

_BYTES_A_SECOND: Final = 256 * 1024
_LONGEST_KEPT_S: Final = 15.0
"""A snapshot of so many bytes is kept for a second, and one of 4 MiB for 15: what one peer costs us is bounded.
That of a node with 16 cards has 8 KiB."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ages:
    """Seconds for which an answer is shared with later callers; 0 is always fresh.

    Attributes:
        kubelet_s: A summary costs a kubelet up to a second, and its figures move every 10 to 15.
        snapshot_s: A snapshot costs next to nothing and is as old as it says.
    """

    kubelet_s: float = 15.0
    snapshot_s: float = 1.0


AGES: Final = Ages()


class Sources:
    """Shared reads of every source. To be entered before use.

    Attributes:
        kubelets: By node; begun with :meth:`begin_kubelet`.
        metrics: By the pod's namespace and name.
        snapshots: By node and manufacturer.
        slices: For putting many answers together, and for decoding them.
        health: How the peers answered.
    """

    def __init__(
        self,
        kubelets: KubeletSource,
        metrics_server: MetricsServer,
        device_managers: DeviceManagers,
        clock: Clock,
        ages: Ages = AGES,
        documents: DocumentLimits = WORKER_DOCUMENTS,
        slices: Slices | None = None,
        bodies: BodyMemory | None = None,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._kubelet_source = kubelets
        self._metrics_server = metrics_server
        self._device_managers = device_managers
        self._clock = clock
        self.health = SourceHealth(clock)
        self._resources = AsyncExitStack()
        self._jitter = jitter
        self._bodies = bodies or BodyMemory(documents.arriving_bytes)
        self.slices = slices or Slices(clock)
        self.kubelets: SharedReads[str, NodeRead] = SharedReads(
            self._read_kubelet,
            clock,
            max_age_s=ages.kubelet_s,
            keeping=Keeping(
                most_bytes=documents.summaries_bytes,
                size=lambda read: read.held_bytes,
                backoff_s=lambda node, error, failures: self._backoff_s(KUBELET, node, error, failures),
                answering=kubelets.answering,
            ),
        )
        self.metrics: SharedReads[Name, MetricsRead] = SharedReads(self._read_metrics, clock, max_age_s=0)
        self.snapshots: SharedReads[Place, SnapshotRead] = SharedReads(
            self._read_snapshot,
            clock,
            max_age_s=ages.snapshot_s,
            keeping=Keeping(
                most_bytes=documents.snapshots_bytes,
                size=lambda read: read.held_bytes,
                longer_s=lambda read: min(read.received.length // _BYTES_A_SECOND, _LONGEST_KEPT_S),
                backoff_s=lambda place, error, failures: self._backoff_s(
                    device_manager(place[1]), place[0], error, failures
                ),
                answering=device_managers.answering,
            ),
        )

    async def __aenter__(self) -> Self:
        for reads in (self.kubelets, self.metrics, self.snapshots):
            await self._resources.enter_async_context(reads)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._resources.aclose()

    def begin_kubelet(self, node: str, pods: Iterable[Pod], *, deadline_s: float) -> Pending[NodeRead]:
        """The node's summary, being read; a kept one that is older than one of these pods does not count."""
        self.kubelets.forget_if(node, lambda kept: any(kept.predates(pod, self._clock) for pod in pods))
        return self.kubelets.begin(node, deadline_s=deadline_s)

    async def _read_kubelet(self, node: str) -> NodeRead:
        return await self._noting(KUBELET, node, self._kubelet_source.read(node), self._fault_of_summary)

    async def _read_metrics(self, name: Name) -> MetricsRead:
        return await self._noting(METRICS_SERVER, None, self._metrics_server.read(name), lambda _: None)

    async def _read_snapshot(self, place: Place) -> SnapshotRead:
        node, manufacturer = place
        read = self._device_managers.read(place)
        return await self._noting(device_manager(manufacturer), node, read, self._fault_of)

    async def _noting(
        self, source: str, node: str | None, read: Awaitable[T], fault_of: Callable[[T], SourceFailure | None]
    ) -> T:
        with self._bodies.peers.holding(), peer_time.measured():
            outcome = await attempt(read)
        if isinstance(outcome, FetchError):
            if (source, outcome.state) != (METRICS_SERVER, SourceState.NOT_SERVED):  # a cluster may have none
                # That it has not measured one pod yet says nothing of a source.
                well = outcome.state is SourceState.NOT_YET
                self.health.note(source, node, None if well else failure(outcome))
            raise outcome
        self.health.note(source, node, fault_of(outcome))
        return outcome

    def _backoff_s(self, source: str, node: str, error: FetchError, failures: int) -> float:
        if not error.by_peer:
            return 0.0
        backoff_s = retries.backoff_after_s(error.state, failures, self._jitter())
        if backoff_s > 0:
            self.health.backed_off(source, node, failure(error), failures=failures, backoff_s=backoff_s)
        return backoff_s

    def _fault_of_summary(self, read: NodeRead) -> SourceFailure | None:
        if not read.is_stale(self._clock):
            return None
        return SourceFailure(SourceState.STALE, "its figures are several minutes old by its own clock")

    def _fault_of(self, read: SnapshotRead) -> SourceFailure | None:
        found: PeerSnapshot = read.snapshot
        if found.state is not CollectorState.OK:
            return SourceFailure(found.state, said_of(found.state), found.detail)
        if freshness.is_stale(read.reading(self._clock).age_s, found.period_s):
            return SourceFailure(SourceState.STALE, "its snapshot is too old to be shown")
        return None


def assemble(
    located: Located,
    clock: Clock,
    *,
    kubelet: PodOutcome,
    metrics_server: PodOutcome | None = None,
    snapshots: Mapping[str, SnapshotRead | FetchError],
    asked_at_s: float,
) -> WorkloadUsage:
    """The answer for one workload from what its sources said.

    Args:
        asked_at_s: When the snapshots were asked for, on the monotonic clock.
    """
    outcomes: dict[str, SnapshotOutcome] = {
        manufacturer: failure(read) if isinstance(read, FetchError) else read.reading(clock, asked_at_s)
        for manufacturer, read in snapshots.items()
    }
    source, pod = located.source, located.pod
    return WorkloadUsage(
        namespace=source.namespace,
        name=source.name,
        uid=source.uid,
        created_at=source.created_at,
        labels=source.labels,
        node_name=located.node_name,
        sample=merge(
            now=clock.now(),
            pod_uid=pod.uid,
            allocation=located.allocation,
            kubelet=kubelet,
            metrics_server=metrics_server,
            device_managers=outcomes,
            requests=pod.resources.requests,
            limits=pod.resources.limits,
            declared_limits=pod.resources.declared_limits,
        ),
    )


def of_pod(read: NodeRead | MetricsRead | FetchError, located: Located, clock: Clock) -> PodOutcome:
    """The figures of one pod now, from a summary or metrics.k8s.io."""
    return failure(read) if isinstance(read, FetchError) else read.reading(located.pod, clock)


def failure(error: FetchError) -> SourceFailure:
    """The failure that an answer reports."""
    return SourceFailure(error.state, error.message, error.detail)
