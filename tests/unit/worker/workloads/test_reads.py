"""Reading workloads and their pods from a cluster."""

import asyncio

import pytest

from devicemanager.clock import SystemClock
from devicemanager.demo.cluster import objects
from devicemanager.demo.cluster.access import Rule
from devicemanager.demo.cluster.objects import Grant, InstanceSpec
from devicemanager.demo.cluster.stand_in import WORKER_USER
from devicemanager.errors import FetchError
from devicemanager.model.allocation import Mode
from devicemanager.model.usage import Resources
from devicemanager.serving.budget import WORKER, split
from devicemanager.serving.limits import KIB, MIB
from devicemanager.transport import body_memory
from devicemanager.transport.body_memory import BodyMemory
from devicemanager.wire.workload_objects import WorkloadObject
from devicemanager.worker.cluster import ClusterClient
from devicemanager.worker.workloads.instance.workload import INSTANCE, PART_OF_LABEL
from devicemanager.worker.workloads.reads import WorkloadReads
from devicemanager.worker.workloads.workload import Located
from tests.cluster.stand_in import StandInCluster
from tests.e2e.toy.workload import LABEL, TOY
from tests.timing import START, until


def add_pod(cluster: StandInCluster, spec: InstanceSpec, part_of: str) -> None:
    """A pod without an Instance, whatever its label says."""
    cluster.store.put("pods", objects.instance_pod(spec, part_of, cluster.make_uid(), START, "10.42.0.1"))


@pytest.mark.asyncio
async def test_both_are_read_from_a_cluster(cluster: ClusterClient, stand_in_cluster: StandInCluster) -> None:
    grants = [Grant("nvidia", "GPU-1", index=2, mode=Mode.SHARED)]
    uids = stand_in_cluster.add_instance(InstanceSpec("team-a", "web", "node-a", grants))
    async with WorkloadReads(INSTANCE, cluster, SystemClock()) as reads:
        source = await reads.source(("team-a", "web"), deadline_s=5).outcome()
        pods = await reads.pods(("team-a", "web"), deadline_s=5).outcome()
        none = await reads.pods(("team-a", "db"), deadline_s=5).outcome()
        missing = await reads.source(("team-a", "db"), deadline_s=5).outcome()

    assert isinstance(source, WorkloadObject)
    assert not isinstance(pods, FetchError)
    assert none == ()
    assert isinstance(missing, FetchError)
    assert (missing.status, missing.reason) == (404, "NotFound")

    found = INSTANCE.locate(source, pods)
    assert isinstance(found, Located)
    assert (found.source.uid, found.pod.uid) == (uids.instance, uids.pod)
    assert [(card.id, card.index, card.mode) for card in found.allocation.cards] == [("GPU-1", 2, Mode.SHARED)]
    assert found.pod.resources.limits == Resources(4000, 8192, 20480)
    assert found.pod.resources.requests == Resources(2000, 4096, 10240)


@pytest.mark.asyncio
async def test_peers_that_hold_all_the_memory_they_may_keep_no_instance_from_being_read(
    cluster: ClusterClient, stand_in_cluster: StandInCluster
) -> None:
    stand_in_cluster.add_instance(InstanceSpec("team-a", "web", "node-a"))
    smallest = split(WORKER, 226 * MIB).documents
    assert smallest is not None
    bodies = BodyMemory(smallest.arriving_bytes)

    async def hold_all_there_is() -> None:
        with bodies.peers.holding():
            for _ in range(128):  # 8 MiB
                await body_memory.take(64 * KIB)
            await asyncio.Event().wait()

    async with (
        WorkloadReads(INSTANCE, cluster, SystemClock(), bodies=bodies) as reads,
        asyncio.TaskGroup() as tasks,
    ):
        hostile = [tasks.create_task(hold_all_there_is()) for _ in range(100)]
        await until(lambda: bodies.held_bytes > 8 * MIB)
        source = await reads.source(("team-a", "web"), deadline_s=5).outcome()
        pods = await reads.pods(("team-a", "web"), deadline_s=5).outcome()
        listed = await reads.all(None, deadline_s=5)
        for task in hostile:
            task.cancel()

    assert isinstance(source, WorkloadObject)
    assert not isinstance(pods, FetchError)
    assert len(pods) == len(listed.items) == 1


@pytest.mark.asyncio
async def test_all_are_listed_in_pages(
    cluster: ClusterClient, stand_in_cluster: StandInCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("devicemanager.worker.pages.PAGE_ITEMS", 3)
    for number in range(7):
        stand_in_cluster.add_instance(InstanceSpec("team-a", f"web-{number}", "node-a"))
    async with WorkloadReads(INSTANCE, cluster, SystemClock()) as reads:
        listed = await reads.all(None, deadline_s=5)
        pods = await reads.pods_of_many(None, listed.items, deadline_s=5)

    everyone = {("team-a", f"web-{number}") for number in range(7)}
    assert {(each.namespace, each.name) for each in listed.items} == set(pods) == everyone
    assert listed.cut is None
    assert len(stand_in_cluster.requests.matching("pods", verb="list")) == 3


@pytest.mark.asyncio
async def test_pods_of_others_with_the_same_label_cost_nothing(
    cluster: ClusterClient, stand_in_cluster: StandInCluster
) -> None:
    stand_in_cluster.add_instance(InstanceSpec("team-a", "web", "node-a"))
    for number in range(1000):
        add_pod(stand_in_cluster, InstanceSpec("shop", f"cart-{number}", "node-a"), part_of=f"shop-{number % 7}")
    async with WorkloadReads(INSTANCE, cluster, SystemClock()) as reads:
        listed = await reads.all(None, deadline_s=5)
        pods = await reads.pods_of_many(None, listed.items, deadline_s=5)
        nobody = await reads.pods_of_many(None, [], deadline_s=5)

    assert set(pods) == {("team-a", "web")}
    assert nobody == {}
    [request] = stand_in_cluster.requests.matching("pods", verb="list")
    assert request.query["labelSelector"] == f"{PART_OF_LABEL} in ({listed.items[0].uid})"
    assert request.query["resourceVersion"] == "0"


@pytest.mark.asyncio
async def test_pods_of_many_are_asked_for_in_batches(
    cluster: ClusterClient, stand_in_cluster: StandInCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("devicemanager.worker.workloads.reads.BATCH", 3)
    for number in range(7):
        stand_in_cluster.add_instance(InstanceSpec("team-a", f"web-{number}", "node-a"))
    async with WorkloadReads(INSTANCE, cluster, SystemClock()) as reads:
        listed = await reads.all("team-a", deadline_s=5)
        pods = await reads.pods_of_many("team-a", listed.items, deadline_s=5)

    assert len(pods) == 7
    asked = stand_in_cluster.requests.matching("pods", verb="list")
    assert sorted(request.query["labelSelector"].count(",") + 1 for request in asked) == [1, 3, 3]
    assert {request.path for request in asked} == {"/api/v1/namespaces/team-a/pods"}


@pytest.mark.asyncio
async def test_pods_that_are_too_large_hide_no_others(
    cluster: ClusterClient, stand_in_cluster: StandInCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("devicemanager.worker.pages.PAGE_LIMIT_BYTES", 200_000)
    for name in ("web", "db"):
        stand_in_cluster.add_instance(InstanceSpec("team-a", name, "node-a"))
    greedy = stand_in_cluster.add_instance(InstanceSpec("team-b", "greedy", "node-a"))
    huge = InstanceSpec("team-b", "huge", "node-a", annotation="x" * 300_000)
    add_pod(stand_in_cluster, huge, part_of=greedy.instance)
    async with WorkloadReads(INSTANCE, cluster, SystemClock()) as reads:
        listed = await reads.all(None, deadline_s=5)
        pods = await reads.pods_of_many(None, listed.items, deadline_s=5)

    assert {
        name: [pod.name for pod in found] for name, found in pods.items() if not isinstance(found, FetchError)
    } == {
        ("team-a", "web"): ["web"],
        ("team-a", "db"): ["db"],
        ("team-b", "greedy"): ["greedy"],
    }


@pytest.mark.asyncio
async def test_more_pods_with_the_same_label_than_are_listed_hide_no_others(
    cluster: ClusterClient, stand_in_cluster: StandInCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("devicemanager.worker.pages.LIST_LIMIT_ITEMS", 3)
    web = stand_in_cluster.add_instance(InstanceSpec("team-a", "web", "node-a"))
    for number in range(5):
        add_pod(stand_in_cluster, InstanceSpec("team-a", f"a-stranger-{number}", "node-a"), part_of=web.instance)
    stand_in_cluster.add_instance(InstanceSpec("team-a", "db", "node-a"))
    async with WorkloadReads(INSTANCE, cluster, SystemClock()) as reads:
        listed = await reads.all(None, deadline_s=5)
        pods = await reads.pods_of_many(None, listed.items, deadline_s=5)

    assert {
        name: [pod.name for pod in found] for name, found in pods.items() if not isinstance(found, FetchError)
    } == {("team-a", "web"): ["web"], ("team-a", "db"): ["db"]}


@pytest.mark.asyncio
async def test_pods_that_a_label_names_are_found_for_one_and_for_all(
    cluster: ClusterClient, stand_in_cluster: StandInCluster
) -> None:
    for pod, toy in (("robot-0", "robot"), ("robot-1", "robot"), ("train-0", "train")):
        stand_in_cluster.add_instance(InstanceSpec("play", pod, "node-a", labels={LABEL: toy}))
    stand_in_cluster.grant(Rule(WORKER_USER, ("list",), ("",), ("configmaps",)))
    async with WorkloadReads(TOY, cluster, SystemClock()) as reads:
        of_one = await reads.pods(("play", "robot"), deadline_s=5).outcome()
        of_another = await reads.pods(("other", "robot"), deadline_s=5).outcome()
        sources = [WorkloadObject("play", toy, f"uid-{toy}") for toy in ("robot", "train", "lost")]
        of_all = await reads.pods_of_many("play", sources, deadline_s=5)

    assert not isinstance(of_one, FetchError)
    assert [pod.name for pod in of_one] == ["robot-0", "robot-1"]
    assert of_another == ()
    assert {name: len(pods) for name, pods in of_all.items() if not isinstance(pods, FetchError)} == {
        ("play", "robot"): 2,
        ("play", "train"): 1,
    }
