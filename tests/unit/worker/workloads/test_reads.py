"""Reading workloads and their pods from a cluster."""

import pytest

from devicemanager.clock import SystemClock
from devicemanager.demo.cluster.access import Rule
from devicemanager.demo.cluster.objects import Grant, InstanceSpec
from devicemanager.demo.cluster.stand_in import WORKER_USER
from devicemanager.errors import FetchError
from devicemanager.model.allocation import Mode
from devicemanager.model.usage import Resources
from devicemanager.wire.workload_objects import WorkloadObject
from devicemanager.worker.cluster import ClusterClient
from devicemanager.worker.workloads.instance.workload import INSTANCE
from devicemanager.worker.workloads.reads import WorkloadReads
from devicemanager.worker.workloads.workload import Located
from tests.cluster.stand_in import StandInCluster
from tests.e2e.toy.workload import LABEL, TOY


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
async def test_all_are_listed_in_pages(
    cluster: ClusterClient, stand_in_cluster: StandInCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("devicemanager.worker.reflector.PAGE_ITEMS", 3)
    for number in range(7):
        stand_in_cluster.add_instance(InstanceSpec("team-a", f"web-{number}", "node-a"))
    async with WorkloadReads(INSTANCE, cluster, SystemClock()) as reads:
        sources, pods = await reads.all(None, deadline_s=5)

    assert set(sources) == set(pods) == {("team-a", f"web-{number}") for number in range(7)}
    assert len(stand_in_cluster.requests.matching("pods", verb="list")) == 3


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
        _, of_all = await reads.all("play", deadline_s=5)

    assert not isinstance(of_one, FetchError)
    assert [pod.name for pod in of_one] == ["robot-0", "robot-1"]
    assert of_another == ()
    assert {name: len(pods) for name, pods in of_all.items()} == {("play", "robot"): 2, ("play", "train"): 1}
