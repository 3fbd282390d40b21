"""The API client: bytes in and out, errors in our words, credentials renewed, and no name that leaves its path."""

import asyncio
import gzip
import json
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer, unused_port
from structlog.testing import capture_logs
from typing_extensions import override
from yarl import URL

from devicemanager.clock import SystemClock
from devicemanager.demo.cluster.objects import InstanceSpec
from devicemanager.demo.cluster.stand_in import WORKER_TOKEN, WORKER_USER
from devicemanager.errors import FetchError, SettingsError
from devicemanager.model.usage import SourceState
from devicemanager.worker import reloaded_credentials
from devicemanager.worker.cluster import ClusterClient, object_path
from devicemanager.worker.credentials import Credentials, CredentialsSource, Kubeconfig
from devicemanager.worker.watch_stream import WatchEvent
from tests.cluster.faults import Fault, Trouble
from tests.cluster.stand_in import StandInCluster
from tests.unit.worker.conftest import Handler, StartPeer

PODS = "/api/v1/namespaces/team-a/pods"


class FixedCredentials(CredentialsSource):
    """A server and a token that the test may change; counts how often it was read."""

    def __init__(self, server: URL, token: str = "first") -> None:
        self.server = server
        self.token = token
        self.broken = False
        self.loads = 0
        self.third = threading.Event()

    @override
    def load(self) -> Credentials:
        assert threading.current_thread() is not threading.main_thread(), "files are read off the loop"
        self.loads += 1
        if self.loads == 3:
            self.third.set()
        if self.broken:
            raise SettingsError(["the token file is empty"])
        return Credentials(self.server, f"Bearer {self.token}", tls=None)


class TokenPeer:
    """An API server that takes one token, and counts."""

    def __init__(self) -> None:
        self.token = "first"
        self.asked: list[str] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.headers["Authorization"])
        if request.headers["Authorization"] != f"Bearer {self.token}":
            return status(401, "Unauthorized", "Unauthorized")
        return web.json_response({"path": request.path})


def status(code: int, reason: str, message: str) -> web.Response:
    document = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": message}
    return web.json_response({**document, "code": code}, status=code)


@pytest.fixture
def peer() -> TokenPeer:
    return TokenPeer()


@pytest_asyncio.fixture
async def source(peer: TokenPeer, start_peer: StartPeer) -> FixedCredentials:
    return FixedCredentials((await start_peer(peer.answer)).make_url("/"))


@pytest_asyncio.fixture
async def client(source: FixedCredentials) -> AsyncIterator[ClusterClient]:
    async with ClusterClient(source, SystemClock()) as client:
        yield client


async def client_of(server: TestServer, stack: "list[ClusterClient]") -> ClusterClient:
    client = ClusterClient(FixedCredentials(server.make_url("/")), SystemClock())
    await client.__aenter__()
    stack.append(client)
    return client


@pytest_asyncio.fixture
async def clients() -> AsyncIterator[list[ClusterClient]]:
    opened: list[ClusterClient] = []
    yield opened
    for client in opened:
        await client.__aexit__(None, None, None)


@pytest.mark.asyncio
async def test_an_object_is_read_as_the_worker(cluster: ClusterClient, stand_in_cluster: StandInCluster) -> None:
    stand_in_cluster.add_instance(InstanceSpec("team-a", "web", "node-a"))

    body = await cluster.get(f"{PODS}/web", {"resourceVersion": "0"})

    assert json.loads(body)["metadata"]["name"] == "web"
    [request] = stand_in_cluster.requests.matching("pods")
    assert request.user == WORKER_USER
    assert request.query == {"resourceVersion": "0"}


@pytest.mark.asyncio
async def test_a_document_is_posted(cluster: ClusterClient) -> None:
    review = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "spec": {"token": WORKER_TOKEN},
    }

    body = await cluster.post("/apis/authentication.k8s.io/v1/tokenreviews", json.dumps(review).encode())

    assert json.loads(body)["status"]["user"]["username"] == WORKER_USER


@pytest.mark.asyncio
async def test_compressed_answers_are_asked_for_and_understood(
    start_peer: StartPeer, clients: list[ClusterClient]
) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        assert request.headers["Accept-Encoding"] == "gzip"
        return web.Response(body=gzip.compress(b'{"a":1}'), headers={"Content-Encoding": "gzip"})

    client = await client_of(await start_peer(answer), clients)

    assert await client.get("/api") == b'{"a":1}'


@pytest.mark.parametrize(
    ("code", "state"),
    [
        (401, SourceState.UNAUTHORIZED),
        (403, SourceState.FORBIDDEN),
        (404, SourceState.NOT_SERVED),
        (409, SourceState.INVALID),
        (429, SourceState.UNREACHABLE),
        (500, SourceState.UNREACHABLE),
        (502, SourceState.UNREACHABLE),
        (503, SourceState.UNREACHABLE),
        (504, SourceState.TIMEOUT),
    ],
)
@pytest.mark.asyncio
async def test_a_status_becomes_our_error(
    start_peer: StartPeer, clients: list[ClusterClient], code: int, state: SourceState
) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return status(code, "Because", 'nodes "node-a"\nis forbidden: ' + "x" * 1000)

    client = await client_of(await start_peer(answer), clients)

    with pytest.raises(FetchError) as caught:
        await client.get("/api")

    assert (caught.value.state, caught.value.status, caught.value.reason) == (state, code, "Because")
    assert caught.value.message == f"HTTP {code}"
    assert str(caught.value).startswith(f'HTTP {code}: nodes "node-a" is forbidden: xxx')
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("7", 7),
        ("Wed, 12 Aug 2026 09:15:09 GMT", 5),
        ("Wed, 12 Aug 2026 09:15:00 GMT", 0),
        ("soon", None),
        ("-1", None),
        (None, None),
    ],
)
@pytest.mark.asyncio
async def test_how_long_the_api_server_wants_to_be_left_alone_is_told(
    start_peer: StartPeer, clients: list[ClusterClient], header: str | None, expected: int | None
) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = status(403, "Forbidden", "no")
        response.headers["Date"] = "Wed, 12 Aug 2026 09:15:04 GMT"
        if header is not None:
            response.headers["Retry-After"] = header
        return response

    client = await client_of(await start_peer(answer), clients)

    with pytest.raises(FetchError) as read:
        await client.get("/api")
    with pytest.raises(FetchError) as watched:
        async with client.watch("/api", resource_version="1"):
            pass

    assert read.value.retry_after_s == watched.value.retry_after_s == expected
    assert read.value.again().retry_after_s == expected


@pytest.mark.asyncio
async def test_a_review_is_asked_again_as_a_read_is(start_peer: StartPeer, clients: list[ClusterClient]) -> None:
    bodies = []

    async def answer(request: web.Request) -> web.StreamResponse:
        bodies.append(await request.read())
        return status(500, "InternalError", "etcdserver: leader changed") if len(bodies) < 3 else web.Response()

    client = await client_of(await start_peer(answer), clients)

    await client.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", b"{}")

    assert bodies == [b"{}"] * 3


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("/api/v1/nodes/a/proxy/stats/summary", "/api/v1/nodes/b/proxy/stats/summary"),
        ("/apis/metrics.k8s.io/v1beta1/pods", "/api/v1/pods"),
        ("/apis/metrics.k8s.io/v1beta1/pods", "/apis/worker.gpustack.ai/v1alpha1/instances"),
    ],
)
@pytest.mark.asyncio
async def test_one_dead_backend_of_the_api_server_leaves_the_others_their_retries(
    start_peer: StartPeer, clients: list[ClusterClient], one: str, other: str
) -> None:
    asked: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        asked.append(request.path)
        dead = request.path == one or asked.count(other) < 2
        return status(503, "ServiceUnavailable", "no") if dead else web.Response()

    client = await client_of(await start_peer(answer), clients)
    for _ in range(5):
        with pytest.raises(FetchError):
            await client.get(one)

    await client.get(other)

    assert (asked.count(one), asked.count(other)) == (8, 2)


@pytest.mark.asyncio
async def test_an_error_that_is_no_status_has_no_reason(
    start_peer: StartPeer, clients: list[ClusterClient]
) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(status=404, text="404 page not found\n")

    client = await client_of(await start_peer(answer), clients)

    with pytest.raises(FetchError, match="HTTP 404: 404 page not found") as caught:
        await client.get("/apis/no.such/v1")

    assert caught.value.reason is None


@pytest.mark.asyncio
async def test_a_kind_that_is_not_served_is_no_missing_object(
    cluster: ClusterClient, stand_in_cluster: StandInCluster
) -> None:
    stand_in_cluster.add_instance(InstanceSpec("team-a", "web", "node-a"))
    path = "/apis/metrics.k8s.io/v1beta1/namespaces/team-a/pods"

    with pytest.raises(FetchError) as missing:
        await cluster.get(f"{path}/db")
    stand_in_cluster.remove_metrics_api()
    with pytest.raises(FetchError) as unserved:
        await cluster.get(f"{path}/web")

    assert (missing.value.status, missing.value.reason) == (404, "NotFound")
    assert (unserved.value.status, unserved.value.reason) == (404, None)


@pytest.mark.asyncio
async def test_a_401_reads_the_credentials_again_once(
    client: ClusterClient, source: FixedCredentials, peer: TokenPeer
) -> None:
    peer.token = source.token = "second"

    assert await client.get("/api") == b'{"path": "/api"}'

    assert peer.asked == ["Bearer first", "Bearer second"]
    assert source.loads == 2


@pytest.mark.asyncio
async def test_a_second_401_is_the_answer(client: ClusterClient, source: FixedCredentials, peer: TokenPeer) -> None:
    peer.token = "another cluster's"
    source.token = "second"

    with pytest.raises(FetchError) as caught:
        await client.get("/api")

    assert caught.value.state is SourceState.UNAUTHORIZED
    assert peer.asked == ["Bearer first", "Bearer second"]


@pytest.mark.asyncio
async def test_a_token_file_that_is_emptied_leaves_the_last_good_token_in_use_and_a_line_in_the_log(
    peer: TokenPeer, start_peer: StartPeer, tmp_path: Path
) -> None:
    server = (await start_peer(peer.answer)).make_url("/")
    token = tmp_path / "token"

    class FromKubeconfig(Kubeconfig):
        """The peer has no TLS, and a kubeconfig's token is only shown over TLS."""

        @override
        def load(self) -> Credentials:
            return replace(super().load(), server=server, tls=None)

    def renewed() -> None:
        token.write_text("first")
        (tmp_path / "kubeconfig").write_text(
            "{clusters: [{name: c, cluster: {server: 'https://api.example'}}],"
            " users: [{name: u, user: {tokenFile: token}}],"
            " contexts: [{name: x, context: {cluster: c, user: u}}], current-context: x}"
        )

    await asyncio.to_thread(renewed)
    async with ClusterClient(FromKubeconfig(str(tmp_path / "kubeconfig")), SystemClock()) as client:
        peer.token = "nobody's"
        await asyncio.to_thread(token.write_text, "")
        with capture_logs() as logs, pytest.raises(FetchError) as caught:
            await client.get("/api")
        peer.token = "first"
        await client.get("/api")

    assert caught.value.state is SourceState.UNAUTHORIZED
    assert peer.asked == ["Bearer first", "Bearer first"]
    [line] = logs
    assert line["event"] == "cluster_credentials_unreadable"
    assert line["error"].endswith("token is empty")


@pytest.mark.asyncio
async def test_whoever_is_impersonated_is_named_in_every_request(start_peer: StartPeer) -> None:
    seen: list[tuple[str, list[str]]] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        headers = request.headers
        seen.append((headers["Impersonate-User"], headers.getall("Impersonate-Group")))
        return web.Response()

    server = (await start_peer(answer)).make_url("/")
    impersonation = (("Impersonate-User", "jane"), ("Impersonate-Group", "dev"), ("Impersonate-Group", "ops"))

    class Impersonating(FixedCredentials):
        @override
        def load(self) -> Credentials:
            return replace(super().load(), impersonation=impersonation)

    async with ClusterClient(Impersonating(server), SystemClock()) as client:
        await client.get("/api")
        await client.post("/api", b"{}")
        async with client.watch("/api", resource_version="1"):
            pass

    assert seen == [("jane", ["dev", "ops"])] * 3


@pytest.mark.asyncio
async def test_a_token_that_was_refused_is_not_shown_again(
    client: ClusterClient, source: FixedCredentials, peer: TokenPeer
) -> None:
    peer.token = "another cluster's"

    with pytest.raises(FetchError) as caught:
        await client.get("/api")

    assert caught.value.state is SourceState.UNAUTHORIZED
    assert (source.loads, peer.asked) == (2, ["Bearer first"])


@pytest.mark.asyncio
async def test_a_storm_of_401s_reads_the_credentials_once(
    client: ClusterClient, source: FixedCredentials, peer: TokenPeer
) -> None:
    peer.token = source.token = "second"

    async with asyncio.TaskGroup() as tasks:
        reads = [tasks.create_task(client.get("/api")) for _ in range(50)]

    assert {read.result() for read in reads} == {b'{"path": "/api"}'}
    assert source.loads == 2


@pytest.mark.asyncio
async def test_refusals_in_a_row_do_not_read_files_in_a_loop(
    client: ClusterClient, source: FixedCredentials, peer: TokenPeer
) -> None:
    peer.token = "another cluster's"

    for _ in range(20):
        with pytest.raises(FetchError):
            await client.get("/api")

    assert source.loads == 2


@pytest.mark.asyncio
async def test_a_rotated_token_is_used_within_a_period(
    client: ClusterClient, source: FixedCredentials, peer: TokenPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reloaded_credentials, "RELOAD_INTERVAL_S", 0.001)
    source.token = "second"
    async with asyncio.TaskGroup() as tasks, asyncio.timeout(10):
        following = tasks.create_task(client.follow_credentials())
        await asyncio.to_thread(source.third.wait, 10)
        following.cancel()
    peer.token = "second"

    await client.get("/api")

    assert peer.asked == ["Bearer second"]


@pytest.mark.asyncio
async def test_credentials_that_cannot_be_read_leave_the_last_good_ones(
    client: ClusterClient, source: FixedCredentials, peer: TokenPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reloaded_credentials, "RELOAD_INTERVAL_S", 0.001)
    source.broken = True
    async with asyncio.TaskGroup() as tasks, asyncio.timeout(10):
        following = tasks.create_task(client.follow_credentials())
        await asyncio.to_thread(source.third.wait, 10)
        following.cancel()

    assert await client.get("/api") == b'{"path": "/api"}'


@pytest.mark.asyncio
async def test_entering_without_credentials_says_what_to_change(tmp_path: Path) -> None:
    client = ClusterClient(Kubeconfig(str(tmp_path / "none")), SystemClock())

    with pytest.raises(SettingsError, match="no such file"):
        await client.__aenter__()


@pytest.mark.parametrize(
    ("trouble", "state"),
    [
        (Fault(Trouble.ERROR, status=500), SourceState.UNREACHABLE),
        (Fault(Trouble.HUGE), SourceState.INVALID),
        (Fault(Trouble.HALF), SourceState.INVALID),
        (Fault(Trouble.GZIP_BOMB), SourceState.INVALID),
        (Fault(Trouble.DRIP, delay_s=0.05), SourceState.TIMEOUT),
        (Fault(Trouble.HELD), SourceState.TIMEOUT),
        (Fault(Trouble.RESET), SourceState.UNREACHABLE),
    ],
    ids=lambda value: value.trouble.name if isinstance(value, Fault) else "",
)
@pytest.mark.asyncio
async def test_each_fault_has_its_state(
    cluster: ClusterClient, stand_in_cluster: StandInCluster, trouble: Fault, state: SourceState
) -> None:
    stand_in_cluster.add_instance(InstanceSpec("team-a", "web", "node-a"))

    with stand_in_cluster.faults.on("pods", trouble), pytest.raises(FetchError) as caught:
        await cluster.get(f"{PODS}/web", deadline_s=1.0 if state is SourceState.TIMEOUT else 30.0)

    assert caught.value.state is state


@pytest.mark.asyncio
async def test_a_proxy_comes_from_the_credentials_only(
    start_peer: StartPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    async def proxy(request: web.Request) -> web.StreamResponse:
        seen.append(str(request.url))
        return web.json_response({})

    server = await start_peer(proxy)
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{unused_port()}")

    class Proxied(CredentialsSource):
        @override
        def load(self) -> Credentials:
            return Credentials(URL("http://api.example"), None, tls=None, proxy=server.make_url("/"))

    async with ClusterClient(Proxied(), SystemClock()) as client:
        await client.get("/api")

    assert seen == ["http://api.example/api"]


@pytest.mark.asyncio
async def test_a_server_below_a_path_keeps_it(start_peer: StartPeer, clients: list[ClusterClient]) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(text=request.raw_path)

    server = await start_peer(answer)
    client = ClusterClient(FixedCredentials(server.make_url("/k8s/clusters/c-1/")), SystemClock())
    await client.__aenter__()
    clients.append(client)

    assert await client.get("/api/v1/x", {"labelSelector": "a=b,c"}) == (
        b"/k8s/clusters/c-1/api/v1/x?labelSelector=a%3Db,c"
    )


@pytest.mark.parametrize(
    "name",
    [
        "..",
        ".",
        "",
        "a/b",
        "a%2Fb",
        "../secrets",
        "a?watch=true",
        "a#b",
        "A",
        "a..b",
        "-a",
        "a-",
        "a" * 254,
        "a\n",
        "é",
    ],
)
def test_an_invalid_name_never_becomes_a_path(name: str) -> None:
    with pytest.raises(FetchError) as caught:
        object_path("/api/v1/namespaces", name)

    assert caught.value.status == 404


@pytest.mark.parametrize("name", ["a", "web-0", "node-a.example.com", "a" * 253, "0"])
def test_a_name_is_appended(name: str) -> None:
    assert object_path("/api/v1/nodes", name) == f"/api/v1/nodes/{name}"


# Watches


async def watched(client: ClusterClient, count: int, version: str = "0") -> list[WatchEvent]:
    found: list[WatchEvent] = []
    async with asyncio.timeout(10), client.watch(PODS, resource_version=version) as events:
        async for event in events:
            found.append(event)
            if len(found) == count:
                break
    return found


@pytest.mark.asyncio
async def test_a_watch_gives_changes_as_they_come(cluster: ClusterClient, stand_in_cluster: StandInCluster) -> None:
    path = "/api/v1/namespaces/gpustack-system/pods"
    name = stand_in_cluster.add_device_manager("node-a", "nvidia", "10.0.0.1")
    version = json.loads(await cluster.get(path))["metadata"]["resourceVersion"]

    async def change() -> None:
        await stand_in_cluster.requests.wait_for(1, "pods", verb="watch")
        stand_in_cluster.store.delete("pods", "gpustack-system", name)

    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        tasks.create_task(change())
        async with cluster.watch(path, resource_version=version) as events:
            event = await anext(events)

    assert event.type == "DELETED"
    assert json.loads(event.object)["metadata"]["name"] == name


def streaming(*chunks: bytes) -> Handler:
    async def answer(request: web.Request) -> web.StreamResponse:
        stream = web.StreamResponse()
        await stream.prepare(request)
        for chunk in chunks:
            await stream.write(chunk)
        return stream

    return answer


@pytest.mark.asyncio
async def test_lines_may_be_cut_anywhere(start_peer: StartPeer, clients: list[ClusterClient]) -> None:
    text = b'{"type":"ADDED","object":{"a":"\xc3\xa9"}}\n\n{"type":"BOOKMARK","object":{"b":2}}\n'
    client = await client_of(await start_peer(streaming(*(bytes([byte]) for byte in text))), clients)

    assert await watched(client, 3) == [
        WatchEvent("ADDED", '{"a":"é"}'.encode()),
        WatchEvent("BOOKMARK", b'{"b":2}'),
    ]


@pytest.mark.parametrize(
    ("answer", "state", "code"),
    [
        pytest.param(
            streaming(b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}\n'),
            SourceState.INVALID,
            410,
            id="expired inside",
        ),
        pytest.param(
            streaming(b'{"type":"ERROR","object":{"kind":"Status","code":500}}\n'),
            SourceState.UNREACHABLE,
            500,
            id="another error inside",
        ),
        pytest.param(streaming(b"<html>\n"), SourceState.INVALID, None, id="no JSON"),
        pytest.param(streaming(b"x" * (5 * 1024 * 1024)), SourceState.INVALID, None, id="a line without end"),
    ],
)
@pytest.mark.asyncio
async def test_a_watch_that_goes_wrong_says_how(
    start_peer: StartPeer, clients: list[ClusterClient], answer: Handler, state: SourceState, code: int | None
) -> None:
    client = await client_of(await start_peer(answer), clients)

    with pytest.raises(FetchError) as caught:
        await watched(client, 1)

    assert (caught.value.state, caught.value.status) == (state, code)


@pytest.mark.asyncio
async def test_a_version_that_is_too_old_is_gone(start_peer: StartPeer, clients: list[ClusterClient]) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        assert request.query["resourceVersion"] == "1"
        assert request.query["allowWatchBookmarks"] == "true"
        return status(410, "Expired", "too old resource version")

    client = await client_of(await start_peer(answer), clients)

    with pytest.raises(FetchError) as caught:
        await watched(client, 1, version="1")

    assert caught.value.status == 410


@pytest.mark.asyncio
async def test_a_watch_refused_with_401_reads_the_credentials_again(
    client: ClusterClient, source: FixedCredentials, peer: TokenPeer
) -> None:
    peer.token = source.token = "second"

    with pytest.raises(FetchError):
        await watched(client, 1)

    assert source.loads == 2
