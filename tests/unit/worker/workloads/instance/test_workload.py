"""Which pod is an Instance's own."""

from dataclasses import replace

import pytest

from devicemanager.demo.cluster.objects import ALLOCATION_ANNOTATION, Grant, allocation_annotation
from devicemanager.wire.pods import Pod
from devicemanager.wire.workload_objects import WorkloadObject
from devicemanager.worker.workloads.instance.workload import INSTANCE, PART_OF_LABEL
from devicemanager.worker.workloads.workload import Located, NotLocated

WEB = WorkloadObject("team-a", "web", "i-1", node_name="node-a")
POD = Pod("team-a", "web", "p-1", labels={PART_OF_LABEL: "i-1"}, node_name="node-a")


def locate(source: WorkloadObject, pod: Pod | None) -> Located | NotLocated:
    return INSTANCE.locate(source, [] if pod is None else [pod])


def test_an_instance_and_its_own_pod() -> None:
    found = locate(WEB, POD)

    assert isinstance(found, Located)
    assert (found.node_name, found.allocation.cards, found.allocation.problem) == ("node-a", (), None)


def test_the_pod_says_where_it_runs() -> None:
    found = locate(WEB, replace(POD, node_name="node-b"))

    assert isinstance(found, Located)
    assert found.node_name == "node-b"


def test_a_pod_on_another_node_than_the_instances_shows_no_cards() -> None:
    """A tenant that may make pods could otherwise ask for the cards of any node."""
    written = allocation_annotation([Grant("nvidia", "GPU-1")])
    pod = replace(POD, annotations={ALLOCATION_ANNOTATION: written})

    there, elsewhere = locate(WEB, pod), locate(WEB, replace(pod, node_name="node-b"))

    assert isinstance(there, Located)
    assert [card.id for card in there.allocation.cards] == ["GPU-1"]
    assert isinstance(elsewhere, Located)
    assert elsewhere.allocation.cards == ()
    assert "node-b" in (elsewhere.allocation.problem or "")


@pytest.mark.parametrize(
    ("instance", "pod", "said"),
    [
        (replace(WEB, node_name=None), POD, "not scheduled"),
        (replace(WEB, node_name=None), None, "not scheduled"),
        (WEB, replace(POD, node_name=None), "not scheduled"),
        (WEB, None, "no backing pod"),
        (WEB, replace(POD, labels={}), "earlier incarnation"),
        (WEB, replace(POD, labels={PART_OF_LABEL: "i-0"}), "earlier incarnation"),
        (WEB, replace(POD, labels={PART_OF_LABEL: "i-1 "}), "earlier incarnation"),
        (WEB, replace(POD, labels={PART_OF_LABEL: ""}), "earlier incarnation"),
    ],
)
def test_what_is_missing_is_said(instance: WorkloadObject, pod: Pod | None, said: str) -> None:
    found = locate(instance, pod)

    assert isinstance(found, NotLocated)
    assert said in found.message
    assert "team-a/web" in found.message
    assert "nil" not in found.message
    assert "None" not in found.message
