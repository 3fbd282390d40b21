import asyncio
import contextlib
import errno
import gc
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from devicemanager.serving import memory
from devicemanager.serving.connection import Connection
from devicemanager.serving.limits import Limits
from devicemanager.serving.listener import Listener
from tests.timing import DEADLINE_S, until
from tests.tls_peers import (
    Logged,
    Peer,
    authority,
    blocking_get,
    cas,
    client,
    connected,
    on_both_loops,
    refused,
    running,
    server_identity,
)

WORKER = authority().client("worker")


class Service:
    """An application with an answer that comes at once and one that a test releases."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.released = asyncio.Event()
        self.app = web.Application()
        self.app.router.add_get("/", self._at_once)
        self.app.router.add_get("/late", self._late)

    async def _at_once(self, _request: web.Request) -> web.StreamResponse:
        return web.Response(text="now")

    async def _late(self, _request: web.Request) -> web.StreamResponse:
        self.entered.set()
        await self.released.wait()
        return web.Response(text="late")


@contextlib.asynccontextmanager
async def serving(
    limits: Limits | None = None, logged: Logged | None = None, service: Service | None = None
) -> AsyncIterator[Listener]:
    log = (logged or Logged()).log
    app = (service or Service()).app
    identity = server_identity(cas(authority()))
    async with running(Listener(app, [("127.0.0.1", 0)], identity, limits=limits, log=log)) as listener:
        yield listener


def _fail(monkeypatch: pytest.MonkeyPatch, number: int, family: socket.AddressFamily | None = None) -> None:
    """Have the kernel refuse sockets of one family, or all."""
    create = socket.create_server

    def refusing(address: tuple[str, int], **options: Any) -> socket.socket:
        if family in (None, options["family"]):
            raise OSError(number, "refused")
        return create(address, **options)

    monkeypatch.setattr(socket, "create_server", refusing)


class TestAddresses:
    @on_both_loops
    @pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
    async def test_port_0_takes_a_free_port_which_is_told(self, address: str) -> None:
        listener = Listener(Service().app, [(address, 0), (address, 0)], server_identity(), log=Logged().log)
        async with running(listener):
            (first, first_port), (second, second_port) = listener.addresses
            assert first == second == address
            assert 0 < first_port != second_port > 0
            for bound in listener.addresses:
                async with connected(bound, client()) as peer:
                    assert (await peer.get()).body == b"now"

    @on_both_loops
    async def test_the_unspecified_ipv6_address_takes_ipv4_too(self) -> None:
        listener = Listener(Service().app, [("::", 0)], server_identity(), log=Logged().log)
        async with running(listener), connected(("127.0.0.1", listener.addresses[0][1]), client()) as peer:
            assert (await peer.get()).status == 200

    @on_both_loops
    async def test_a_taken_port_is_an_error_and_nothing_stays_open(self) -> None:
        async with serving() as listener:
            wanted = [("127.0.0.1", 0), listener.addresses[0]]
            second = Listener(Service().app, wanted, server_identity(), log=Logged().log)
            with pytest.raises(
                OSError, match="another program listens there; choose another --secure-port"
            ) as raised:
                await second.start()

        assert raised.value.errno == errno.EADDRINUSE

    @on_both_loops
    async def test_an_address_of_another_machine_is_named(self) -> None:
        listener = Listener(Service().app, [("192.0.2.1", 0)], server_identity(), log=Logged().log)
        with pytest.raises(OSError, match=r"192\.0\.2\.1:0: no address of this machine"):
            await listener.start()

    @on_both_loops
    async def test_a_port_that_needs_a_right_is_said_to(self, monkeypatch: pytest.MonkeyPatch) -> None:
        _fail(monkeypatch, errno.EACCES)
        listener = Listener(Service().app, [("::1", 443)], server_identity(), log=Logged().log)
        with pytest.raises(OSError, match=r"\[::1\]:443: not permitted; ports below 1024"):
            await listener.start()

    @on_both_loops
    async def test_the_unspecified_ipv6_address_is_the_ipv4_one_without_ipv6(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        _fail(monkeypatch, errno.EAFNOSUPPORT, family=socket.AF_INET6)
        logged = Logged()
        listener = Listener(Service().app, [("::", 0)], server_identity(), log=logged.log)
        async with running(listener), connected(("127.0.0.1", listener.addresses[0][1]), client()) as peer:
            assert (await peer.get()).status == 200
            assert listener.addresses[0][0] == "0.0.0.0"
        assert [entry["address"] for entry in logged.events("kernel_without_ipv6")] == ["0.0.0.0"]

    @on_both_loops
    async def test_one_ipv6_address_has_no_stand_in(self, monkeypatch: pytest.MonkeyPatch) -> None:
        _fail(monkeypatch, errno.EAFNOSUPPORT, family=socket.AF_INET6)
        with pytest.raises(OSError, match="family"):
            await Listener(Service().app, [("::1", 0)], server_identity(), log=Logged().log).start()


class TestHandshakes:
    @on_both_loops
    async def test_a_refusal_is_logged_with_its_reason_and_peer(self) -> None:
        logged = Logged()
        peer = client(authority("other").client("worker"))
        async with serving(logged=logged) as listener:
            assert await refused(listener.addresses[0], peer)
            await until(lambda: logged.events("handshake_refused"))

        (line,) = logged.events("handshake_refused")
        assert line["peer"] == "127.0.0.1"
        assert line["log_level"] == "warning"
        assert str(line["reason"]).startswith("client certificate refused: ")

    @on_both_loops
    async def test_refusals_are_logged_at_a_bounded_rate(self) -> None:
        logged = Logged()
        peer = client(authority("other").client("worker"))
        async with serving(logged=logged) as listener:
            for _ in range(5):
                assert await refused(listener.addresses[0], peer)

        assert len(logged.events("handshake_refused")) == 1

    @on_both_loops
    async def test_plain_http_is_refused_with_its_reason(self) -> None:
        logged = Logged()
        async with serving(logged=logged) as listener, connected(listener.addresses[0], None) as peer:
            peer.send()
            await peer.closed()
            await until(lambda: logged.events("handshake_refused"))

        assert [line["reason"] for line in logged.events("handshake_refused")] == ["http request"]

    @on_both_loops
    async def test_one_that_takes_too_long_is_aborted(self) -> None:
        logged = Logged()
        limits = Limits(handshake_s=0.1)
        async with serving(limits, logged) as listener, connected(listener.addresses[0], None) as peer:
            assert await peer.closed() == b""
            await until(lambda: not listener.connections)

        assert [line["reason"] for line in logged.events("handshake_refused")] == ["handshake took too long"]

    @on_both_loops
    async def test_a_peer_that_only_knocks_is_no_news(self) -> None:
        logged = Logged()
        async with serving(logged=logged) as listener:
            async with connected(listener.addresses[0], None):
                await until(lambda: listener.connections)
            await until(lambda: not listener.connections)

        assert {line["log_level"] for line in logged.events("handshake_refused")} <= {"debug"}

    @on_both_loops
    async def test_sessions_are_not_resumed(self) -> None:
        async with serving() as listener:
            context = client(WORKER)
            _, session = await asyncio.to_thread(blocking_get, listener.addresses[0], context, None)
            resumed, _ = await asyncio.to_thread(blocking_get, listener.addresses[0], context, session)

        assert not resumed


class TestLimits:
    @on_both_loops
    async def test_the_longest_waiting_connection_is_evicted(self) -> None:
        logged = Logged()
        async with contextlib.AsyncExitStack() as stack:
            listener = await stack.enter_async_context(serving(Limits(connections=3), logged))
            peers = [await stack.enter_async_context(connected(listener.addresses[0], client())) for _ in range(3)]
            for peer in peers:
                await peer.get()
            earlier = asyncio.get_running_loop().time()
            await until(lambda: asyncio.get_running_loop().time() > earlier)  # uvloop's clock ticks milliseconds
            await peers[0].get()  # now the second has waited longest
            new_peer = await stack.enter_async_context(connected(listener.addresses[0], client()))
            assert (await new_peer.get()).status == 200
            assert await peers[1].closed() == b""
            assert (await peers[0].get()).status == 200
            assert (await peers[2].get()).status == 200

        (line,) = logged.events("connection_evicted")
        assert line["reason"] == "too many connections"

    @on_both_loops
    async def test_a_peer_at_its_limit_evicts_only_its_own_connections(self) -> None:
        logged = Logged()
        async with contextlib.AsyncExitStack() as stack:
            listener = await stack.enter_async_context(serving(Limits(connections_per_peer=2), logged))
            first = await stack.enter_async_context(connected(listener.addresses[0], client()))
            other = await stack.enter_async_context(connected_from("127.0.0.2", listener.addresses[0]))
            await until(lambda: len(listener.connections) == 2)
            for _ in range(2):
                await (await stack.enter_async_context(connected(listener.addresses[0], client()))).get()
            assert await first.closed() == b""
            assert len(listener.connections) == 3
            assert not other.reader.at_eof()

        assert [line["reason"] for line in logged.events("connection_evicted")] == [
            "too many connections from one peer"
        ]

    @on_both_loops
    async def test_a_connection_whose_handler_runs_is_never_evicted(self) -> None:
        logged, service = Logged(), Service()
        async with contextlib.AsyncExitStack() as stack:
            listener = await stack.enter_async_context(serving(Limits(connections=1), logged, service))
            busy = await stack.enter_async_context(connected(listener.addresses[0], client()))
            busy.send("/late")
            await service.entered.wait()
            assert await refused(listener.addresses[0], client())
            service.released.set()
            assert (await busy.answer()).body == b"late"

        assert [line["reason"] for line in logged.events("connection_refused")] == ["too many connections"]

    @on_both_loops
    async def test_a_connection_in_its_handshake_is_evicted_too(self) -> None:
        async with contextlib.AsyncExitStack() as stack:
            listener = await stack.enter_async_context(serving(Limits(connections=1)))
            idle = await stack.enter_async_context(connected(listener.addresses[0], None))
            await until(lambda: listener.connections)
            new_peer = await stack.enter_async_context(connected(listener.addresses[0], client()))
            assert (await new_peer.get()).status == 200
            assert await idle.closed() == b""


class TestDrain:
    @on_both_loops
    async def test_idle_connections_close_at_once_and_nothing_new_is_accepted(self) -> None:
        async with serving() as listener, connected(listener.addresses[0], client()) as peer:
            await peer.get()
            async with asyncio.timeout(DEADLINE_S):
                await listener.drain(10 * DEADLINE_S)
            assert await peer.closed() == b""
            with pytest.raises(ConnectionRefusedError):
                async with connected(listener.addresses[0], client()):
                    pass

    @on_both_loops
    async def test_a_request_in_progress_is_answered(self) -> None:
        service = Service()
        async with serving(service=service) as listener, connected(listener.addresses[0], client()) as peer:
            peer.send("/late")
            await service.entered.wait()
            async with asyncio.TaskGroup() as tasks:
                draining = tasks.create_task(listener.drain(30))
                await until(lambda: all(one.closing_after_response for one in listener.connections))
                service.released.set()
                answer = await peer.answer()
                await draining

        assert (answer.body, answer.headers["Connection"]) == (b"late", "close")

    @on_both_loops
    async def test_one_that_takes_too_long_is_cut_off(self) -> None:
        service, logged = Service(), Logged()
        async with (
            serving(logged=logged, service=service) as listener,
            connected(listener.addresses[0], client()) as peer,
        ):
            peer.send("/late")
            await service.entered.wait()
            await listener.drain(0.1)
            assert await peer.closed() == b""

        assert [line["connections"] for line in logged.events("connections_cut_off")] == [1]

    @on_both_loops
    async def test_a_handshake_does_not_hold_it_up(self) -> None:
        async with serving() as listener, connected(listener.addresses[0], None) as peer:
            await until(lambda: listener.connections)
            await listener.drain(30)
            assert await peer.closed() == b""

    @on_both_loops
    async def test_a_connection_made_just_before_gets_its_answer(self) -> None:
        async with serving() as listener, connected(listener.addresses[0], client()) as peer:
            await until(lambda: any(one.open for one in listener.connections))
            async with asyncio.TaskGroup() as tasks:
                draining = tasks.create_task(listener.drain(30))
                await until(lambda: all(one.closing_after_response for one in listener.connections))
                answer = await peer.get()
                await draining

        assert (answer.status, answer.headers["Connection"]) == (200, "close")

    @on_both_loops
    async def test_retiring_answers_on_and_sends_peers_elsewhere(self) -> None:
        async with serving() as listener, connected(listener.addresses[0], client()) as before:
            await before.get()
            listener.disable_keepalive()
            async with connected(listener.addresses[0], client()) as after:
                for peer in (before, after):
                    answer = await peer.get()
                    assert (answer.status, answer.headers["Connection"]) == (200, "close")
                    assert await peer.closed() == b""


@contextlib.asynccontextmanager
async def connected_from(source: str, address: tuple[str, int]) -> AsyncIterator[Peer]:
    """A idle connection from another loopback address."""
    raw = socket.create_connection(address, source_address=(source, 0))
    raw.setblocking(False)
    reader, writer = await asyncio.open_connection(sock=raw)
    try:
        yield Peer(reader, writer)
    finally:
        writer.transport.abort()


class TestMemory:
    @on_both_loops
    async def test_it_is_given_back_after_many_connections_and_not_after_few(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        given_back: list[int] = []
        monkeypatch.setattr(memory, "trim_malloc", lambda: given_back.append(1))
        monkeypatch.setattr("devicemanager.serving.connection_table._TRIM_AFTER", 3)
        limits = Limits(head_s=0.02)  # sweeps as often
        async with serving(limits) as listener:
            for _ in range(3):
                assert given_back == []
                async with connected(listener.addresses[0], client()) as peer:
                    await peer.get()
                await until(lambda: not listener.connections)
            await until(lambda: given_back)
        assert given_back == [1]


@on_both_loops
async def test_a_closed_connection_is_freed_at_once_without_the_garbage_collector() -> None:
    """Otherwise each burst of connections would keep the memory of the one before."""
    gc.collect()
    gc.disable()
    try:
        async with serving() as listener:
            for _ in range(3):
                async with connected(listener.addresses[0], client(WORKER)) as peer:
                    await peer.get()
            await until(lambda: not listener.connections)
            await until(lambda: not any(isinstance(one, Connection) for one in gc.get_objects()))
    finally:
        gc.enable()
