"""All Instances at once, in virtual time: what is asked how often, and what a node that does not answer costs."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
import pytest_asyncio

from devicemanager.demo.cluster import objects
from devicemanager.demo.cluster.figures import stats_summary
from devicemanager.demo.cluster.objects import Grant, InstanceSpec, kubernetes_time
from devicemanager.errors import FetchError
from devicemanager.model.accelerator import Reason
from devicemanager.model.usage import SourceState
from devicemanager.wire.workload_objects import WorkloadObject
from devicemanager.worker import listing, pages
from devicemanager.worker.outcomes import DeadlineExceeded, ListOutcome, ListResult, Unavailable
from devicemanager.worker.slices import SLICE_S, Slices
from devicemanager.worker.sources import Ages
from tests.timing import START, FakeClock
from tests.unit.worker.conftest import card, snapshot_document
from tests.unit.worker.scripted import NO_SUCH_API, World, kubelet_path, summaries_held, world

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]

INSTANCES = "/apis/worker.gpustack.ai/v1alpha1/instances"
PODS = "/api/v1/pods"


@pytest_asyncio.fixture
async def here() -> AsyncIterator[World]:
    """Twelve Instances with a card each on three nodes, one without a pod, one not scheduled."""
    async with world() as here:
        fill(here, nodes=3, on_each=4)
        yield here


def fill(here: World, nodes: int, on_each: int) -> None:
    created = START - timedelta(hours=1)
    instances: list[dict[str, Any]] = []
    pods: list[dict[str, Any]] = []
    for number in range(nodes):
        node = f"node-{number}"
        mine = []
        for place in range(on_each):
            spec = InstanceSpec(f"team-{place}", f"web-{number}", node, [Grant("nvidia", f"GPU-{number}-{place}")])
            uid = f"{number:04}-{place:04}"
            instances.append(objects.instance(spec, f"i-{uid}", created))
            mine.append(objects.instance_pod(spec, f"i-{uid}", f"p-{uid}", created, "10.42.0.1"))
        pods += mine
        here.cluster.on(kubelet_path(node), stats_summary(node, mine, START))
        cards = [card(f"GPU-{number}-{place}") for place in range(on_each)]
        here.device_managers.on((node, "nvidia"), snapshot_document(*cards, timestamp=START.isoformat()))
    instances.append(objects.instance(InstanceSpec("team-9", "gone", "node-0"), "i-gone", created))
    instances.append(objects.instance(InstanceSpec("team-9", "new", None), "i-new", created))
    here.cluster.on(INSTANCES, {"metadata": {"resourceVersion": "77"}, "items": instances})
    here.cluster.on(PODS, {"metadata": {"resourceVersion": "78"}, "items": pods})


def listed(result: ListResult) -> ListOutcome:
    assert isinstance(result, ListOutcome), result
    return result


async def test_every_instance_has_its_row_in_order(here: World) -> None:
    found = listed(await here.reader.list())

    names = [(item.namespace, item.name) for item in found.items]
    assert len(names) == 14
    assert names == sorted(names)
    assert found.warnings == ()
    measured = [item for item in found.items if item.sample is not None]
    assert len(measured) == 12
    for item in measured:
        assert item.sample is not None
        assert not isinstance(item.sample.cpu_usage_nanocores, Reason)
        number, place = item.name.removeprefix("web-"), item.namespace.removeprefix("team-")
        assert [entry.id for entry in item.sample.accelerators] == [f"GPU-{number}-{place}"]


async def test_what_has_no_pod_has_a_row_and_a_reason(here: World) -> None:
    found = listed(await here.reader.list())

    assert dict(found.absences) == {
        "team-9/gone": "Instance team-9/gone has no backing pod",
        "team-9/new": "Instance team-9/new is not scheduled to a node",
    }
    assert [item.sample for item in found.items if item.namespace == "team-9"] == [None, None]


async def test_each_peer_is_asked_once(here: World) -> None:
    loop = asyncio.get_running_loop()

    await here.reader.list()

    assert {path: len(script.asked) for path, script in here.cluster.scripts.items()} == {
        INSTANCES: 1,
        PODS: 1,
        **{kubelet_path(f"node-{number}"): 1 for number in range(3)},
    }
    assert {len(script.asked) for script in here.device_managers.scripts.values()} == {1}
    assert loop.time() == pytest.approx(0.06)


async def test_one_namespace_asks_only_for_that(here: World) -> None:
    instances = here.cluster.scripts[INSTANCES].document
    pods = here.cluster.scripts[PODS].document
    assert isinstance(instances, dict)
    assert isinstance(pods, dict)
    here.cluster.on(
        "/apis/worker.gpustack.ai/v1alpha1/namespaces/team-1/instances",
        {"items": [item for item in instances["items"] if item["metadata"]["namespace"] == "team-1"]},
    )
    here.cluster.on(
        "/api/v1/namespaces/team-1/pods",
        {"items": [item for item in pods["items"] if item["metadata"]["namespace"] == "team-1"]},
    )

    found = listed(await here.reader.list("team-1"))

    assert {item.namespace for item in found.items} == {"team-1"}
    assert len(found.items) == 3
    assert here.cluster.scripts[INSTANCES].asked == []


async def test_nothing_is_read_of_those_that_are_not_chosen(here: World) -> None:
    here.cluster.on(kubelet_path("node-0"), FetchError(SourceState.UNREACHABLE, "HTTP 500", status=500))

    found = listed(await here.reader.list(choose=lambda there: [one for one in there if one.node_name == "node-1"]))

    assert {item.node_name for item in found.items} == {"node-1"}
    assert len(found.items) == 4
    assert (found.warnings, dict(found.absences)) == ((), {})
    asked = {path for path, script in here.cluster.scripts.items() if script.asked}
    assert asked == {INSTANCES, PODS, kubelet_path("node-1")}
    assert [place for place, script in here.device_managers.scripts.items() if script.asked] == [
        ("node-1", "nvidia")
    ]


async def test_what_is_not_selected_is_not_read_and_others_get_their_turn_while_it_is_asked(here: World) -> None:
    clock, loop = FakeClock(), asyncio.get_running_loop()
    here.sources.slices = Slices(clock)
    turns_of_others: list[int] = []
    seen: list[int] = []

    def select(one: WorkloadObject) -> bool:
        seen.append(len(turns_of_others))
        loop.call_soon(turns_of_others.append, 1)
        clock.advance(SLICE_S)  # as hundreds of terms of a selector take
        return one.node_name == "node-1"

    found = listed(await here.reader.list(select=select, choose=lambda there: there[:2]))

    assert [item.node_name for item in found.items] == ["node-1", "node-1"]
    assert not here.cluster.scripts[kubelet_path("node-0")].asked
    assert seen == list(range(14))


@pytest.mark.parametrize("name", ["", "..", "../nodes", "team-a/pods", "UPPER"])
async def test_what_is_no_namespace_holds_nothing(here: World, name: str) -> None:
    assert listed(await here.reader.list(name)).items == ()
    assert here.cluster.scripts[INSTANCES].asked == []


async def test_a_node_that_does_not_answer_costs_its_rows_their_figures(here: World) -> None:
    here.cluster.scripts[kubelet_path("node-1")].takes_s = 1e6
    loop = asyncio.get_running_loop()

    found = listed(await here.reader.list())

    for item in found.items:
        if item.sample is not None:
            failed = isinstance(item.sample.cpu_usage_nanocores, Reason)
            assert failed is (item.node_name == "node-1")
            assert len(item.sample.accelerators) == 1
    assert found.warnings == ("node node-1: kubelet: timeout, no complete answer within 4 s",)
    assert loop.time() == pytest.approx(4.04)


async def test_a_device_manager_that_fails_costs_its_cards(here: World) -> None:
    here.device_managers.on(("node-2", "nvidia"), FetchError(SourceState.UNREACHABLE, "HTTP 500", status=500))

    found = listed(await here.reader.list())

    cards = {item.node_name: item.sample.accelerators for item in found.items if item.sample is not None}
    assert {len(entries) for entries in cards.values()} == {1}
    assert [node for node, (entry,) in cards.items() if not entry.figures.measured] == ["node-2"]
    assert found.warnings == ("node node-2: device-manager/nvidia: unreachable, HTTP 500",)


async def test_warnings_are_counted_past_the_first_twenty() -> None:
    async with world() as here:
        fill(here, nodes=30, on_each=1)
        for number in range(30):
            here.cluster.on(kubelet_path(f"node-{number}"), FetchError(SourceState.UNREACHABLE, "HTTP 500"))

        found = listed(await here.reader.list())

    assert len(found.warnings) == 21
    assert found.warnings[-1] == "and 10 more"


async def test_a_list_with_many_nodes_that_do_not_answer_meets_its_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listing, "PARALLEL_NODES", 8)
    async with world() as here:
        fill(here, nodes=60, on_each=1)
        for number in range(60):
            here.cluster.scripts[kubelet_path(f"node-{number}")].takes_s = 1e6
        loop = asyncio.get_running_loop()
        before = loop.time()

        found = listed(await here.reader.list())

        assert loop.time() - before == pytest.approx(10)
        asked = sum(len(here.cluster.scripts[kubelet_path(f"node-{number}")].asked) for number in range(60))
    assert len(found.items) == 62
    assert asked <= 24  # never more than eight at once, and nobody once the time is over


async def test_a_kept_summary_does_not_count_for_a_list_with_a_newer_pod(here: World) -> None:
    listed(await here.reader.list())
    await asyncio.sleep(5)
    recreated = await here.reader.list(choose=lambda there: [one for one in there if one.node_name == "node-1"])
    assert len(here.cluster.scripts[kubelet_path("node-1")].asked) == 1
    assert listed(recreated).warnings == ()

    pods = here.cluster.scripts[PODS].document
    assert isinstance(pods, dict)
    (first, *_) = [pod for pod in pods["items"] if pod["spec"]["nodeName"] == "node-1"]
    now = START + timedelta(seconds=asyncio.get_running_loop().time())
    first["metadata"] |= {"uid": "44444444-0000-0000-0000-000000000004", "creationTimestamp": kubernetes_time(now)}
    listed(await here.reader.list())

    assert len(here.cluster.scripts[kubelet_path("node-1")].asked) == 2
    assert len(here.cluster.scripts[kubelet_path("node-0")].asked) == 1


async def test_an_unhealthy_accelerator_is_a_warning(here: World) -> None:
    document = here.device_managers.scripts["node-1", "nvidia"].document
    assert isinstance(document, dict)
    ill = document["groups"][0]["accelerators"][0]
    ill |= {"unhealthy": True, "unhealthyReason": "double-bit ECC error"}

    found = listed(await here.reader.list())

    assert found.warnings == (f"node node-1: accelerator {ill['id']}: unhealthy (double-bit ECC error)",)


async def test_a_shorter_deadline_is_kept(here: World) -> None:
    here.cluster.scripts[kubelet_path("node-1")].takes_s = 1e6
    loop = asyncio.get_running_loop()

    found = listed(await here.reader.list(deadline_s=1))

    assert loop.time() == pytest.approx(1)
    assert len(found.items) == 14


@pytest.mark.parametrize("path", [INSTANCES, PODS])
async def test_what_cannot_be_listed_is_unavailable(here: World, path: str) -> None:
    here.cluster.on(path, FetchError(SourceState.FORBIDDEN, "HTTP 403: no", status=403))

    result = await here.reader.list()

    assert result == Unavailable("Instances cannot be listed: forbidden: HTTP 403: no")


async def test_without_the_custom_resource_it_is_unavailable(here: World) -> None:
    here.cluster.on(INSTANCES, NO_SUCH_API)

    assert isinstance(await here.reader.list(), Unavailable)


async def test_time_that_runs_out_while_listing(here: World) -> None:
    here.cluster.scripts[PODS].takes_s = 1e6

    assert isinstance(await here.reader.list(deadline_s=1), DeadlineExceeded)


async def test_a_list_that_is_cut_short_is_answered_and_says_so(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "LIST_LIMIT_ITEMS", 5)

    found = listed(await here.reader.list())

    assert len(found.items) == 5
    assert found.warnings == ("not all Instances are listed: more than 5 objects",)


async def test_an_object_that_cannot_be_read_costs_itself(here: World) -> None:
    instances = here.cluster.scripts[INSTANCES].document
    assert isinstance(instances, dict)
    instances["items"].append({"metadata": {"name": "no-namespace"}})
    instances["items"].append(7)

    assert len(listed(await here.reader.list()).items) == 14


async def test_no_summary_is_held_while_device_managers_are_awaited() -> None:
    """What is kept is counted; what a list held beside that was not, and may be 16 MiB a node."""
    async with world(Ages(kubelet_s=0)) as here:
        fill(here, nodes=3, on_each=4)
        for script in here.device_managers.scripts.values():
            script.takes_s = 2
        before = summaries_held()

        reading = asyncio.create_task(here.reader.list())
        await asyncio.sleep(1)

        assert [len(here.cluster.scripts[kubelet_path(f"node-{each}")].asked) for each in range(3)] == [1, 1, 1]
        assert summaries_held() == before
        assert all(item.sample for item in listed(await reading).items if item.namespace != "team-9")
