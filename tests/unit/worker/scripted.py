"""An API server and device managers in this process, for tests in virtual time: each answers after a set while."""

import asyncio
import gc
import json
from collections.abc import AsyncIterator, Mapping, Set
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from typing_extensions import override

from devicemanager.clock import Clock
from devicemanager.demo.cluster import objects
from devicemanager.demo.cluster.figures import pod_metrics, stats_summary
from devicemanager.demo.cluster.objects import InstanceSpec
from devicemanager.errors import FetchError
from devicemanager.model.usage import SourceState
from devicemanager.transport.failures import within
from devicemanager.transport.messages import Received
from devicemanager.wire import snapshot
from devicemanager.worker.cluster import BODY_LIMIT_BYTES, Cluster
from devicemanager.worker.device_manager_pods import DeviceManager, Place
from devicemanager.worker.device_managers import DeviceManagers, SnapshotRead
from devicemanager.worker.kubelet import NodeRead, ProxiedKubelets
from devicemanager.worker.metrics_server import MetricsServer
from devicemanager.worker.read import WorkloadReader
from devicemanager.worker.sources import AGES, Ages, Sources
from devicemanager.worker.watch_stream import WatchEvent
from devicemanager.worker.workloads.instance.workload import INSTANCE
from devicemanager.worker.workloads.reads import WorkloadReads
from tests.timing import START, LoopClock
from tests.unit.worker.conftest import card, snapshot_document

NOT_FOUND = FetchError(
    SourceState.NOT_SERVED, "HTTP 404: not found", status=404, reason="NotFound", object_name="web"
)
NO_SUCH_API = FetchError(SourceState.NOT_SERVED, "HTTP 404: 404 page not found", status=404)

INSTANCE_UID = "11111111-0000-0000-0000-000000000001"
POD_UID = "22222222-0000-0000-0000-000000000002"


@dataclass
class Script:
    """What one peer does: answers with a document, or fails, after a while."""

    document: object
    takes_s: float = 0.02
    asked: list[float] = field(default_factory=list)
    queries: list[Mapping[str, str]] = field(default_factory=list)
    uncached: object = None
    """What it answers where no cache may, if that differs."""


class ScriptedCluster(Cluster):
    """Answers by path. A path it does not know is a page not found."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.scripts: dict[str, Script] = {}

    def on(self, path: str, document: object, takes_s: float = 0.02) -> Script:
        """Sets what a path answers."""
        self.scripts[path] = Script(document, takes_s)
        return self.scripts[path]

    @override
    async def fetch(
        self,
        path: str,
        params: Mapping[str, str] | None = None,
        *,
        deadline_s: float = 10.0,
        limit_bytes: int = BODY_LIMIT_BYTES,
    ) -> Received:
        script = self.scripts.get(path, Script(NO_SUCH_API))
        script.asked.append(asyncio.get_running_loop().time())
        async with within(deadline_s):
            await asyncio.sleep(script.takes_s)
        script.queries.append(dict(params or {}))
        document = script.document
        if script.uncached is not None and not script.queries[-1]:
            document = script.uncached
        if isinstance(document, FetchError):
            raise document
        return Received(200, json.dumps(document).encode(), self.clock.monotonic(), date=self.clock.now())

    @override
    async def get(
        self,
        path: str,
        params: Mapping[str, str] | None = None,
        *,
        deadline_s: float = 10.0,
        limit_bytes: int = BODY_LIMIT_BYTES,
    ) -> bytes:
        return (await self.fetch(path, params, deadline_s=deadline_s, limit_bytes=limit_bytes)).body

    @override
    async def post(self, path: str, body: bytes, *, deadline_s: float = 10.0) -> bytes:
        raise NotImplementedError

    @override
    def watch(
        self, path: str, params: Mapping[str, str] | None = None, *, resource_version: str
    ) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent]]:
        raise NotImplementedError


class ScriptedDeviceManagers(DeviceManagers):
    """Answers by node and manufacturer."""

    def __init__(self, cluster: ScriptedCluster) -> None:
        super().__init__(cluster, None, cluster.clock, namespace="gpustack-system")
        self._by_clock = cluster.clock
        self.scripts: dict[Place, Script] = {}
        self.there: Set[DeviceManager] = frozenset()

    def on(self, place: Place, document: object, takes_s: float = 0.02) -> Script:
        """Sets what a device manager answers."""
        self.scripts[place] = Script(document, takes_s)
        return self.scripts[place]

    @override
    def answering(self, place: Place) -> Set[DeviceManager]:
        return frozenset(self.there)

    @override
    async def read(self, place: Place) -> SnapshotRead:
        script = self.scripts.get(place, Script(FetchError(SourceState.NOT_SERVED, "none is ready")))
        script.asked.append(asyncio.get_running_loop().time())
        async with within(3.0):
            await asyncio.sleep(script.takes_s)
        if isinstance(script.document, FetchError):
            raise script.document
        body = json.dumps(script.document).encode()
        received = Received(200, body, self._by_clock.monotonic(), age_s=1)
        return SnapshotRead(snapshot.parse(body), received.without_body(), held_bytes=len(body))


@dataclass
class World:
    """A reader and everything behind it."""

    cluster: ScriptedCluster
    device_managers: ScriptedDeviceManagers
    sources: Sources
    reader: WorkloadReader

    def add(self, spec: InstanceSpec, instance_uid: str = INSTANCE_UID, pod_uid: str = POD_UID) -> dict[str, Any]:
        """An Instance with its pod, its kubelet's and metrics.k8s.io's figures, and its cards; returns the pod."""
        now = START  # fixtures run before virtual time begins, at START
        created = now - timedelta(hours=1)
        pod = objects.instance_pod(spec, instance_uid, pod_uid, created, "10.42.0.1")
        base = f"/namespaces/{spec.namespace}"
        self.cluster.on(
            f"/apis/worker.gpustack.ai/v1alpha1{base}/instances/{spec.name}",
            objects.instance(spec, instance_uid, created),
        )
        self.cluster.on(f"/api/v1{base}/pods/{spec.name}", pod)
        self.cluster.on(kubelet_path(spec.node or ""), stats_summary(spec.node or "", [pod], now))
        self.cluster.on(f"/apis/metrics.k8s.io/v1beta1{base}/pods/{spec.name}", pod_metrics(pod, now))
        for manufacturer in {grant.manufacturer for grant in spec.grants}:
            cards = [card(grant.id) for grant in spec.grants if grant.manufacturer == manufacturer]
            document = snapshot_document(*cards, manufacturer=manufacturer, timestamp=now.isoformat())
            self.device_managers.on((spec.node or "", manufacturer), document)
        return pod


def summaries_held() -> int:
    """Summaries of kubelets that somebody refers to, in this process."""
    gc.collect()  # what nobody refers to any more but itself
    return sum(isinstance(each, NodeRead) for each in gc.get_objects())


def kubelet_path(node: str) -> str:
    """Where a node's summary is read."""
    return f"/api/v1/nodes/{node}/proxy/stats/summary"


@asynccontextmanager
async def world(ages: Ages = AGES) -> AsyncIterator[World]:
    """An empty one, in the loop's own time."""
    clock = LoopClock()
    cluster = ScriptedCluster(clock)
    managers = ScriptedDeviceManagers(cluster)
    async with (
        WorkloadReads(INSTANCE, cluster, clock) as reads,
        Sources(ProxiedKubelets(cluster), MetricsServer(cluster), managers, clock, ages) as sources,
    ):
        yield World(cluster, managers, sources, WorkloadReader(reads, sources, clock))
