"""``devicemanager worker`` as a process whose peers, or whose tenants, want to do harm."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web

from devicemanager.demo.cluster.access import Rule
from devicemanager.demo.cluster.objects import SYSTEM_NAMESPACE, Grant, InstanceSpec
from devicemanager.worker.single_flight import NOT_ASKED
from tests.cluster.stand_in import StandInCluster
from tests.e2e.test_worker import Worker, started
from tests.unit.worker.apiserver.api_server import GROUPS
from tests.unit.worker.conftest import SERVER_NAME, DeviceManagerPeer, card, snapshot_document

pytestmark = pytest.mark.asyncio

GROUP = GROUPS[0]

OWN, FOREIGN = "GPU-own", "GPU-foreign"

Ask = Callable[[str], Awaitable[dict[str, Any]]]


@pytest_asyncio.fixture
async def honest(tmp_path: Path) -> AsyncIterator[DeviceManagerPeer]:
    async with device_manager(tmp_path / "honest") as peer:
        yield peer


@asynccontextmanager
async def device_manager(folder: Path) -> AsyncIterator[DeviceManagerPeer]:
    peer = DeviceManagerPeer(folder)
    peer.document = snapshot_document(
        card(OWN, pciBusId="0000:1b:00.0"), card(FOREIGN, memoryUsage=77777, pciBusId="0000:2b:00.0")
    )
    await peer.start()
    try:
        yield peer
    finally:
        await peer.stop()


@asynccontextmanager
async def worker_of(
    cluster: StandInCluster, peer: DeviceManagerPeer, folder: Path, *flags: str
) -> AsyncIterator[Ask]:
    """A worker that asks device managers as in production, and a user who asks the worker."""
    pair = folder / "client"
    peer.authority.client("worker").write(pair)
    (folder / "ca.crt").write_bytes(peer.authority.pem.certificate)
    cluster.add_user("viewer", "viewer")
    cluster.grant(Rule("viewer", ("get",), (GROUP,), ("instances/metrics",), namespace="default"))
    tls = [
        f"--device-manager-namespace={SYSTEM_NAMESPACE}",
        f"--device-manager-ca-file={folder / 'ca.crt'}",
        f"--device-manager-client-cert-dir={pair}",
        f"--device-manager-server-name={SERVER_NAME}",
    ]
    async with started(cluster, folder, GROUP, [*tls, *flags]) as worker:
        worker.port = (await worker.logged("server_listening"))["port"]
        await worker.ready()
        yield lambda name: sample(worker, name)


async def sample(worker: Worker, name: str) -> dict[str, Any]:
    answer = await worker.ask(f"/apis/{GROUP}/v1/namespaces/default/instances/{name}/metrics", "viewer")
    assert answer.status == 200, answer.body
    found = json.loads(answer.body)["sample"]
    assert isinstance(found, dict)
    return found


def said(found: dict[str, Any], source: str) -> tuple[str, str]:
    """State and message of one source."""
    (report,) = [report for report in found["sources"] if report["name"] == source]
    return report["state"], report.get("message", "")


def group(cards: str) -> bytes:
    return (
        b'{"timestamp":"2026-08-12T09:15:04Z","periodSeconds":15,"groups":[{"manufacturer":"nvidia","accelerators":['
        + cards.encode()
        + b"]}]}"
    )


def repeated(item: str, count: int) -> str:
    return ",".join([item] * count)


SLICE = '{"manufacturer":"nvidia","podUID":"u","container":"c","deviceID":"GPU-own"}'
SNAPSHOTS = {
    "empty cards": group(repeated("{}", (4 << 20) // 3 - 100)),
    "empty groups": b'{"groups":[' + repeated("{}", (4 << 20) // 3 - 100).encode() + b"]}",
    "few groups too many": b'{"groups":[' + repeated("{}", 65).encode() + b"]}",
    "slices": b'{"groups":[],"slices":{"schemaVersion":1,"usages":['
    + repeated(SLICE, (4 << 20) // len(SLICE) - 1000).encode()
    + b"]}}",
    "31,000 ordinary cards": group(
        ",".join(f'{{"id":"GPU-{number}","memoryUsage":1}}' for number in range(31_000))
    ),
    "one card too many": group(",".join(f'{{"id":"GPU-{number}"}}' for number in range(1025))),
    "numbers": b'{"groups":[],"x":[' + repeated("1", (2 << 20) - 100).encode() + b"]}",
    "deep": b'{"groups":' + b"[" * 1_000_000,
}


@pytest.mark.parametrize("kind", SNAPSHOTS)
async def test_a_snapshot_that_holds_too_much_is_invalid_and_costs_nothing_else(
    stand_in_cluster: StandInCluster, honest: DeviceManagerPeer, tmp_path: Path, kind: str
) -> None:
    """Counts are limited before anything is built of them."""
    assert len(SNAPSHOTS[kind]) <= 4 << 20
    hostile = DeviceManagerPeer(tmp_path / "hostile")
    hostile.authority = honest.authority
    bodies = [SNAPSHOTS[kind]]

    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(body=bodies[0], content_type="application/json")

    hostile.answer = answer
    await hostile.start()
    try:
        for node, name, peer in (("node-a", "attacked", hostile), ("node-b", "other", honest)):
            stand_in_cluster.add_node(node)
            stand_in_cluster.add_instance(InstanceSpec("default", name, node, [Grant("nvidia", OWN)]))
            stand_in_cluster.add_device_manager(node, "nvidia", "127.0.0.1", peer.port)
        async with worker_of(stand_in_cluster, honest, tmp_path, "--snapshot-max-age=60s") as ask:
            attacked, again, other = await ask("attacked"), await ask("attacked"), await ask("other")
    finally:
        await hostile.stop()

    state, message = said(attacked, "device-manager/nvidia")
    assert state == "invalid"
    assert message.startswith("its answer ")
    assert said(attacked, "kubelet")[0] == "ok"
    assert "cpuUsageNanoCores" in attacked
    (card,) = attacked["accelerators"]
    assert (card["id"], "memoryUsageMiB" in card) == (OWN, False)
    assert set(card["absent"].values()) == {"invalid_data"}
    assert said(other, "device-manager/nvidia")[0] == "ok"
    assert [entry["memoryUsageMiB"] for entry in other["accelerators"]] == [20480]
    # What holds too much is read once for all who ask while a good answer would be kept.
    assert said(again, "device-manager/nvidia") == (state, message + NOT_ASKED)
    assert len(hostile.requests) == 1


async def test_interim_answers_without_end_are_invalid_at_once(
    stand_in_cluster: StandInCluster, honest: DeviceManagerPeer, tmp_path: Path
) -> None:
    """``100 Continue`` for ever; the connection is given up, whatever the deadline."""
    given_up = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        transport = request.transport
        assert transport is not None
        while not transport.is_closing():
            if transport.get_write_buffer_size() < 1 << 20:
                transport.write(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000)
            await asyncio.sleep(0)
        given_up.set()
        return web.Response()

    honest.answer = answer
    furnish(stand_in_cluster, honest)
    async with worker_of(stand_in_cluster, honest, tmp_path) as ask:
        found = await ask("web")
        async with asyncio.timeout(20):
            await given_up.wait()

    state, message = said(found, "device-manager/nvidia")
    assert (state, "more than 8 interim answers" in message) == ("invalid", True)
    assert said(found, "kubelet")[0] == "ok"


async def test_a_few_interim_answers_are_passed_over(
    stand_in_cluster: StandInCluster, honest: DeviceManagerPeer, tmp_path: Path
) -> None:
    """What an honest peer or a proxy may send is no fault."""

    async def answer(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.write(b"HTTP/1.1 102 Processing\r\n\r\n" * 8)
        return await honest.snapshot(request)

    honest.answer = answer
    furnish(stand_in_cluster, honest)
    async with worker_of(stand_in_cluster, honest, tmp_path) as ask:
        found = await ask("web")

    assert said(found, "device-manager/nvidia")[0] == "ok"


EMPTY_POD = '{"podRef":{"namespace":"default","name":"web","uid":"u"},"containers":['
SUMMARIES = {
    "one pod of millions of containers": ('{"pods":[' + EMPTY_POD + repeated("{}", 5_000_000) + "]}]}").encode(),
    "millions of pods": ('{"pods":[' + repeated("{}", 5_000_000) + "]}").encode(),
    "pods that are none": ('{"pods":[' + repeated("1", 8_000_000) + "]}").encode(),
    "one pod too many": ('{"pods":[' + repeated("{}", 2001) + "]}").encode(),
    "deep": b'{"pods":' + b"[" * 16_000_000,
}


@pytest.mark.parametrize("kind", SUMMARIES)
async def test_a_summary_that_holds_too_much_is_invalid_and_costs_nothing_else(
    stand_in_cluster: StandInCluster,
    honest: DeviceManagerPeer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    """A compromised node's kubelet; the fallback and the cards of that node stay."""
    assert len(SUMMARIES[kind]) <= 16 << 20
    answers = web.Response(body=SUMMARIES[kind], content_type="application/json")
    monkeypatch.setattr(stand_in_cluster.kubelets, "summary", lambda *_: answers)
    furnish(stand_in_cluster, honest)
    async with worker_of(stand_in_cluster, honest, tmp_path) as ask:
        found = await ask("web")

    assert said(found, "kubelet")[0] == "invalid"
    assert said(found, "metrics.k8s.io")[0] == "ok"
    assert said(found, "device-manager/nvidia")[0] == "ok"
    assert "cpuUsageNanoCores" in found
    assert found["absent"]["rootfsUsedMiB"] == "invalid_data"


async def test_a_tenants_annotation_names_no_card_by_its_pci_address(
    stand_in_cluster: StandInCluster, honest: DeviceManagerPeer, tmp_path: Path
) -> None:
    """All addresses of a machine are guessed in a few hundred tries; only the vendor's id matches."""
    guessed = [Grant("nvidia", f"0000:{bus:02x}:00.0") for bus in range(256)]
    furnish(stand_in_cluster, honest, Grant("nvidia", OWN), *guessed)
    async with worker_of(stand_in_cluster, honest, tmp_path) as ask:
        found = await ask("web")

    measured = [entry["id"] for entry in found["accelerators"] if "memoryUsageMiB" in entry]
    assert measured == [OWN]
    assert FOREIGN not in json.dumps(found)
    assert "77777" not in json.dumps(found)


async def test_a_pod_on_a_node_that_its_tenant_chose_shows_no_cards_of_that_node(
    stand_in_cluster: StandInCluster, honest: DeviceManagerPeer, tmp_path: Path
) -> None:
    """The Instance's status names the node whose cards count, not the pod that a tenant wrote."""
    furnish(stand_in_cluster, honest, Grant("nvidia", FOREIGN))
    stand_in_cluster.add_node("node-b")
    stand_in_cluster.add_device_manager("node-b", "nvidia", "127.0.0.1", honest.port)
    stand_in_cluster.store.edit("pods", "default", "web", lambda pod: pod["spec"].update(nodeName="node-b"))
    async with worker_of(stand_in_cluster, honest, tmp_path) as ask:
        found = await ask("web")

    assert "accelerators" not in found
    assert "77777" not in json.dumps(found)
    state, message = said(found, "allocation")
    assert state == "invalid"
    assert "node-a" in message
    assert "node-b" in message
    assert "cpuUsageNanoCores" in found
    assert honest.requests == []


def furnish(cluster: StandInCluster, peer: DeviceManagerPeer, *grants: Grant) -> None:
    """One node with a device manager, and one Instance there."""
    cluster.add_node("node-a")
    cluster.add_instance(InstanceSpec("default", "web", "node-a", grants or [Grant("nvidia", OWN)]))
    cluster.add_device_manager("node-a", "nvidia", "127.0.0.1", peer.port)
