"""The stand-in as an aggregator, in front of a backend that writes down what it is sent."""

import json
import ssl
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web

from devicemanager.demo.cluster.access import Rule, User
from devicemanager.demo.cluster.aggregator import proxied_headers
from devicemanager.demo.cluster.stand_in import ADMIN_TOKEN
from devicemanager.tls.certificates import Authority
from tests.cluster.stand_in import StandInCluster

GROUP = "metrics.example.org"
SERVER_NAME = "worker.gpustack-system.svc"
DISCOVERY_V2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
THING = {
    "resource": "things",
    "responseKind": {"group": GROUP, "version": "v1", "kind": "Thing"},
    "scope": "Namespaced",
    "singularResource": "thing",
    "verbs": ["get"],
}


class RecordingBackend:
    """An API server that asks for the front proxy's certificate and answers what it is told."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, list[tuple[str, str]], str | None]] = []
        self.discovery_status = 200
        self.redirects = False

    async def answer(self, request: web.Request) -> web.Response:
        """Record, then answer."""
        certificate = request.transport.get_extra_info("peercert") if request.transport else None
        subject = dict(entry[0] for entry in certificate["subject"]) if certificate else {}
        self.seen.append((request.raw_path, list(request.headers.items()), subject.get("commonName")))
        if self.redirects:
            return web.Response(status=301, headers={"Location": "/elsewhere"})
        match request.path:
            case "/apis":
                document = {
                    "items": [{"metadata": {"name": GROUP}, "versions": [{"version": "v1", "resources": [THING]}]}]
                }
                return web.Response(
                    status=self.discovery_status, body=json.dumps(document), headers={"Content-Type": DISCOVERY_V2}
                )
            case "/openapi/v3":
                return web.json_response({"paths": {f"apis/{GROUP}/v1": {"serverRelativeURL": "/openapi/v3/x"}}})
            case _:
                return web.json_response(
                    {"path": request.path}, status=299, headers={"Warning": '299 - "half of it is missing"'}
                )


@pytest_asyncio.fixture
async def backend(stand_in_cluster: StandInCluster, tmp_path: Path) -> AsyncIterator[RecordingBackend]:
    """A backend registered with the cluster."""
    recording = RecordingBackend()
    authority = Authority.create("backend CA")
    authority.serving([SERVER_NAME]).write(tmp_path, "backend")
    context = ssl.create_default_context(
        ssl.Purpose.CLIENT_AUTH, cadata=stand_in_cluster.front_proxy.pem.certificate.decode()
    )
    context.load_cert_chain(tmp_path / "backend.crt", tmp_path / "backend.key")
    context.verify_mode = ssl.CERT_OPTIONAL
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", recording.answer)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    url = f"https://127.0.0.1:{runner.addresses[0][1]}"
    stand_in_cluster.register(GROUP, "v1", url, authority.pem.certificate, SERVER_NAME)
    yield recording
    await runner.cleanup()


@pytest_asyncio.fixture
async def session(stand_in_cluster: StandInCluster) -> AsyncIterator[aiohttp.ClientSession]:
    """A client that verifies the cluster."""
    context = ssl.create_default_context(cafile=str(stand_in_cluster.ca_file))
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session:
        yield session


async def _get(
    session: aiohttp.ClientSession, cluster: StandInCluster, path: str, **headers: str
) -> tuple[int, Any, Mapping[str, str]]:
    headers.setdefault("Authorization", f"Bearer {ADMIN_TOKEN}")
    async with session.get(f"{cluster.url}{path}", headers=headers) as answer:
        text = await answer.text()
        return answer.status, json.loads(text) if text.startswith("{") else text, answer.headers


@pytest.mark.asyncio
async def test_a_request_is_forwarded_with_the_identity_and_without_the_credential(
    stand_in_cluster: StandInCluster, backend: RecordingBackend, session: aiohttp.ClientSession
) -> None:
    stand_in_cluster.add_user("tina-token", "tina", ["team-a", "dev"], uid="u-1")
    stand_in_cluster.grant(Rule("team-a", ["get"], [GROUP], ["things"], namespace="team-a"))
    path = f"/apis/{GROUP}/v1/namespaces/team-a/things/x%2Fy"

    status, document, headers = await _get(
        session,
        stand_in_cluster,
        f"{path}?pretty=true",
        Authorization="Bearer tina-token",
        **{"X-Remote-User": "root", "X-Remote-Group": "system:masters", "x-remote-extra-a": "b"},
    )

    assert (status, document["path"]) == (299, f"/apis/{GROUP}/v1/namespaces/team-a/things/x/y")
    assert headers["Warning"] == '299 - "half of it is missing"'
    (seen,) = backend.seen
    assert seen[0] == f"{path}?pretty=true"
    assert seen[2] == "front-proxy-client"
    identity = [(key, value) for key, value in seen[1] if key.lower().startswith("x-remote-")]
    assert identity == [
        ("X-Remote-User", "tina"),
        ("X-Remote-Uid", "u-1"),
        ("X-Remote-Group", "team-a"),
        ("X-Remote-Group", "dev"),
        ("X-Remote-Group", "system:authenticated"),
    ]
    assert "authorization" not in {key.lower() for key, _ in seen[1]}


@pytest.mark.asyncio
async def test_an_unauthorized_request_never_reaches_the_backend(
    stand_in_cluster: StandInCluster, backend: RecordingBackend, session: aiohttp.ClientSession
) -> None:
    stand_in_cluster.add_user("tina-token", "tina")
    status, document, _ = await _get(
        session,
        stand_in_cluster,
        f"/apis/{GROUP}/v1/namespaces/team-a/things/x",
        Authorization="Bearer tina-token",
    )
    assert (status, document["reason"], backend.seen) == (403, "Forbidden", [])


@pytest.mark.asyncio
async def test_discovery_is_merged(
    stand_in_cluster: StandInCluster, backend: RecordingBackend, session: aiohttp.ClientSession
) -> None:
    status, document, headers = await _get(session, stand_in_cluster, "/apis", Accept=DISCOVERY_V2)

    assert (status, headers["Content-Type"]) == (200, DISCOVERY_V2)
    groups = {item["metadata"]["name"]: item["versions"] for item in document["items"]}
    assert groups[GROUP] == [{"version": "v1", "resources": [THING], "freshness": "Current"}]
    assert groups["worker.gpustack.ai"][0]["version"] == "v1alpha1"
    status, _, _ = await _get(
        session, stand_in_cluster, "/apis", Accept=DISCOVERY_V2, **{"If-None-Match": headers["ETag"]}
    )
    assert status == 304


@pytest.mark.asyncio
async def test_a_backend_that_cannot_say_what_it_serves_is_stale(
    stand_in_cluster: StandInCluster, backend: RecordingBackend, session: aiohttp.ClientSession
) -> None:
    backend.discovery_status = 503
    _, document, _ = await _get(session, stand_in_cluster, "/apis", Accept=DISCOVERY_V2)
    groups = {item["metadata"]["name"]: item["versions"] for item in document["items"]}
    assert groups[GROUP] == [{"version": "v1", "resources": [], "freshness": "Stale"}]


@pytest.mark.asyncio
async def test_versions_of_a_group_are_in_order_of_priority(
    stand_in_cluster: StandInCluster, session: aiohttp.ClientSession
) -> None:
    """A custom resource's version counts 100: ours must stay behind the operator's."""
    ca = stand_in_cluster.authority.pem.certificate
    stand_in_cluster.register("worker.gpustack.ai", "v1", "https://127.0.0.1:9", ca, SERVER_NAME)
    _, document, _ = await _get(session, stand_in_cluster, "/apis/worker.gpustack.ai")
    assert [version["version"] for version in document["versions"]] == ["v1alpha1", "v1"]
    assert document["preferredVersion"]["version"] == "v1alpha1"


@pytest.mark.asyncio
async def test_openapi_lists_what_backends_list(
    stand_in_cluster: StandInCluster, backend: RecordingBackend, session: aiohttp.ClientSession
) -> None:
    _, document, _ = await _get(session, stand_in_cluster, "/openapi/v3")
    assert document["paths"] == {f"apis/{GROUP}/v1": {"serverRelativeURL": "/openapi/v3/x"}}
    status, document, _ = await _get(session, stand_in_cluster, f"/openapi/v3/apis/{GROUP}/v1?hash=1")
    assert (status, document["path"]) == (299, f"/openapi/v3/apis/{GROUP}/v1")


@pytest.mark.asyncio
async def test_a_redirect_is_refused_as_the_real_aggregator_does(
    stand_in_cluster: StandInCluster, backend: RecordingBackend, session: aiohttp.ClientSession
) -> None:
    backend.redirects = True
    status, text, _ = await _get(session, stand_in_cluster, f"/apis/{GROUP}/v1")
    assert (status, text) == (502, "the backend attempted to redirect this request, which is not permitted")


@pytest.mark.asyncio
async def test_an_api_service_says_whether_its_backend_answers(
    stand_in_cluster: StandInCluster, backend: RecordingBackend, session: aiohttp.ClientSession
) -> None:
    path = f"/apis/apiregistration.k8s.io/v1/apiservices/v1.{GROUP}"
    _, document, _ = await _get(session, stand_in_cluster, path)
    assert document["status"]["conditions"][0]["reason"] == "Passed"
    assert document["spec"]["service"] == {"name": "worker", "namespace": "gpustack-system", "port": 443}
    backend.redirects = True
    _, document, _ = await _get(session, stand_in_cluster, path)
    assert document["status"]["conditions"][0]["reason"] == "FailedDiscoveryCheck"
    assert document["status"]["conditions"][0]["message"].endswith("301")


@pytest.mark.asyncio
async def test_a_backend_that_is_down_costs_its_own_group_only(
    stand_in_cluster: StandInCluster, session: aiohttp.ClientSession
) -> None:
    ca = stand_in_cluster.authority.pem.certificate
    stand_in_cluster.register(GROUP, "v1", "https://127.0.0.1:9", ca, SERVER_NAME)
    status, text, _ = await _get(session, stand_in_cluster, f"/apis/{GROUP}/v1/namespaces/a/things/b")
    assert (status, text[:31]) == (503, "error trying to reach service: ")
    assert (await _get(session, stand_in_cluster, "/api/v1/nodes"))[0] == 200


def test_extra_headers_are_escaped() -> None:
    user = User("tina", extra={"authentication.kubernetes.io/credential-id": ("JTI=1",)})
    headers = proxied_headers({}, user)
    assert headers["X-Remote-Extra-authentication.kubernetes.io%2Fcredential-id"] == "JTI=1"
