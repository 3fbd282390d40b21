import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient
from pytest_aiohttp.plugin import AiohttpClient

from devicemanager.model.accelerator import Card, CollectorState, CollectorStatus, Sample
from devicemanager.node.exposition import Exposition
from devicemanager.node.server import ClientPolicy, build_app, collector_check, progress_check
from devicemanager.node.snapshot_store import SnapshotStore
from devicemanager.serving.listener import Listener
from devicemanager.serving.probes import PING, Check
from tests import devices
from tests.timing import FakeClock
from tests.tls_peers import Logged, authority, cas, client, connected, running, server_identity

OK = CollectorStatus(CollectorState.OK, datetime(2026, 8, 12, tzinfo=UTC))

ANYONE = ClientPolicy(certificate_required=False)
PATH = "/monitor/snapshot"

NOW = datetime(2026, 8, 1, tzinfo=UTC)
END = {"notAfter": "Aug  2 00:00:00 2026 GMT"}

CERTIFICATE: dict[str, Any] = {
    **END,
    "subject": ((("organizationName", "org"),), (("commonName", "worker"),)),
    "subjectAltName": (
        ("DNS", "worker.example"),
        ("URI", "spiffe://a/worker"),
        ("IP Address", "10.0.0.1"),
        ("email", "worker@example"),
    ),
}

Start = Callable[..., Awaitable[TestClient[web.Request, web.Application]]]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(clock: FakeClock) -> SnapshotStore:
    return SnapshotStore("nvidia", 15.0, "node-1", clock)


def application(
    store: SnapshotStore,
    clock: FakeClock,
    access: ClientPolicy,
    live: tuple[Check, ...],
    logged: Logged | None = None,
) -> web.Application:
    return build_app(
        store=store,
        exposition=Exposition(store, lambda: datetime(2027, 1, 1, tzinfo=UTC), clock),
        access=access,
        live=live,
        ready=(PING, collector_check(store)),
        clock=clock,
        log=(logged or Logged()).log,
    )


@pytest.fixture
def start(aiohttp_client: AiohttpClient, store: SnapshotStore, clock: FakeClock) -> Start:
    async def started(
        access: ClientPolicy = ANYONE, live: tuple[Check, ...] = (PING,)
    ) -> TestClient[web.Request, web.Application]:
        return await aiohttp_client(application(store, clock, access, live))

    return started


def sample(clock: FakeClock, used: int = 1) -> Sample:
    reading = devices.reading(Card(0, "GPU-0", "NVIDIA H100", "0000:01:00.0"), memory_used=used << 30)
    return Sample(clock.now(), clock.monotonic(), 0.01, (reading,))


@pytest.mark.asyncio
class TestSnapshot:
    async def test_the_bytes_are_those_of_the_store(
        self, start: Start, store: SnapshotStore, clock: FakeClock
    ) -> None:
        store.update(OK, sample(clock))
        async with (await start()).get(PATH) as response:
            assert response.status == 200
            assert response.headers["Content-Type"] == "application/json"
            assert response.headers["Cache-Control"] == "no-cache"
            assert response.headers["ETag"] == store.document.etag
            assert await response.read() == store.document.body

    async def test_before_the_first_sample_it_has_no_age(self, start: Start) -> None:
        async with (await start()).get(PATH) as response:
            assert response.status == 200
            assert "Age" not in response.headers
            assert (await response.json())["collector"]["state"] == "starting"

    async def test_the_age_counts_whole_seconds_from_the_start_of_the_reading(
        self, start: Start, store: SnapshotStore, clock: FakeClock
    ) -> None:
        store.update(OK, sample(clock))
        asking = await start()
        ages = []
        for elapsed in (0.0, 0.9, 0.2, 60.0):
            clock.monotonic_s += elapsed
            clock.wall += timedelta(hours=1)  # the wall clock has no say
            async with asking.get(PATH) as response:
                ages.append(response.headers["Age"])

        assert ages == ["0", "0", "1", "61"]

    @pytest.mark.parametrize(
        "wanted",
        ["{etag}", "W/{etag}", '"other", {etag}', '"other",W/{etag} ', "*"],
        ids=["same", "weak", "list", "weak-in-list", "any"],
    )
    async def test_a_current_copy_is_not_sent_again(
        self, start: Start, store: SnapshotStore, clock: FakeClock, wanted: str
    ) -> None:
        store.update(OK, sample(clock))
        clock.monotonic_s += 3
        headers = {"If-None-Match": wanted.format(etag=store.document.etag)}
        async with (await start()).get(PATH, headers=headers) as response:
            assert response.status == 304
            assert await response.read() == b""
            assert response.headers["ETag"] == store.document.etag
            assert response.headers["Cache-Control"] == "no-cache"
            assert response.headers["Age"] == "3"

    async def test_a_list_may_come_in_several_headers(
        self, start: Start, store: SnapshotStore, clock: FakeClock
    ) -> None:
        store.update(OK, sample(clock))
        headers = [("If-None-Match", '"other"'), ("If-None-Match", store.document.etag)]
        async with (await start()).get(PATH, headers=headers) as response:
            assert response.status == 304

    @pytest.mark.parametrize("wanted", ['"other"', "", "garbage"], ids=["other", "empty", "garbage"])
    async def test_another_copy_is_replaced(self, start: Start, wanted: str) -> None:
        async with (await start()).get(PATH, headers={"If-None-Match": wanted}) as response:
            assert response.status == 200

    async def test_the_tag_changes_with_the_sample_and_with_the_collectors_state(
        self, start: Start, store: SnapshotStore, clock: FakeClock
    ) -> None:
        asking = await start()
        seen = []
        changes: tuple[Callable[[], None], ...] = (
            lambda: None,
            lambda: store.update(OK, sample(clock, used=1)),
            lambda: store.update(OK, sample(clock, used=2)),
            lambda: store.update(CollectorStatus(CollectorState.UNRESPONSIVE, clock.now())),
        )
        for change in changes:
            change()
            async with asking.get(PATH) as response:
                seen.append((response.headers["ETag"], await response.read()))

        assert len({tag for tag, _ in seen}) == len({body for _, body in seen}) == 4

    async def test_head_has_the_headers_of_get(self, start: Start, store: SnapshotStore, clock: FakeClock) -> None:
        store.update(OK, sample(clock))
        asking = await start()
        async with asking.head(PATH) as head, asking.get(PATH) as full:
            assert await head.read() == b""
            for name in ("Content-Length", "Content-Type", "ETag", "Cache-Control", "Age"):
                assert head.headers[name] == full.headers[name]


@pytest.mark.asyncio
class TestOtherRequests:
    @pytest.mark.parametrize("path", [PATH, "/metrics", "/livez", "/readyz", "/healthz"])
    @pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
    async def test_other_methods_are_not_allowed(self, start: Start, path: str, method: str) -> None:
        async with (await start()).request(method, path) as response:
            assert response.status == 405
            assert response.headers["Allow"] == "GET, HEAD"
            assert "GET and HEAD" in (await response.json())["message"]

    @pytest.mark.parametrize("path", ["/", "/monitor", f"{PATH}/", "/livez/ping", "/debug/pprof"])
    async def test_unknown_paths_say_where_the_snapshot_is(self, start: Start, path: str) -> None:
        async with (await start()).get(path) as response:
            assert response.status == 404
            assert response.headers["Content-Type"] == "application/json"
            assert PATH in (await response.json())["message"]

    async def test_metrics_are_prometheus_text(self, start: Start) -> None:
        async with (await start()).get("/metrics") as response:
            assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
            assert "# TYPE devicemanager_build_info gauge" in await response.text()


@pytest.mark.asyncio
class TestProbes:
    @pytest.mark.parametrize("path", ["/livez", "/healthz"])
    async def test_liveness_is_progress_of_the_loop(self, start: Start, clock: FakeClock, path: str) -> None:
        last = clock.monotonic()
        asking = await start(live=(progress_check(lambda: last, 30.0, clock),))
        statuses = []
        for elapsed in (0.0, 30.0, 0.1):
            clock.monotonic_s += elapsed
            async with asking.get(path) as response:
                statuses.append(response.status)

        assert statuses == [200, 200, 500]

    @pytest.mark.parametrize("state", [state for state in CollectorState if state is not CollectorState.STARTING])
    async def test_any_state_but_starting_is_ready(
        self, start: Start, store: SnapshotStore, clock: FakeClock, state: CollectorState
    ) -> None:
        asking = await start()
        async with asking.get("/readyz?verbose") as response:
            assert response.status == 500
            assert "[-]collector failed: its state is starting\n" in await response.text()
        store.update(CollectorStatus(state, clock.now(), "a detail that is not for everybody"))
        async with asking.get("/readyz?verbose") as response:
            assert f"[+]collector ok (its state is {state.value})\n" in await response.text()
        async with asking.get("/readyz") as response:
            assert (response.status, await response.text()) == (200, "ok")


class TestClientPolicy:
    def test_anyone_may_read_where_no_certificate_is_required(self) -> None:
        assert ANYONE.refusal(None, NOW) is None

    @pytest.mark.parametrize("certificate", [None, {}], ids=["none", "empty"])
    def test_no_certificate_is_401(self, certificate: dict[str, Any] | None) -> None:
        refusal = ClientPolicy(certificate_required=True).refusal(certificate, NOW)

        assert refusal is not None
        assert refusal[0] == 401

    @pytest.mark.parametrize(
        "name", ["worker", "worker.example", "spiffe://a/worker", "10.0.0.1", "worker@example"]
    )
    def test_one_allowed_name_suffices(self, name: str) -> None:
        policy = ClientPolicy(certificate_required=True, allowed_names=frozenset({name, "another"}))

        assert policy.refusal(CERTIFICATE, NOW) is None

    @pytest.mark.parametrize("name", ["org", "WORKER", "worke", "example"])
    def test_another_name_is_403(self, name: str) -> None:
        refusal = ClientPolicy(certificate_required=True, allowed_names=frozenset({name})).refusal(CERTIFICATE, NOW)

        assert refusal is not None
        assert refusal[0] == 403

    def test_without_names_every_certificate_of_the_ca_may_read(self) -> None:
        assert ClientPolicy(certificate_required=True).refusal({"subject": (), **END}, NOW) is None

    @pytest.mark.parametrize(
        "end", ["Aug  1 00:00:00 2026 GMT", "some day", ""], ids=["just-now", "unreadable", "none"]
    )
    def test_a_certificate_that_has_ended_is_401(self, end: str) -> None:
        """The handshake checked it, perhaps long ago; each request asks again."""
        refusal = ClientPolicy(certificate_required=True).refusal({**CERTIFICATE, "notAfter": end}, NOW)

        assert refusal == (401, "the client certificate has ended")


@pytest.mark.asyncio
class TestMutualTls:
    @pytest.mark.parametrize(
        ("shown", "names", "reason"),
        [
            (None, [], "a client certificate is required"),
            ("other", ["other"], "the client certificate carries none of the allowed names"),
        ],
        ids=["nothing", "another-name"],
    )
    async def test_refused_clients_are_logged_at_a_limited_rate(
        self, store: SnapshotStore, clock: FakeClock, shown: str | None, names: list[str], reason: str
    ) -> None:
        logged = Logged()
        policy = ClientPolicy(certificate_required=True, allowed_names=frozenset({"worker"}))
        identity = server_identity(cas(authority()))
        context = client(None if shown is None else authority().client(shown))
        async with (
            running(
                Listener(
                    application(store, clock, policy, (PING,), logged), [("127.0.0.1", 0)], identity, log=logged.log
                )
            ) as listener,
            connected(listener.addresses[0], context) as peer,
        ):
            for _ in range(3):
                await peer.get(PATH)
            clock.monotonic_s += 11
            await peer.get(PATH)
        first, second = logged.events("client_refused")
        assert first == {"log_level": "warning", "reason": reason, "peer": "127.0.0.1", "names": names}
        assert second == {**first, "left_out": 2}

    @pytest.mark.parametrize(
        ("shown", "status"),
        [(None, 401), ("worker", 200), ("other", 403)],
        ids=["nothing", "an-allowed-name", "another-name"],
    )
    async def test_the_certificate_decides_about_everything_but_the_probes(
        self, store: SnapshotStore, clock: FakeClock, shown: str | None, status: int
    ) -> None:
        policy = ClientPolicy(certificate_required=True, allowed_names=frozenset({"worker"}))
        app = application(store, clock, policy, (PING,))
        identity = server_identity(cas(authority()))
        context = client(None if shown is None else authority().client(shown))
        async with (
            running(Listener(app, [("127.0.0.1", 0)], identity, log=Logged().log)) as listener,
            connected(listener.addresses[0], context) as peer,
        ):
            for path in (PATH, "/metrics"):
                answer = await peer.get(path)
                assert answer.status == status
                if status != 200:
                    assert json.loads(answer.body)["message"]
            assert (await peer.get("/absent")).status == (404 if status == 200 else status)
            assert (await peer.get("/livez")).status == 200
            assert (await peer.get("/readyz")).status == 500


@pytest.mark.asyncio
@pytest.mark.parametrize("target", [b"CONNECT example.org:443", b"OPTIONS *"])
@pytest.mark.parametrize(("access", "status"), [(ANYONE, b"404"), (ClientPolicy(True), b"401")])
async def test_what_has_no_path_is_answered_as_everything_else(
    start: Start, target: bytes, access: ClientPolicy, status: bytes
) -> None:
    server = (await start(access)).server
    reader, writer = await asyncio.open_connection(server.host, server.port)
    writer.write(target + b" HTTP/1.1\r\nHost: example.org\r\nConnection: close\r\n\r\n")
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()

    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.split()[1] == status
    assert b"application/json" in head
    assert "message" in json.loads(body)
