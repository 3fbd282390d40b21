"""Pins what :mod:`devicemanager.serving.connection` relies on in aiohttp, and what it adds."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from aiohttp import web

from devicemanager.serving.limits import Limits
from devicemanager.serving.listener import Listener
from tests.timing import until
from tests.tls_peers import Logged, Peer, authority, cas, client, connected, running, server_identity

pytestmark = pytest.mark.asyncio

LIMITS = Limits(head_bytes=4096, line_bytes=2048, headers=20, head_s=0.3, response_s=0.6)


class Gate:
    """A handler that answers when a test lets it."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.open = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def answer(self, _request: web.Request) -> web.StreamResponse:
        self.entered.set()
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return web.Response(text="late")


async def greet(request: web.Request) -> web.StreamResponse:
    transport = request.transport
    certificate = None if transport is None else transport.get_extra_info("peercert")
    return web.json_response({"certificate": bool(certificate)})


async def fail(_request: web.Request) -> web.StreamResponse:
    raise RuntimeError("a secret of ours")


async def endless(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(bytes(1 << 20))


@pytest.fixture
def logged() -> Logged:
    return Logged()


@pytest_asyncio.fixture
async def gate() -> Gate:
    return Gate()


@pytest_asyncio.fixture
async def listener(gate: Gate, logged: Logged) -> AsyncIterator[Listener]:
    app = web.Application()
    app.router.add_get("/", greet)
    app.router.add_get("/fail", fail)
    app.router.add_get("/endless", endless)
    app.router.add_get("/late", gate.answer)
    identity = server_identity(cas(authority()))
    async with running(Listener(app, [("127.0.0.1", 0)], identity, limits=LIMITS, log=logged.log), 0) as listener:
        yield listener


@pytest_asyncio.fixture
async def peer(listener: Listener) -> AsyncIterator[Peer]:
    async with connected(listener.addresses[0], client()) as found:
        yield found


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_handler_sees_the_peers_certificate(listener: Listener, version: ssl.TLSVersion) -> None:
    with_one = client(authority().client("worker"), version=version)
    for context, expected in ((with_one, True), (client(version=version), False)):
        async with connected(listener.addresses[0], context) as peer:
            assert json.loads((await peer.get()).body) == {"certificate": expected}


@pytest.mark.parametrize(
    ("path", "status"), [("/", 200), ("/absent", 404), ("/fail", 500)], ids=["found", "absent", "failed"]
)
async def test_no_response_says_what_software_made_it(peer: Peer, path: str, status: int) -> None:
    answer = await peer.get(path)

    assert answer.status == status
    assert "Server" not in answer.headers


async def test_an_internal_error_is_logged_and_not_shown(peer: Peer, logged: Logged) -> None:
    answer = await peer.get("/fail")

    assert json.loads(answer.body) == {"message": "Internal Server Error"}
    assert answer.headers["Connection"] == "close"
    (line,) = logged.events("request_failed")
    assert line["log_level"] == "error"
    assert isinstance(line["exc_info"], RuntimeError)


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        pytest.param(b"\x16\x03garbage\r\n\r\n", "not an HTTP request", id="garbage"),
        pytest.param(b"GET / HTTP/1.1\r\nAuth orization: secret\r\n\r\n", "bad request", id="bad-header"),
        pytest.param(
            b"GET / HTTP/1.1\r\nAuthorization: secret" + b"x" * 3000 + b"\r\n\r\n",
            "request line or header too long",
            id="long-header",
        ),
        pytest.param(
            b"GET /" + b"x" * 3000 + b" HTTP/1.1\r\nHost: a\r\n\r\n",
            "request line or header too long",
            id="long-line",
        ),
        pytest.param(b"GET / HTTP/1.1\r\n" + b"A: secret\r\n" * 30 + b"\r\n", "bad request", id="many-headers"),
    ],
)
async def test_what_is_no_request_is_refused_without_quoting_it(
    peer: Peer, logged: Logged, sent: bytes, reason: str
) -> None:
    peer.writer.write(sent)
    answer = await peer.answer()
    await peer.closed()

    assert (answer.status, json.loads(answer.body)) == (400, {"message": reason})
    assert "Server" not in answer.headers
    assert logged.events("request_refused") == [{"log_level": "info", "reason": reason, "peer": "127.0.0.1"}]


async def test_a_head_that_is_too_large_in_all_is_refused(peer: Peer, logged: Logged) -> None:
    peer.writer.write(b"GET / HTTP/1.1\r\n")
    for number in range(5):
        peer.writer.write(f"A{number}: {'x' * 1000}\r\n".encode())

    assert (await peer.closed()).startswith(b"HTTP/1.1 431 ")
    assert [line["reason"] for line in logged.events("request_refused")] == ["request head too large"]


async def test_the_bytes_of_earlier_requests_do_not_count(peer: Peer) -> None:
    for _ in range(10):
        assert (await peer.get(headers=[f"A: {'x' * 1000}"])).status == 200


@pytest.mark.parametrize("first", [False, True], ids=["first-request", "later-request"])
async def test_a_head_that_takes_too_long_closes_the_connection(peer: Peer, logged: Logged, first: bool) -> None:
    if first:
        await peer.get()
    peer.writer.write(b"GET / HTTP/1.1\r\n")

    assert await peer.closed() == b""
    assert [line["reason"] for line in logged.events("connection_timed_out")] == ["request head not complete"]


async def test_a_peer_that_sends_nothing_is_disconnected(peer: Peer, logged: Logged) -> None:
    assert await peer.closed() == b""
    assert logged.events("connection_timed_out")


async def test_an_idle_connection_stays_open_past_the_deadline_of_a_head(peer: Peer, logged: Logged) -> None:
    await peer.get()
    async with asyncio.TaskGroup() as tasks:
        closing = tasks.create_task(peer.closed())
        done, _ = await asyncio.wait([closing], timeout=3 * LIMITS.head_s)
        closing.cancel()

    assert not done
    assert logged.events("connection_timed_out") == []


async def test_a_response_that_is_not_taken_closes_the_connection(peer: Peer, logged: Logged) -> None:
    peer.send("/endless")

    await until(lambda: logged.events("connection_timed_out"))
    assert [line["reason"] for line in logged.events("connection_timed_out")] == ["response not taken"]


async def test_a_handler_is_cancelled_when_its_peer_disconnects(peer: Peer, gate: Gate) -> None:
    peer.send("/late")
    await gate.entered.wait()
    peer.writer.transport.abort()

    async with asyncio.timeout(5):
        await gate.cancelled.wait()


async def test_a_connection_is_busy_until_the_last_of_its_requests_is_answered(
    peer: Peer, gate: Gate, listener: Listener
) -> None:
    await peer.get()
    (connection,) = listener.connections
    assert not connection.busy
    peer.send("/late")
    peer.send("/")
    await gate.entered.wait()
    assert connection.busy
    gate.open.set()

    assert (await peer.answer()).body == b"late"
    assert (await peer.answer()).status == 200
    await until(lambda: not connection.busy)
    assert connection.answered == 3


async def test_a_retiring_connection_says_so_and_closes_after_its_response(
    peer: Peer, gate: Gate, listener: Listener
) -> None:
    peer.send("/late")
    await gate.entered.wait()
    (connection,) = listener.connections
    connection.close_after_response()
    gate.open.set()

    answer = await peer.answer()
    assert (answer.body, answer.headers["Connection"]) == (b"late", "close")
    assert await peer.closed() == b""
