"""The stand-in kubelet refuses and answers as a real one does."""

import ssl

import aiohttp
import pytest

from devicemanager.demo.cluster.access import Rule
from devicemanager.demo.cluster.objects import InstanceSpec
from devicemanager.demo.cluster.stand_in import ADMIN_TOKEN
from devicemanager.tls.certificates import self_signed
from tests.cluster.stand_in import StandInCluster

pytestmark = pytest.mark.asyncio


@pytest.mark.parametrize(
    ("path", "token", "status", "text"),
    [
        ("/stats/summary", None, 401, "Unauthorized"),
        ("/stats/summary", "nobody", 401, "Unauthorized"),
        ("/stats/summary", "other", 403, "Forbidden (user=other, verb=get, resource=nodes, subresource=stats)"),
        ("/pods", "reader", 403, "Forbidden (user=reader, verb=get, resource=nodes, subresource=proxy)"),
        ("/metrics", "reader", 403, "Forbidden (user=reader, verb=get, resource=nodes, subresource=metrics)"),
        ("/pods", "an administrator", 404, "404 page not found\n"),
    ],
)
async def test_refusals(
    stand_in_cluster: StandInCluster, path: str, token: str | None, status: int, text: str
) -> None:
    stand_in_cluster.add_node("node-a")
    stand_in_cluster.add_user("reader", "reader")
    stand_in_cluster.add_user("other", "other")
    stand_in_cluster.grant(Rule("reader", ("get",), ("",), ("nodes/stats",)))
    trusting = ssl.create_default_context(cafile=str(stand_in_cluster.ca_file))
    shown = ADMIN_TOKEN if token == "an administrator" else token
    headers = {} if shown is None else {"Authorization": f"Bearer {shown}"}
    async with stand_in_cluster.kubelet("node-a") as kubelet, aiohttp.ClientSession() as session:
        url = f"https://127.0.0.1:{kubelet.port}{path}"
        async with session.get(url, headers=headers, ssl=trusting) as answer:
            assert (answer.status, await answer.text()) == (status, text)


async def test_it_answers_for_its_own_node_and_says_in_the_node_where_it_listens(
    stand_in_cluster: StandInCluster,
) -> None:
    for node in ("node-a", "node-b"):
        stand_in_cluster.add_node(node)
        stand_in_cluster.add_instance(InstanceSpec("team-a", f"on-{node}", node))
    trusting = ssl.create_default_context(cafile=str(stand_in_cluster.ca_file))
    headers = {"Authorization": f"Bearer {ADMIN_TOKEN}"}
    async with stand_in_cluster.kubelet("node-b", "::1") as kubelet, aiohttp.ClientSession() as session:
        url = f"https://[::1]:{kubelet.port}/stats/summary"
        async with session.get(url, headers=headers, ssl=trusting) as answer:
            summary = await answer.json()
        status = (stand_in_cluster.store.get("nodes", "", "node-b") or {})["status"]

    assert summary["node"]["nodeName"] == "node-b"
    assert [pod["podRef"]["name"] for pod in summary["pods"]] == ["on-node-b"]
    assert {"type": "InternalIP", "address": "::1"} in status["addresses"]
    assert status["daemonEndpoints"] == {"kubeletEndpoint": {"Port": kubelet.port}}


async def test_it_may_show_a_self_signed_certificate(stand_in_cluster: StandInCluster) -> None:
    stand_in_cluster.add_node("node-a")
    trusting = ssl.create_default_context(cafile=str(stand_in_cluster.ca_file))
    async with (
        stand_in_cluster.kubelet("node-a", pair=self_signed(["127.0.0.1"])) as kubelet,
        aiohttp.ClientSession() as session,
    ):
        with pytest.raises(aiohttp.ClientConnectorCertificateError, match="self-signed"):
            await session.get(f"https://127.0.0.1:{kubelet.port}/stats/summary", ssl=trusting)
