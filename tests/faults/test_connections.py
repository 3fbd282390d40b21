"""Peers that are slow, many, or speak something else: the others are served, and probes above all."""

import asyncio
import contextlib
import resource
import socket
import ssl
from collections.abc import AsyncIterator, Iterator

import pytest
from aiohttp import web

from devicemanager.serving.limits import Limits
from devicemanager.serving.listener import Listener
from devicemanager.serving.probes import PING, Probe, handler
from tests.timing import until
from tests.tls_peers import (
    DEADLINE_S,
    Logged,
    authority,
    cas,
    client,
    connected,
    on_both_loops,
    running,
    server_identity,
)

SLOW_PEERS = 1000
PROBES = 20
Address = tuple[str, int]


@pytest.fixture(autouse=True)
def _descriptors() -> Iterator[None]:
    """Both ends of a thousand connections are in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.asynccontextmanager
async def serving(logged: Logged, limits: Limits | None = None) -> AsyncIterator[Listener]:
    app = web.Application()
    app.router.add_get("/livez", handler(Probe("livez", [PING], logged.log)))
    identity = server_identity(cas(authority()))
    async with running(Listener(app, [("127.0.0.1", 0)], identity, limits=limits, log=logged.log), 0) as listener:
        yield listener


def hello() -> bytes:
    """The first bytes of a handshake."""
    outgoing = ssl.MemoryBIO()
    asking = client().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="device-manager.test")
    with contextlib.suppress(ssl.SSLWantReadError):
        asking.do_handshake()
    return outgoing.read()


class SlowPeers:
    """Many connections that never get anywhere."""

    def __init__(self, address: Address, sources: int) -> None:
        self._address = address
        self._sources = sources
        self._sockets: list[socket.socket] = []
        self._hello = hello()

    async def open(self, number: int) -> None:
        """Connect, and send nothing, half of a hello, or all of it, by turns."""
        raw = socket.socket()
        raw.setblocking(False)
        raw.bind((f"127.0.1.{1 + number % self._sources}", 0))
        self._sockets.append(raw)
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(DEADLINE_S):
            await loop.sock_connect(raw, self._address)
            # The server may have given this one up already, to make room for a later one.
            with contextlib.suppress(OSError):
                await loop.sock_sendall(raw, (b"", self._hello[:60], self._hello)[number % 3])

    async def open_all(self) -> None:
        for number in range(SLOW_PEERS):
            await self.open(number)

    def close(self) -> None:
        for one in self._sockets:
            one.close()


async def probe(address: Address) -> int:
    async with connected(address, client()) as peer:
        return (await peer.get("/livez")).status


@on_both_loops
@pytest.mark.parametrize("sources", [1, 100], ids=["from-one-address", "from-many-addresses"])
async def test_probes_are_admitted_while_a_thousand_slow_peers_connect_and_stay(sources: int) -> None:
    logged = Logged()
    async with serving(logged) as listener:
        slow = SlowPeers(listener.addresses[0], sources)
        try:
            async with asyncio.TaskGroup() as tasks:
                opening = tasks.create_task(slow.open_all())
                during = [await probe(listener.addresses[0]) for _ in range(PROBES)]
                await opening
            after = [await probe(listener.addresses[0]) for _ in range(PROBES)]
            held = len(listener.connections)
        finally:
            slow.close()

    assert during == after == [200] * PROBES
    assert held <= (32 if sources == 1 else 256) + 1
    assert len(logged.events("connection_evicted")) <= 2  # the rest is counted, not said


@on_both_loops
async def test_probes_are_admitted_beside_a_peer_with_all_its_connections() -> None:
    """From the same address, so that the peer's own allowance is what is full."""
    async with serving(Logged()) as listener, contextlib.AsyncExitStack() as stack:
        for _ in range(40):
            peer = await stack.enter_async_context(connected(listener.addresses[0], client()))
            peer.writer.write(b"GET /livez HTTP/1.1\r\nSlow: ")

        assert [await probe(listener.addresses[0]) for _ in range(PROBES)] == [200] * PROBES
        assert len(listener.connections) <= 32


@on_both_loops
async def test_slow_peers_are_gone_after_the_deadlines() -> None:
    limits = Limits(handshake_s=0.2, head_s=0.2)
    logged = Logged()
    async with serving(logged, limits) as listener, contextlib.AsyncExitStack() as stack:
        for context in (None, client(), None, client()):
            peer = await stack.enter_async_context(connected(listener.addresses[0], context))
            peer.writer.write(b"" if context is None else b"GET /livez HT")
        await until(lambda: len(listener.connections) == 4)
        await until(lambda: not listener.connections)

    assert [line["reason"] for line in logged.events("handshake_refused")] == ["handshake took too long"]
    assert [line["reason"] for line in logged.events("connection_timed_out")] == ["request head not complete"]


@on_both_loops
@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", id="plain-http"),
        pytest.param(b"SSH-2.0-OpenSSH_9.2\r\n", id="ssh"),
        pytest.param(b"\x00" * 4096, id="zeros"),
        pytest.param(b"\x16\x03\x01\xff\xff" + b"x" * 4096, id="a-record-that-lies"),
    ],
)
async def test_garbage_instead_of_tls_ends_that_connection_only(sent: bytes) -> None:
    logged = Logged()
    async with serving(logged) as listener, connected(listener.addresses[0], None) as peer:
        peer.writer.write(sent)
        peer.writer.write_eof()
        await peer.closed()
        await until(lambda: not listener.connections)
        assert await probe(listener.addresses[0]) == 200

    assert logged.events("request_failed") == []
    assert len(logged.events("handshake_refused")) == 1


@on_both_loops
async def test_a_huge_head_is_cut_off_early() -> None:
    logged = Logged()
    async with serving(logged) as listener, connected(listener.addresses[0], client()) as peer:
        peer.writer.write(b"GET /livez HTTP/1.1\r\n")
        with contextlib.suppress(ConnectionError):
            for number in range(100):
                peer.writer.write(f"H{number}: {'x' * 8000}\r\n".encode())
                await peer.writer.drain()
        await peer.closed()
        assert await probe(listener.addresses[0]) == 200

    assert [line["reason"] for line in logged.events("request_refused")] == ["request head too large"]


@on_both_loops
async def test_an_unread_body_does_not_hold_its_connection() -> None:
    async with serving(Logged()) as listener, connected(listener.addresses[0], client()) as peer:
        peer.writer.write(b"GET /livez HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\nx")
        assert (await peer.answer()).status == 200
        assert await peer.closed() == b""
