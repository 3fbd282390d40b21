"""One exchange: whatever the peer does, the answer is whole and bounded, or a failure in our own words."""

import asyncio
import gzip
import ssl
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import unused_port
from typing_extensions import override
from yarl import URL

from devicemanager.clock import SystemClock
from devicemanager.errors import FetchError
from devicemanager.model.usage import SourceState
from devicemanager.transport import body_memory, peer_time
from devicemanager.transport.client import INTERIM_LIMIT, HttpClient
from devicemanager.transport.failures import attempt, within
from devicemanager.transport.messages import Received, Request
from tests.timing import until
from tests.unit.worker.conftest import SERVER_NAME, DeviceManagerPeer, Handler, StartPeer

LIMIT_BYTES = 100_000


@pytest_asyncio.fixture
async def client() -> AsyncIterator[HttpClient]:
    async with HttpClient(SystemClock(), connections=10) as client:
        yield client


async def ask(
    client: HttpClient,
    url: URL,
    *,
    deadline_s: float = 5.0,
    tls: ssl.SSLContext | None = None,
    server_hostname: str | None = None,
) -> Received:
    request = Request("GET", url, LIMIT_BYTES, tls=tls, server_hostname=server_hostname)
    async with within(deadline_s):
        return await client.exchange(request)


def answering(body: bytes, **headers: str) -> Handler:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(body=body, headers={name.replace("_", "-"): value for name, value in headers.items()})

    return answer


@pytest.mark.asyncio
async def test_an_answer_comes_whole_with_its_times(client: HttpClient, start_peer: StartPeer) -> None:
    peer = await start_peer(
        answering(b'{"a":1}', Age="7", Date="Wed, 12 Aug 2026 09:15:04 GMT", Content_Type="application/json")
    )
    before = SystemClock().monotonic()

    received = await ask(client, peer.make_url("/x"))

    assert (received.status, received.body) == (200, b'{"a":1}')
    assert received.age_s == 7
    assert received.date == datetime(2026, 8, 12, 9, 15, 4, tzinfo=UTC)
    assert before <= received.received_monotonic_s <= SystemClock().monotonic()


@pytest.mark.parametrize("age", ["-1", "1.5", "soon", "", "\u0661", "1 2"])
@pytest.mark.asyncio
async def test_an_age_that_is_no_count_of_seconds_is_none(
    client: HttpClient, start_peer: StartPeer, age: str
) -> None:
    peer = await start_peer(answering(b"{}", Age=age))

    assert (await ask(client, peer.make_url("/"))).age_s is None


@pytest.mark.parametrize(
    ("age", "seconds"),
    [
        ("0", 0),
        (" 007 ", 7),
        ("2147483647", 2**31 - 1),
        ("99999999999", 2**31),
        ("9" * 7000, 2**31),
        ("0" * 7000 + "5", 5),
    ],
    ids=["none", "padded", "31 bits", "11 digits", "7000 digits", "7000 zeros"],
)
@pytest.mark.asyncio
async def test_an_age_beyond_counting_is_very_old(
    client: HttpClient, start_peer: StartPeer, age: str, seconds: int
) -> None:
    peer = await start_peer(answering(b"{}", Age=age))

    assert (await ask(client, peer.make_url("/"))).age_s == seconds


@pytest.mark.parametrize("date", ["yesterday", "Wed, 99 Aug 2026 09:15:04 GMT", "Fri, 31 Dec 9999 23:59:59 -2359"])
@pytest.mark.asyncio
async def test_an_invalid_date_is_none(client: HttpClient, start_peer: StartPeer, date: str) -> None:
    peer = await start_peer(answering(b"{}", Date=date))

    assert (await ask(client, peer.make_url("/"))).date is None


@pytest.mark.asyncio
async def test_gzip_is_understood(client: HttpClient, start_peer: StartPeer) -> None:
    peer = await start_peer(answering(gzip.compress(b"x" * LIMIT_BYTES), Content_Encoding="gzip"))

    assert (await ask(client, peer.make_url("/"))).body == b"x" * LIMIT_BYTES


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        pytest.param(answering(b"x" * (LIMIT_BYTES + 1)), "longer than 100000 bytes", id="too long"),
        pytest.param(
            answering(gzip.compress(b"\0" * 50_000_000), Content_Encoding="gzip"), "longer than", id="gzip bomb"
        ),
        pytest.param(
            answering(gzip.compress(b"x" * 90_000)[:-20], Content_Encoding="gzip"), "ended early", id="half a gzip"
        ),
        pytest.param(answering(b"plain", Content_Encoding="gzip"), "not the gzip", id="no gzip"),
        pytest.param(
            answering(zlib.compress(b"x"), Content_Encoding="deflate"), "content encoding", id="another encoding"
        ),
        pytest.param(
            answering(gzip.compress(b"x"), Content_Encoding="gzip, gzip"), "content encoding", id="twice encoded"
        ),
    ],
)
@pytest.mark.asyncio
async def test_a_body_that_cannot_be_used_is_invalid(
    client: HttpClient, start_peer: StartPeer, answer: Handler, said: str
) -> None:
    peer = await start_peer(answer)

    with pytest.raises(FetchError, match=said) as caught:
        await ask(client, peer.make_url("/"))

    assert caught.value.state is SourceState.INVALID


@pytest.mark.asyncio
async def test_an_endless_body_is_cut_at_the_limit(client: HttpClient, start_peer: StartPeer) -> None:
    sent = 0

    async def endless(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        stream = web.StreamResponse()
        await stream.prepare(request)
        while True:
            await stream.write(b" " * 65_536)
            sent += 65_536
            await asyncio.sleep(0)  # the peer lives on our own loop, and a write does not always wait

    peer = await start_peer(endless)

    with pytest.raises(FetchError, match="longer than") as caught:
        await ask(client, peer.make_url("/"))

    assert caught.value.state is SourceState.INVALID
    assert sent < 20_000_000  # what socket buffers took, not what the peer would have sent


@pytest.mark.asyncio
async def test_what_follows_a_compressed_body_is_not_taken_in(client: HttpClient, start_peer: StartPeer) -> None:
    taken_bytes = 0

    async def go_on_for_ever(request: web.Request) -> web.StreamResponse:
        nonlocal taken_bytes
        response = web.StreamResponse(headers={"Content-Encoding": "gzip"})
        await response.prepare(request)
        await response.write(gzip.compress(b"{}"))
        while True:
            await response.write(b"x" * 65536)
            taken_bytes += 65536

    peer = await start_peer(go_on_for_ever)

    with pytest.raises(FetchError, match="goes on after its end") as caught:
        await ask(client, peer.make_url("/"), deadline_s=5)

    assert caught.value.state is SourceState.INVALID
    assert taken_bytes < 16 << 20  # what the sockets hold, and no more


@pytest.mark.asyncio
async def test_a_slow_drip_ends_at_the_deadline(client: HttpClient, start_peer: StartPeer) -> None:
    gone = asyncio.Event()

    async def drip(request: web.Request) -> web.StreamResponse:
        stream = web.StreamResponse()
        await stream.prepare(request)
        try:
            while True:
                await stream.write(b" ")
                await asyncio.sleep(0.01)
        finally:
            gone.set()

    peer = await start_peer(drip)

    with pytest.raises(FetchError, match=r"no complete answer within 0\.2 s") as caught:
        await ask(client, peer.make_url("/"), deadline_s=0.2)

    assert caught.value.state is SourceState.TIMEOUT
    async with asyncio.timeout(5):
        await gone.wait()  # the connection was closed, not left dripping


@pytest.mark.asyncio
async def test_half_a_body_is_invalid(client: HttpClient, start_peer: StartPeer) -> None:
    async def half(request: web.Request) -> web.StreamResponse:
        stream = web.StreamResponse(headers={"Content-Length": "100"})
        await stream.prepare(request)
        await stream.write(b"{")
        assert request.transport is not None
        request.transport.close()
        return stream

    peer = await start_peer(half)

    with pytest.raises(FetchError, match="ended early") as caught:
        await ask(client, peer.make_url("/"))

    assert caught.value.state is SourceState.INVALID


@pytest.mark.asyncio
async def test_a_redirect_is_not_followed(client: HttpClient, start_peer: StartPeer) -> None:
    asked: list[str] = []

    async def redirect(request: web.Request) -> web.StreamResponse:
        asked.append(request.path)
        return web.Response(status=302, headers={"Location": "/elsewhere"})

    peer = await start_peer(redirect)

    with pytest.raises(FetchError, match="redirect") as caught:
        await ask(client, peer.make_url("/here"))

    assert caught.value.state is SourceState.INVALID
    assert asked == ["/here"]


@pytest.mark.asyncio
async def test_a_closed_port_is_unreachable_and_its_address_is_not_shown(client: HttpClient) -> None:
    with pytest.raises(FetchError, match="cannot connect: Connection refused") as caught:
        await ask(client, URL(f"http://127.0.0.1:{unused_port()}/"))

    assert caught.value.state is SourceState.UNREACHABLE
    assert "127.0.0.1" not in caught.value.message


@pytest.mark.asyncio
async def test_a_reset_is_unreachable(client: HttpClient, start_peer: StartPeer) -> None:
    async def reset(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    peer = await start_peer(reset)

    with pytest.raises(FetchError, match="connection was lost") as caught:
        await ask(client, peer.make_url("/"))

    assert caught.value.state is SourceState.UNREACHABLE


@pytest.mark.asyncio
async def test_what_is_no_http_is_invalid(client: HttpClient) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"SSH-2.0-OpenSSH_9.6\r\n")
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        with pytest.raises(FetchError) as caught:
            await ask(client, URL(f"http://127.0.0.1:{port}/"))

    assert caught.value.state is SourceState.INVALID


@pytest.mark.asyncio
async def test_the_environment_names_no_proxy_for_us(
    client: HttpClient, start_peer: StartPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{unused_port()}")
    peer = await start_peer(answering(b"{}"))

    assert (await ask(client, peer.make_url("/"))).body == b"{}"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        pytest.param("another.name.svc", "certificate not accepted: Hostname mismatch", id="another name"),
        pytest.param(None, "certificate not accepted: IP address mismatch", id="the address"),
    ],
)
@pytest.mark.asyncio
async def test_a_certificate_for_another_name_is_refused(
    client: HttpClient, device_manager: DeviceManagerPeer, name: str | None, said: str
) -> None:
    url = URL(f"https://127.0.0.1:{device_manager.port}/")
    tls = device_manager.client_context()

    with pytest.raises(FetchError, match=said) as caught:
        await ask(client, url, tls=tls, server_hostname=name)

    assert caught.value.state is SourceState.UNREACHABLE
    assert device_manager.requests == []


@pytest.mark.asyncio
async def test_an_attempt_gives_the_failure_as_a_value() -> None:
    failure = FetchError(SourceState.TIMEOUT, "late")

    async def fail() -> int:
        raise failure

    async def succeed() -> int:
        return 3

    assert await attempt(fail()) is failure
    assert await attempt(succeed()) == 3


def interim(count: int, status: bytes = b"100 Continue") -> Handler:
    """That many interim answers, and then the answer, on one connection."""

    async def answer(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        for _ in range(count):
            request.transport.write(b"HTTP/1.1 " + status + b"\r\n\r\n")
        return web.Response(body=b"{}")

    return answer


@pytest.mark.parametrize("status", [b"100 Continue", b"102 Processing", b"103 Early Hints", b"199 X"])
@pytest.mark.asyncio
async def test_interim_answers_are_limited(client: HttpClient, start_peer: StartPeer, status: bytes) -> None:
    """Counted anew for each answer on a connection."""
    peer = await start_peer(interim(INTERIM_LIMIT, status))
    for _ in range(3):
        assert (await ask(client, peer.make_url("/"))).body == b"{}"
    more = await start_peer(interim(INTERIM_LIMIT + 1, status))
    for _ in range(2):
        with pytest.raises(FetchError, match="more than 8 interim answers") as caught:
            await ask(client, more.make_url("/"))
        assert caught.value.state is SourceState.INVALID


# Connections that are kept


class MovableClock(SystemClock):
    """The machine's time, on a wall clock that a test moves."""

    moved = timedelta(0)

    @override
    def now(self) -> datetime:
        return super().now() + self.moved


@pytest.mark.parametrize(
    ("moved", "connections"),
    [(timedelta(0), 1), (timedelta(hours=23), 1), (timedelta(hours=25), 2)],
    ids=["at once", "before its end", "after its end"],
)
@pytest.mark.asyncio
async def test_a_kept_connection_is_not_used_once_the_peers_certificate_has_expired(
    device_manager: DeviceManagerPeer, tmp_path: Path, moved: timedelta, connections: int
) -> None:
    peer = DeviceManagerPeer(tmp_path / "day", authority=device_manager.authority, days=1)
    await peer.start()
    context = await asyncio.to_thread(peer.client_context)
    url = URL(f"https://127.0.0.1:{peer.port}/")
    clock = MovableClock()
    async with HttpClient(clock) as client:
        for _ in range(2):
            await ask(client, url, tls=context, server_hostname=SERVER_NAME)
        clock.moved = moved
        await ask(client, url, tls=context, server_hostname=SERVER_NAME)
    await peer.stop()

    assert len(set(peer.connections)) == connections


@pytest.mark.asyncio
async def test_an_answer_is_read_to_its_end_though_the_certificate_expires_meanwhile(
    device_manager: DeviceManagerPeer, tmp_path: Path
) -> None:
    clock = MovableClock()

    async def slow(request: web.Request) -> web.StreamResponse:
        stream = web.StreamResponse()
        await stream.prepare(request)
        await stream.write(b"x" * 1000)
        clock.moved = timedelta(days=400)
        await stream.write(b"x" * 1000)
        return stream

    device_manager.answer = slow
    context = await asyncio.to_thread(device_manager.client_context)
    async with HttpClient(clock) as client:
        url = URL(f"https://127.0.0.1:{device_manager.port}/")
        received = await ask(client, url, tls=context, server_hostname=SERVER_NAME)

    assert len(received.body) == 2000


@pytest.mark.asyncio
async def test_a_connection_that_is_not_verified_is_kept_whatever_its_certificate_says(
    device_manager: DeviceManagerPeer, tmp_path: Path
) -> None:
    peer = DeviceManagerPeer(tmp_path / "ended", authority=device_manager.authority, days=-1)
    await peer.start()
    context = await asyncio.to_thread(peer.client_context)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    async with HttpClient(SystemClock()) as client:
        for _ in range(3):
            await ask(client, URL(f"https://127.0.0.1:{peer.port}/"), tls=context)
    await peer.stop()

    assert len(set(peer.connections)) == 1


@pytest.mark.parametrize(
    "said", [b"SSH-2.0-OpenSSH_9.6\r\n", b"HTTP/1.1 abc\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"]
)
@pytest.mark.asyncio
async def test_a_peer_that_speaks_something_else_is_said_to_in_plain_words(client: HttpClient, said: bytes) -> None:
    async with speaking(said) as port:
        with pytest.raises(FetchError) as http:
            await ask(client, URL(f"http://127.0.0.1:{port}/"))
        with pytest.raises(FetchError) as tls:
            await ask(client, URL(f"https://127.0.0.1:{port}/"))

    assert (http.value.state, http.value.message) == (SourceState.INVALID, "the answer is not valid HTTP")
    assert tls.value.state is SourceState.UNREACHABLE
    assert tls.value.message == "cannot connect: what listens there does not speak TLS"


@asynccontextmanager
async def speaking(said: bytes) -> AsyncIterator[int]:
    """A server that says the same to everybody; its port."""

    async def speak(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(speak, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


async def hang(request: web.Request) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError


async def begin_and_hang(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    await response.write(b"{")
    await asyncio.Event().wait()
    raise AssertionError


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("answer", "backend", "by_peer"),
    [(hang, "", True), (begin_and_hang, "", True), (hang, "node-a", False), (begin_and_hang, "node-a", True)],
)
async def test_who_takes_too_long_is_to_blame_and_behind_somebody_only_once_it_answers(
    client: HttpClient,
    start_peer: StartPeer,
    monkeypatch: pytest.MonkeyPatch,
    answer: Handler,
    backend: str,
    *,
    by_peer: bool,
) -> None:
    monkeypatch.setattr(peer_time, "ENOUGH_S", 0.1)
    peer = await start_peer(answer)
    request = Request("GET", peer.make_url("/x"), LIMIT_BYTES, backend=backend)

    async def read() -> Received:
        async with within(0.3):
            return await client.exchange(request)

    with peer_time.measured():
        outcome = await attempt(read())

    assert isinstance(outcome, FetchError)
    assert (outcome.state, outcome.by_peer) == (SourceState.TIMEOUT, by_peer)


@pytest.mark.asyncio
async def test_nobody_is_to_blame_for_the_wait_for_a_connection(
    start_peer: StartPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_time, "ENOUGH_S", 0.1)
    asked = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        asked.set()
        return await hang(request)

    peer = await start_peer(answer)
    async with HttpClient(SystemClock(), connections=1) as client, asyncio.TaskGroup() as tasks:
        first = tasks.create_task(attempt(ask(client, peer.make_url("/x"))))
        await asked.wait()
        with peer_time.measured():
            outcome = await attempt(ask(client, peer.make_url("/y"), deadline_s=0.3))
        first.cancel()

    assert isinstance(outcome, FetchError)
    assert (outcome.state, outcome.by_peer) == (SourceState.TIMEOUT, False)


@pytest.mark.asyncio
@pytest.mark.parametrize("backend", ["", "node-a"])
async def test_a_redirect_is_the_peers_fault_where_nobody_is_before_it(
    client: HttpClient, start_peer: StartPeer, backend: str
) -> None:
    async def redirect(request: web.Request) -> web.StreamResponse:
        raise web.HTTPFound("/elsewhere")

    peer = await start_peer(redirect)
    with pytest.raises(FetchError) as caught:
        await client.exchange(Request("GET", peer.make_url("/x"), LIMIT_BYTES, backend=backend))

    assert caught.value.by_peer is (backend == "")


@pytest.mark.asyncio
async def test_the_read_of_a_body_that_stalls_while_others_wait_ends_before_its_deadline(
    client: HttpClient, start_peer: StartPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(body_memory, "STALLED_S", 0.1)
    memory = body_memory.BodyMemory(400)

    async def stall(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(bytes(1000))
        return await hang(request)

    stalling, honest = await start_peer(stall), await start_peer(answering(bytes(500)))

    async def read(url: URL) -> Received | FetchError:
        with memory.peers.holding():
            return await attempt(ask(client, url, deadline_s=60))

    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        stalled = tasks.create_task(read(stalling.make_url("/x")))
        await until(lambda: memory.held_bytes == 1000)
        received = await read(honest.make_url("/x"))
        failure = await stalled

    assert isinstance(received, Received)
    assert len(received.body) == 500
    assert isinstance(failure, FetchError)
    assert (failure.state, failure.by_peer) == (SourceState.TIMEOUT, True)
    assert memory.held_bytes == 0
