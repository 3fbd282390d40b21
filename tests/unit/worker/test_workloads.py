"""Which pod is an Instance's own."""

from dataclasses import replace

import pytest

from devicemanager.clock import SystemClock
from devicemanager.demo.cluster.objects import ALLOCATION_ANNOTATION, Grant, InstanceSpec, allocation_annotation
from devicemanager.demo.cluster.stand_in import StandInCluster
from devicemanager.errors import FetchError
from devicemanager.model.allocation import Mode
from devicemanager.model.usage import Resources
from devicemanager.wire.instances import Instance
from devicemanager.wire.pods import Pod
from devicemanager.worker.cluster import ClusterClient
from devicemanager.worker.workloads import PART_OF_LABEL, Missing, Workload, Workloads, workload

INSTANCE = Instance("team-a", "web", "i-1", node_name="node-a")
POD = Pod("team-a", "web", "p-1", labels={PART_OF_LABEL: "i-1"}, node_name="node-a")


def test_an_instance_and_its_own_pod() -> None:
    found = workload(INSTANCE, POD)

    assert isinstance(found, Workload)
    assert (found.node_name, found.allocation.cards, found.allocation.problem) == ("node-a", (), None)


def test_the_pod_says_where_it_runs() -> None:
    found = workload(INSTANCE, replace(POD, node_name="node-b"))

    assert isinstance(found, Workload)
    assert found.node_name == "node-b"


def test_a_pod_on_another_node_than_the_instances_shows_no_cards() -> None:
    """S06: a tenant that may make pods could otherwise ask for the cards of any node."""
    written = allocation_annotation([Grant("nvidia", "GPU-1")])
    pod = replace(POD, annotations={ALLOCATION_ANNOTATION: written})

    there, elsewhere = workload(INSTANCE, pod), workload(INSTANCE, replace(pod, node_name="node-b"))

    assert isinstance(there, Workload)
    assert [card.id for card in there.allocation.cards] == ["GPU-1"]
    assert isinstance(elsewhere, Workload)
    assert elsewhere.allocation.cards == ()
    assert "node-b" in (elsewhere.allocation.problem or "")


@pytest.mark.parametrize(
    ("instance", "pod", "said"),
    [
        (replace(INSTANCE, node_name=None), POD, "not scheduled"),
        (replace(INSTANCE, node_name=None), None, "not scheduled"),
        (INSTANCE, replace(POD, node_name=None), "not scheduled"),
        (INSTANCE, None, "no backing pod"),
        (INSTANCE, replace(POD, labels={}), "earlier incarnation"),
        (INSTANCE, replace(POD, labels={PART_OF_LABEL: "i-0"}), "earlier incarnation"),
        (INSTANCE, replace(POD, labels={PART_OF_LABEL: "i-1 "}), "earlier incarnation"),
        (INSTANCE, replace(POD, labels={PART_OF_LABEL: ""}), "earlier incarnation"),
    ],
)
def test_what_is_missing_is_said(instance: Instance, pod: Pod | None, said: str) -> None:
    found = workload(instance, pod)

    assert isinstance(found, Missing)
    assert said in found.message
    assert "team-a/web" in found.message
    assert "nil" not in found.message
    assert "None" not in found.message


@pytest.mark.asyncio
async def test_both_are_read_from_a_cluster(cluster: ClusterClient, stand_in_cluster: StandInCluster) -> None:
    grants = [Grant("nvidia", "GPU-1", index=2, mode=Mode.SHARED)]
    uids = stand_in_cluster.add_instance(InstanceSpec("team-a", "web", "node-a", grants))
    async with Workloads(cluster, SystemClock()) as workloads:
        instance = await workloads.instance(("team-a", "web"), deadline_s=5).outcome()
        pod = await workloads.pod(("team-a", "web"), deadline_s=5).outcome()
        none = await workloads.pod(("team-a", "db"), deadline_s=5).outcome()
        missing = await workloads.instance(("team-a", "db"), deadline_s=5).outcome()

    assert isinstance(instance, Instance)
    assert isinstance(pod, Pod)
    assert none is None
    assert isinstance(missing, FetchError)
    assert (missing.status, missing.reason) == (404, "NotFound")

    found = workload(instance, pod)
    assert isinstance(found, Workload)
    assert (found.instance.uid, found.pod.uid) == (uids.instance, uids.pod)
    assert [(card.id, card.index, card.mode) for card in found.allocation.cards] == [("GPU-1", 2, Mode.SHARED)]
    assert found.pod.limits == Resources(4000, 8192, 20480)
    assert found.pod.requests == Resources(2000, 4096, 10240)


@pytest.mark.asyncio
async def test_all_are_listed_in_pages(
    cluster: ClusterClient, stand_in_cluster: StandInCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("devicemanager.worker.reflector.PAGE_ITEMS", 3)
    for number in range(7):
        stand_in_cluster.add_instance(InstanceSpec("team-a", f"web-{number}", "node-a"))
    async with Workloads(cluster, SystemClock()) as workloads:
        instances, pods, version = await workloads.all(None, deadline_s=5)

    assert set(instances) == set(pods) == {("team-a", f"web-{number}") for number in range(7)}
    assert version
    assert len(stand_in_cluster.requests.matching("pods", verb="list")) == 3
