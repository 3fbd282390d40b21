"""The log of requests and the faults of the cluster that tests use."""

import asyncio

import aiohttp
import pytest

from tests.cluster.client import Client
from tests.cluster.faults import Fault, Trouble
from tests.cluster.one_node import SUMMARY, WEB, WEB_METRICS


@pytest.mark.asyncio
async def test_requests_are_counted_and_waited_for(client: Client) -> None:
    client.cluster.add_instance(WEB)
    client.cluster.requests.clear()
    with client.cluster.faults.on("kubelet/node-a", Fault(Trouble.HELD)) as fault:
        async with asyncio.TaskGroup() as group:
            read = group.create_task(client.read(SUMMARY))
            (held,) = await client.cluster.requests.wait_for(1, "nodes/proxy")
            assert not read.done()
            fault.released.set()
    assert (held.verb, held.path, held.user) == ("get", SUMMARY, "demo-admin")
    assert (await read)[0] == 200


@pytest.mark.parametrize(("status", "reason"), [(500, "InternalError"), (403, "Forbidden"), (401, "Unauthorized")])
@pytest.mark.asyncio
async def test_an_error_may_happen_once(client: Client, status: int, reason: str) -> None:
    client.cluster.faults.switch_on("nodes", Fault(Trouble.ERROR, status=status), times=1)

    code, answer = await client.read("/api/v1/nodes")

    assert (code, answer["reason"]) == (status, reason)
    assert (await client.read("/api/v1/nodes"))[0] == 200


@pytest.mark.parametrize("trouble", [Trouble.HALF, Trouble.RESET])
@pytest.mark.asyncio
async def test_a_broken_answer_breaks(client: Client, trouble: Trouble) -> None:
    with client.cluster.faults.on("kubelet/node-a", Fault(trouble)), pytest.raises(aiohttp.ClientError):
        await client.read(SUMMARY)


@pytest.mark.asyncio
async def test_a_bomb_is_small_until_it_is_unpacked(client: Client) -> None:
    with client.cluster.faults.on("kubelet/node-a", Fault(Trouble.GZIP_BOMB, size_bytes=8 * 1024 * 1024)):
        async with client.get(SUMMARY) as answer:
            assert int(answer.headers["Content-Length"]) < 64 * 1024
            assert len(await answer.read()) == 8 * 1024 * 1024


@pytest.mark.asyncio
async def test_a_huge_answer_is_huge(client: Client) -> None:
    with client.cluster.faults.on("kubelet/node-a", Fault(Trouble.HUGE, size_bytes=8 * 1024 * 1024)):
        async with client.get(SUMMARY) as answer:
            assert len(await answer.read()) > 8 * 1024 * 1024


@pytest.mark.asyncio
async def test_a_web_page_is_no_json(client: Client) -> None:
    with client.cluster.faults.on("kubelet/node-a", Fault(Trouble.HTML)):
        async with client.get(SUMMARY) as answer:
            assert (answer.status, answer.content_type) == (200, "text/html")


@pytest.mark.asyncio
async def test_a_stale_kubelet_lags_behind_its_own_node(client: Client) -> None:
    client.cluster.add_instance(WEB)
    with client.cluster.faults.on("kubelet/node-a", Fault(Trouble.STALE)):
        _, summary = await client.read(SUMMARY)
    assert summary["pods"][0]["cpu"]["time"] < summary["node"]["cpu"]["time"]


@pytest.mark.parametrize("path", [SUMMARY, WEB_METRICS])
@pytest.mark.asyncio
async def test_an_absent_pod_is_absent_everywhere(client: Client, path: str) -> None:
    client.cluster.add_instance(WEB)
    fault = Fault(Trouble.ABSENT_POD, pod=("team-a", "web"))
    with client.cluster.faults.on("kubelet/node-a", fault), client.cluster.faults.on("pods.metrics.k8s.io", fault):
        _, answer = await client.read(path)
    assert answer.get("pods", []) == []
    assert answer.get("code") in {None, 404}


@pytest.mark.asyncio
async def test_an_earlier_pod_has_another_uid_and_an_older_entry(client: Client) -> None:
    uids = client.cluster.add_instance(WEB)
    fault = Fault(Trouble.EARLIER_POD, pod=("team-a", "web"))
    with client.cluster.faults.on("kubelet/node-a", fault), client.cluster.faults.on("pods.metrics.k8s.io", fault):
        _, summary = await client.read(SUMMARY)
        _, entry = await client.read(WEB_METRICS)
    _, pod = await client.read("/api/v1/namespaces/team-a/pods/web")
    assert summary["pods"][0]["podRef"]["uid"] != uids.pod
    assert entry["timestamp"] < pod["metadata"]["creationTimestamp"]


@pytest.mark.asyncio
async def test_a_recreated_pod_is_another_pod(client: Client) -> None:
    uids = client.cluster.add_instance(WEB)
    fresh = client.cluster.recreate_pod(WEB, uids.instance)
    _, pod = await client.read("/api/v1/namespaces/team-a/pods/web")
    assert pod["metadata"]["uid"] == fresh != uids.pod
