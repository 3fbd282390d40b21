"""A node's summary through the API server's node proxy."""

import asyncio
import json
from dataclasses import replace
from datetime import timedelta

import pytest

from devicemanager.clock import SystemClock
from devicemanager.demo.cluster.objects import InstanceSpec
from devicemanager.errors import FetchError
from devicemanager.model.usage import PodReading, SourceFailure, SourceState
from devicemanager.transport.failures import attempt
from devicemanager.transport.messages import Received
from devicemanager.wire import kubelet_summary, pods
from devicemanager.wire.pods import Pod
from devicemanager.worker import kubelet
from devicemanager.worker.cluster import ClusterClient
from devicemanager.worker.kubelet import NodeRead, ProxiedKubelets
from tests.cluster.faults import Fault, Trouble
from tests.cluster.stand_in import StandInCluster
from tests.timing import FakeClock
from tests.unit.worker.scripted import kubelet_path, world


@pytest.mark.asyncio
async def test_a_pod_is_found_in_its_nodes_summary(
    cluster: ClusterClient, stand_in_cluster: StandInCluster
) -> None:
    stand_in_cluster.add_node("node-a")
    for namespace, name in (("team-a", "web"), ("team-b", "web"), ("team-a", "web-0")):
        stand_in_cluster.add_instance(InstanceSpec(namespace, name, "node-a"))
    pod = pods.parse(await cluster.get("/api/v1/namespaces/team-a/pods/web"))

    read = await ProxiedKubelets(cluster).read("node-a")

    reading = read.reading(pod, SystemClock())
    assert isinstance(reading, PodReading)
    assert isinstance(reading.usage.cpu_nanocores, int)
    assert reading.age_s is not None
    assert 0 <= reading.age_s < 60
    [request] = stand_in_cluster.requests.matching("nodes/proxy")
    assert request.path == "/api/v1/nodes/node-a/proxy/stats/summary"


@pytest.mark.asyncio
async def test_a_pod_that_the_kubelet_does_not_carry(
    cluster: ClusterClient, stand_in_cluster: StandInCluster
) -> None:
    stand_in_cluster.add_node("node-a")
    stand_in_cluster.add_instance(InstanceSpec("team-a", "web", "node-a"))
    pod = pods.parse(await cluster.get("/api/v1/namespaces/team-a/pods/web"))

    with stand_in_cluster.faults.on("kubelet/node-a", Fault(Trouble.EARLIER_POD, pod=("team-a", "web"))):
        read = await ProxiedKubelets(cluster).read("node-a")

    reading = read.reading(pod, SystemClock())
    assert reading == SourceFailure(SourceState.UNKNOWN_POD, "the kubelet has no figures of this pod")


@pytest.mark.asyncio
async def test_a_summary_larger_than_sixteen_mib_is_refused(
    cluster: ClusterClient, stand_in_cluster: StandInCluster
) -> None:
    stand_in_cluster.add_node("node-a")
    kubelets = ProxiedKubelets(cluster)

    with stand_in_cluster.faults.on("kubelet/node-a", Fault(Trouble.HUGE, size_bytes=2 * 1024 * 1024)):
        assert len((await kubelets.read("node-a")).summary) == 0
    with (
        stand_in_cluster.faults.on("kubelet/node-a", Fault(Trouble.HUGE, size_bytes=17 * 1024 * 1024)),
        pytest.raises(FetchError, match="longer than 16777216 bytes") as caught,
    ):
        await kubelets.read("node-a")

    assert caught.value.state is SourceState.INVALID


@pytest.mark.parametrize("node", ["../pods", "node-a/proxy/exec", "", "node-a?x=1", "NODE"])
@pytest.mark.asyncio
async def test_a_node_that_is_no_name_is_never_asked_for(
    cluster: ClusterClient, stand_in_cluster: StandInCluster, node: str
) -> None:
    with pytest.raises(FetchError, match="not a Kubernetes name"):
        await ProxiedKubelets(cluster).read(node)

    assert stand_in_cluster.requests.entries == []


@pytest.mark.asyncio
async def test_a_missing_right_is_said_with_the_resource(
    cluster: ClusterClient, stand_in_cluster: StandInCluster
) -> None:
    stand_in_cluster.add_node("node-a")
    stand_in_cluster.access.rules.clear()

    with pytest.raises(FetchError, match="nodes") as caught:
        await ProxiedKubelets(cluster).read("node-a")

    assert caught.value.state is SourceState.FORBIDDEN


@pytest.mark.asyncio
@pytest.mark.looptime
async def test_kubelets_that_hang_take_up_a_bounded_number_of_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubelet, "PROXIED_AT_ONCE", 2)
    async with world() as here:
        for node in ("hangs-1", "hangs-2", "hangs-3"):
            here.cluster.on(kubelet_path(node), {}, takes_s=1e6)
        here.cluster.on(kubelet_path("well"), {"node": {}, "pods": []})
        kubelets = ProxiedKubelets(here.cluster)
        async with asyncio.TaskGroup() as tasks:
            reads = [tasks.create_task(attempt(kubelets.read(f"hangs-{number}"))) for number in (1, 2, 3)]

        assert [read.result().state for read in reads] == [SourceState.TIMEOUT] * 3  # type: ignore[union-attr]
        assert asyncio.get_running_loop().time() == pytest.approx(4)
        assert [len(here.cluster.scripts[kubelet_path(f"hangs-{number}")].asked) for number in (1, 2, 3)] == [
            1,
            1,
            0,
        ]
        assert len((await kubelets.read("well")).summary) == 0


def test_whether_a_summary_is_older_than_its_pods_is_told_without_reading_their_figures(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is asked of every pod of a node for each list, in one step."""
    clock = FakeClock()
    refs = [{"podRef": {"namespace": "team-a", "name": name, "uid": name}} for name in ("web", "db")]
    summary = kubelet_summary.decode(json.dumps({"node": {}, "pods": refs}).encode())
    kept = NodeRead(summary, Received(200, b"", clock.monotonic(), date=clock.now()))
    clock.advance(2.0)
    monkeypatch.setattr(kubelet_summary, "_pod_stats", None)
    web, new = (Pod("team-a", name, name, created_at=clock.now()) for name in ("web", "new"))
    assert not kept.predates(web, clock)
    assert kept.predates(new, clock)
    assert not kept.predates(replace(new, created_at=clock.now() - timedelta(minutes=1)), clock)
