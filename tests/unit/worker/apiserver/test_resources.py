"""Reading what was asked for: outcomes, and who shares what."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio
from typing_extensions import override

from devicemanager.model.usage import WorkloadUsage
from devicemanager.worker.apiserver.attributes import parse_attributes
from devicemanager.worker.apiserver.in_flight import InFlightLimiter
from devicemanager.worker.apiserver.negotiation import Form, Shape
from devicemanager.worker.apiserver.parameters import ListParameters, ReadParameters, list_parameters
from devicemanager.worker.apiserver.rendering import Renderer
from devicemanager.worker.apiserver.resources import ResourceHandler
from devicemanager.worker.apiserver.status import StatusError
from devicemanager.worker.outcomes import DeadlineExceeded, Unavailable
from devicemanager.worker.slices import SLICE_S
from devicemanager.worker.workloads.instance.workload import INSTANCE
from tests.timing import FakeClock, until
from tests.unit.worker.apiserver.api_server import GROUPS, MadeUpReader, usage

pytestmark = pytest.mark.asyncio

PREFIX = f"/apis/{GROUPS[0]}/v1/namespaces/team-a/instancemetrics"
ONE = parse_attributes("GET", f"{PREFIX}/web", {})
MANY = parse_attributes("GET", PREFIX, {})
PLAIN = ReadParameters(Form(), None)
PINNED = {"fieldSelector": "metadata.name=web"}


def of_list(query: dict[str, str] | None = None) -> ListParameters:
    return list_parameters(query or {}, "")


class Server:
    def __init__(self) -> None:
        self.reader = MadeUpReader()
        self.observed: list[WorkloadUsage] = []
        self.resources = ResourceHandler(
            self.reader, Renderer(GROUPS[0], INSTANCE), InFlightLimiter(), FakeClock(), self.observed.extend
        )


@pytest_asyncio.fixture
async def server() -> AsyncIterator[Server]:
    opened = Server()
    async with opened.resources:
        yield opened


async def refused(coroutine: object) -> tuple[int, str]:
    with pytest.raises(StatusError) as error:
        await coroutine  # type: ignore[misc]
    return error.value.code, error.value.message


async def test_a_list_that_cannot_be_had(server: Server) -> None:
    for query in ({}, {"timeout": "3s"}):
        server.reader.list_result = Unavailable("Instances cannot be listed")
        assert await refused(server.resources.list_(MANY, of_list(query))) == (503, "Instances cannot be listed")
        server.reader.list_result = DeadlineExceeded("too slow")
        assert await refused(server.resources.list_(MANY, of_list(query))) == (504, "Timeout: too slow")


async def test_one_named_instance_without_figures_still_has_its_row(server: Server) -> None:
    attributes = parse_attributes("GET", PREFIX, PINNED)
    server.reader.outcome = Unavailable("not scheduled")
    server.reader.add(usage("other"), replace(usage("web"), sample=None))
    reply = await server.resources.list_(attributes, of_list(PINNED))
    (item,) = json.loads(reply.body)["items"]
    assert item["metadata"]["name"] == "web"
    assert "sample" not in item
    assert [one.name for one in server.reader.measured] == ["web"]


async def test_a_list_reads_only_what_its_selectors_and_its_page_take(server: Server) -> None:
    server.reader.add(*(usage(name) for name in "abcde"))
    query = {"labelSelector": "app in (b,c,d)", "limit": "2"}
    for deadline in ({}, {"timeout": "3s"}):
        server.reader.measured.clear()
        first = json.loads((await server.resources.list_(MANY, of_list(query | deadline))).body)["metadata"]
        assert first["remainingItemCount"] == 1
        assert [one.name for one in server.reader.measured] == ["b", "c"]
        await server.resources.list_(MANY, of_list(query | deadline | {"continue": first["continue"]}))
        assert [one.name for one in server.reader.measured] == ["b", "c", "d"]


async def test_different_lists_under_way_are_not_shared(server: Server) -> None:
    server.reader.add(usage("a"), usage("b"))
    server.reader.hold = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        lists = [
            tasks.create_task(server.resources.list_(MANY, of_list({"labelSelector": f"app={name}"})))
            for name in "ab"
        ]
        await until(lambda: len(server.reader.lists) == 2)
        server.reader.hold.set()
    names = [[item["metadata"]["name"] for item in json.loads(one.result().body)["items"]] for one in lists]
    assert names == [["a"], ["b"]]


async def test_lists_under_way_are_shared_and_nothing_is_kept(server: Server) -> None:
    server.reader.add(usage())
    server.reader.hold = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        lists = [tasks.create_task(server.resources.list_(MANY, of_list())) for _ in range(3)]
        await until(lambda: server.reader.lists == ["team-a"])
        server.reader.hold.set()
    assert {task.result().body for task in lists} == {lists[0].result().body}
    await server.resources.list_(MANY, of_list())
    assert server.reader.lists == ["team-a", "team-a"]


async def test_a_shared_read_shares_its_bytes_and_is_counted_once(server: Server) -> None:
    server.reader.add(usage())
    server.reader.hold = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        readers = [tasks.create_task(server.resources.get(ONE, PLAIN)) for _ in range(3)]
        table = tasks.create_task(server.resources.get(ONE, ReadParameters(Form(Shape.TABLE), None)))
        await until(lambda: server.reader.reads == [("team-a", "web")])
        server.reader.hold.set()
    assert len({id(task.result().body) for task in readers}) == 1
    assert table.result().body != readers[0].result().body
    assert len(server.observed) == 1


async def test_a_caller_in_a_hurry_reads_alone(server: Server) -> None:
    server.reader.add(usage())
    server.reader.hold = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(server.resources.get(ONE, PLAIN))
        tasks.create_task(server.resources.get(ONE, ReadParameters(Form(), 3.0)))
        await until(lambda: len(server.reader.reads) == 2)
        assert sorted(server.reader.deadlines, key=str) == [3.0, None]
        server.reader.hold.set()


@pytest.mark.looptime
async def test_no_reader_waits_for_ever(server: Server) -> None:
    server.reader.hold = asyncio.Event()
    code, message = await refused(server.resources.get(ONE, PLAIN))
    assert code == 504
    assert message.startswith("Timeout: ")
    assert asyncio.get_running_loop().time() == pytest.approx(25)


class SteppingClock(FakeClock):
    """A millisecond passes whenever somebody asks."""

    @override
    def monotonic(self) -> float:
        self.advance(0.001)
        return super().monotonic()


@pytest.mark.parametrize("accept", ["", "application/json;as=Table;v=v1;g=meta.k8s.io"])
async def test_others_get_their_turn_while_a_long_list_is_made_into_bytes(accept: str) -> None:
    reader, clock, turns = MadeUpReader(), SteppingClock(), 0
    for number in range(400):
        reader.add(usage(f"web-{number:03}"))
    handler = ResourceHandler(reader, Renderer(GROUPS[0], INSTANCE), InFlightLimiter(), clock)
    async with handler, asyncio.TaskGroup() as tasks:
        listed = tasks.create_task(handler.list_(MANY, list_parameters({}, accept)))
        while not listed.done():
            await asyncio.sleep(0)
            turns += 1

    assert len(json.loads(listed.result().body)["rows" if accept else "items"]) == 400
    assert turns >= 400 * 0.001 / (SLICE_S + 0.002)  # the clock is asked once before and once after each slice
