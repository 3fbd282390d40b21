"""What callers of ``devicemanager worker`` learn of what its peers say: nothing that is not about their own."""

import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
import pytest_asyncio
from aiohttp import web

from devicemanager.demo.cluster.access import Rule
from devicemanager.demo.cluster.objects import SYSTEM_NAMESPACE, Grant, InstanceSpec
from tests.cluster.faults import Fault, Trouble, answer_raw
from tests.cluster.stand_in import StandInCluster
from tests.e2e.test_worker import Worker, started
from tests.unit.worker.apiserver.api_server import GROUPS, Received
from tests.unit.worker.conftest import SERVER_NAME, DeviceManagerPeer

pytestmark = pytest.mark.asyncio

GROUP = GROUPS[0]
NAMESPACE = f"/apis/{GROUP}/v1/namespaces/default"

SECRET = "payroll-of-team-b"
"""Stands for another tenant's pod, address or card."""


def http(status: str, body: str, *headers: str) -> bytes:
    head = "\r\n".join((f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers))
    return f"{head}\r\n\r\n{body}".encode()


def kubernetes_status(code: int, reason: str = "InternalError") -> str:
    return json.dumps(
        {"kind": "Status", "message": f"pod {SECRET}", "reason": reason, "code": code, "details": {"name": SECRET}}
    )


ANSWERS: Mapping[str, bytes] = {
    "JSON without HTTP": f'{{"pod":"{SECRET}"}}\r\n\r\n'.encode(),
    "a line that is no header": f"HTTP/1.1 200 OK\r\n{SECRET}\r\n\r\n".encode(),
    "a reason in the status line": http(f"500 {SECRET}", ""),
    "text of an error": http("500 Internal Server Error", SECRET),
    "a Status": http("500 Internal Server Error", kubernetes_status(500)),
    "a refusal": http("403 Forbidden", kubernetes_status(403, "Forbidden")),
    "a Status whose reason is its own": http("409 Conflict", kubernetes_status(409, SECRET)),
    "another place": http("302 Found", SECRET, f"Location: https://{SECRET}/"),
    "an unknown encoding": http("200 OK", "{}", f"Content-Encoding: {SECRET}"),
    "no JSON": http("200 OK", f'{{"groups": {SECRET}'),
    "a document of other types": http("200 OK", json.dumps({"groups": SECRET, "node": SECRET, "pods": SECRET})),
    "a key of its own": http(
        "200 OK", json.dumps({"groups": [{SECRET: 1}], "pods": [{SECRET: 1}], "node": {SECRET: 1}})
    ),
    "another node": http(
        "200 OK", json.dumps({"nodeName": SECRET, "groups": [], "node": {"nodeName": SECRET}, "pods": []})
    ),
}
COLLECTORS: Mapping[str, bytes] = {
    f"a collector that is {state}": http(
        "200 OK",
        json.dumps(
            {
                "timestamp": timestamp,
                "groups": [],
                "collector": {"state": state, "detail": SECRET, "since": "2026-08-12T09:15:04Z"},
            }
        ),
    )
    for state, timestamp in (
        ("crashed", "2026-08-12T09:15:04Z"),
        ("library_missing", "0001-01-01T00:00:00Z"),
        ("no_devices", "2026-08-12T09:15:04Z"),
        ("ok", "2026-08-12T09:15:04Z"),
        (SECRET, "2026-08-12T09:15:04Z"),
    )
}


@pytest_asyncio.fixture
async def device_manager(tmp_path: Path) -> AsyncIterator[DeviceManagerPeer]:
    peer = DeviceManagerPeer(tmp_path)
    await peer.start()
    yield peer
    await peer.stop()


@pytest_asyncio.fixture
async def worker(
    stand_in_cluster: StandInCluster, device_manager: DeviceManagerPeer, tmp_path: Path
) -> AsyncIterator[Worker]:
    pair = tmp_path / "client"
    device_manager.authority.client("worker").write(pair)
    (tmp_path / "device-managers.crt").write_bytes(device_manager.authority.pem.certificate)
    for number in range(len(ANSWERS) + len(COLLECTORS)):
        node = f"node-{number}"  # one for each answer: a peer that misbehaved is not asked again for a while
        stand_in_cluster.add_node(node)
        stand_in_cluster.add_instance(InstanceSpec("default", f"web-{number}", node, [Grant("nvidia", "GPU-own")]))
        stand_in_cluster.add_device_manager(node, "nvidia", "127.0.0.1", device_manager.port)
    stand_in_cluster.add_user("viewer", "viewer")
    resources = ("instances/metrics", "instancemetrics")
    stand_in_cluster.grant(Rule("viewer", ("get", "list"), (GROUP,), resources, namespace="default"))
    stand_in_cluster.grant(Rule("viewer", ("get",), paths=("/metrics",)))
    flags = [
        f"--device-manager-namespace={SYSTEM_NAMESPACE}",
        f"--device-manager-ca-file={tmp_path / 'device-managers.crt'}",
        f"--device-manager-client-cert-dir={pair}",
        f"--device-manager-server-name={SERVER_NAME}",
        "--kubelet-max-age=0s",
        "--snapshot-max-age=0s",
    ]
    folder = tmp_path / "worker"
    folder.mkdir()
    async with started(stand_in_cluster, folder, GROUP, flags) as worker:
        worker.port = (await worker.logged("server_listening"))["port"]
        await worker.ready()
        yield worker


def text(received: Received) -> str:
    """All that a caller sees of an answer."""
    return "\n".join([str(received.status), *(f"{k}: {v}" for k, v in received.headers), received.body.decode()])


def metrics(number: int) -> str:
    return f"{NAMESPACE}/instances/web-{number}/metrics"


async def learned(worker: Worker, number: int) -> str:
    """All that a caller is told of one Instance."""
    table = "application/json;as=Table;v=v1;g=meta.k8s.io"
    listed = f"{NAMESPACE}/instancemetrics?fieldSelector=metadata.name=web-{number}"
    asked = [await worker.ask(path, "viewer") for path in (metrics(number), listed, "/metrics")]
    asked.append(await worker.ask(listed, "viewer", table))
    asked += [await worker.ask(path) for path in ("/readyz?verbose", "/livez?verbose", "/healthz?verbose")]
    return "\n".join(map(text, asked))


async def test_what_a_device_manager_says_is_for_the_log_alone(
    worker: Worker, device_manager: DeviceManagerPeer
) -> None:
    for number, (kind, raw) in enumerate({**ANSWERS, **COLLECTORS}.items()):

        async def answer(request: web.Request, raw: bytes = raw) -> web.StreamResponse:
            return answer_raw(request, raw)

        device_manager.answer = answer
        asked = len(device_manager.requests)
        told = await learned(worker, number)
        assert len(device_manager.requests) > asked, kind
        assert "device-manager/nvidia" in told, kind
        assert SECRET not in told, kind


async def test_what_a_kubelet_says_is_for_the_log_alone(worker: Worker, stand_in_cluster: StandInCluster) -> None:
    for number, (kind, raw) in enumerate(ANSWERS.items()):
        asked = len(stand_in_cluster.requests.matching("nodes/proxy"))
        with stand_in_cluster.faults.on(f"kubelet/node-{number}", Fault(Trouble.RAW, raw=raw)):
            told = await learned(worker, number)
        assert len(stand_in_cluster.requests.matching("nodes/proxy")) > asked, kind
        assert "kubelet" in told, kind
        assert SECRET not in told, kind


async def test_what_the_last_source_says_is_for_the_log_alone(
    worker: Worker, stand_in_cluster: StandInCluster
) -> None:
    """Where no source is left, the error names each source with what ailed it."""
    for number, (kind, raw) in enumerate(ANSWERS.items()):
        with (
            stand_in_cluster.faults.on(f"kubelet/node-{number}", Fault(Trouble.RAW, raw=ANSWERS["a Status"])),
            stand_in_cluster.faults.on("pods.metrics.k8s.io", Fault(Trouble.RAW, raw=raw)),
        ):
            answer = await worker.ask(metrics(number), "viewer")
        assert answer.status in {503, 504}, kind
        assert "metrics.k8s.io: " in answer.body.decode()
        assert SECRET not in text(answer), kind


@pytest.mark.parametrize(
    "resource", ["pods", "instances.worker.gpustack.ai", "subjectaccessreviews.authorization.k8s.io"]
)
async def test_what_the_api_server_says_of_our_own_requests_is_for_the_log_alone(
    worker: Worker, stand_in_cluster: StandInCluster, resource: str
) -> None:
    for number, (kind, raw) in enumerate(ANSWERS.items()):
        with stand_in_cluster.faults.on(resource, Fault(Trouble.RAW, raw=raw)):
            told = await learned(worker, number)
        assert SECRET not in told, kind


async def test_the_log_has_what_the_caller_is_not_told(worker: Worker, stand_in_cluster: StandInCluster) -> None:
    with stand_in_cluster.faults.on("kubelet/node-0", Fault(Trouble.RAW, raw=ANSWERS["a refusal"])):
        told = json.loads((await worker.ask(metrics(0), "viewer")).body)
    (kubelet,) = [source for source in told["sample"]["sources"] if source["name"] == "kubelet"]
    assert (kubelet["state"], kubelet["message"]) == ("forbidden", "HTTP 403")
    line = await worker.logged("source_failed")
    assert line["error"] == f"HTTP 403: pod {SECRET}"
