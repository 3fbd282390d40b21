"""Limits of a listener under load: unfinished heads, responses not taken, and the slots reserved from both."""

import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta

from aiohttp import web

from devicemanager.serving.connection_table import PeerCertificate
from devicemanager.serving.limits import Limits, VerifiedLimits
from devicemanager.serving.listener import Listener
from devicemanager.serving.probes import PING, Probe, handler
from devicemanager.tls.identity import ServerIdentity
from tests.floods import Flood, probe, request
from tests.timing import FakeClock, until
from tests.tls_peers import (
    SERVER_NAMES,
    Logged,
    authority,
    cas,
    client,
    connected,
    on_both_loops,
    parsed,
    refused,
    running,
    server_identity,
)

VERIFIED = VerifiedLimits(connections=2, head_bytes=1024 * 1024, headers=8192, heads_cost=4 * 1024 * 1024)
FRONT_PROXY = authority().client("front-proxy")

LARGE_HEAD = [f"X-Remote-Group: {number:04d}{'g' * 200}" for number in range(400)]
"""About 86 KB: a user of many groups."""


class Service:
    """Answers at once, with more than a small socket buffer holds, or when a test lets it."""

    def __init__(self) -> None:
        self.entered = 0
        self.released = asyncio.Event()

    def app(self, logged: Logged) -> web.Application:
        app = web.Application()
        app.router.add_get("/livez", handler(Probe("livez", [PING], logged.log)))
        app.router.add_route("*", "/", self._at_once)
        app.router.add_get("/large", self._large)
        app.router.add_get("/late", self._late)
        return app

    async def _at_once(self, _request: web.Request) -> web.StreamResponse:
        return web.Response(text="now")

    async def _large(self, _request: web.Request) -> web.StreamResponse:
        return web.Response(body=bytes(60_000))

    async def _late(self, _request: web.Request) -> web.StreamResponse:
        self.entered += 1
        await self.released.wait()
        return web.Response(text="late")


@contextlib.asynccontextmanager
async def serving(
    limits: Limits,
    logged: Logged,
    *,
    service: Service | None = None,
    identity: ServerIdentity | None = None,
    verified: Callable[[PeerCertificate], bool] = lambda _: True,
) -> AsyncIterator[Listener]:
    listener = Listener(
        (service or Service()).app(logged),
        [("127.0.0.1", 0)],
        identity or server_identity(cas(authority())),
        limits=limits,
        verified=verified,
        log=logged.log,
    )
    async with running(listener, 0):
        yield listener


def reasons(logged: Logged, event: str) -> list[object]:
    return [line["reason"] for line in logged.events(event)]


class TestHeads:
    @on_both_loops
    async def test_a_large_head_takes_a_verified_certificate(self) -> None:
        """The worker once took 1 MiB from anybody."""
        logged = Logged()
        async with serving(Limits(verified=VERIFIED), logged) as listener:
            address = listener.addresses[0]
            async with connected(address, client(FRONT_PROXY)) as proxy:
                assert (await proxy.get("/", LARGE_HEAD)).status == 200
            assert reasons(logged, "request_refused") == []
            async with connected(address, client()) as peer:
                peer.send("/", LARGE_HEAD)
                assert (await peer.closed())[:13] in {b"HTTP/1.1 431 ", b""}

        assert reasons(logged, "request_refused") == ["request head too large"]

    @on_both_loops
    async def test_a_certificate_that_is_not_allowed_counts_as_unverified(self) -> None:
        """That its authority is believed does not suffice."""
        logged = Logged()
        async with (
            serving(Limits(verified=VERIFIED), logged, verified=lambda _: False) as listener,
            connected(listener.addresses[0], client(FRONT_PROXY)) as peer,
        ):
            peer.send("/", LARGE_HEAD)
            await peer.closed()

        assert reasons(logged, "request_refused") == ["request head too large"]

    @on_both_loops
    async def test_an_unverified_peer_sends_no_more_lines_than_bytes_allow(self) -> None:
        """Short lines cost most of all, and the parser takes as many as a front proxy may send."""
        logged = Logged()
        async with (
            serving(Limits(verified=VERIFIED), logged) as listener,
            connected(listener.addresses[0], client()) as peer,
        ):
            peer.send("/", ["a:"] * 200)
            await peer.closed()

        assert reasons(logged, "request_refused") == ["request head too large"]

    @on_both_loops
    async def test_unfinished_heads_of_one_address_share_a_budget(self) -> None:
        """The one that has waited longest gives way."""
        logged = Logged()
        limits = Limits(heads_cost_per_peer=30_000)
        async with serving(limits, logged) as listener, contextlib.AsyncExitStack() as stack:
            peers = [await stack.enter_async_context(connected(listener.addresses[0], client())) for _ in range(4)]
            for peer in peers:
                await peer.get()
                peer.writer.write(b"GET / HTTP/1.1\r\nHost: a\r\nA: " + b"x" * 4000)
            await peers[0].closed()
            for peer in peers[1:]:
                peer.writer.write(b"\r\n\r\n")
                assert (await peer.answer()).status == 200

        assert reasons(logged, "connection_evicted") == ["too many unfinished request heads from one peer"]

    @on_both_loops
    async def test_a_head_that_comes_behind_a_request_has_its_time_and_its_size(self) -> None:
        """Neither was once applied to what came in one piece with a request, or while that was answered."""
        logged, service = Logged(), Service()
        limits = Limits(head_s=0.2)
        async with serving(limits, logged, service=service) as listener:
            async with connected(listener.addresses[0], client()) as peer:
                peer.writer.write(request("/") + b"GET / HTT")
                assert (await peer.answer()).status == 200
                assert await peer.closed() == b""
            assert reasons(logged, "connection_timed_out") == ["request head not complete"]
            async with connected(listener.addresses[0], client()) as peer:
                peer.writer.write(request("/late"))
                await until(lambda: service.entered)
                peer.send("/", LARGE_HEAD)
                service.released.set()
                assert (await peer.answer()).body == b"late"
                await peer.closed()
            assert reasons(logged, "request_refused") == ["request head too large"]

    @on_both_loops
    async def test_requests_sent_together_are_answered_in_order(self) -> None:
        async with serving(Limits(), Logged()) as listener, connected(listener.addresses[0], client()) as peer:
            peer.writer.write((request("/") + request("/livez") + request("/large")) * 5)
            answers = [await peer.answer() for _ in range(15)]

        assert [len(one.body) for one in answers] == [3, 2, 60_000] * 5

    @on_both_loops
    async def test_a_body_is_no_head_and_is_thrown_away(self) -> None:
        """It is larger than any head may be, and the next request follows it."""
        async with serving(Limits(), Logged()) as listener, connected(listener.addresses[0], client()) as peer:
            body = bytes(200_000)
            peer.writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            peer.writer.write(request("/livez"))
            assert (await peer.answer()).body == b"now"
            assert (await peer.answer()).body == b"ok"


class TestAnswers:
    @on_both_loops
    async def test_an_answer_that_fits_the_buffers_is_waited_for_no_longer_than_another(self) -> None:
        """The kernel holds it, and the connection once counted as idle for 75 s."""
        logged = Logged()
        async with serving(Limits(delivery_s=0.3), logged) as listener:
            with Flood(listener.addresses[0][1]) as flood:
                one = await asyncio.to_thread(flood.open, "127.0.0.2")
                assert one is not None
                await asyncio.to_thread(flood.push, one, request("/large"))
                await until(lambda: not listener.connections)

        assert reasons(logged, "connection_timed_out") == ["response not taken"]

    @on_both_loops
    async def test_a_connection_that_is_reset_with_answers_not_taken_ends_at_once(self) -> None:
        """Nothing was read from it, so it once went unnoticed until the time for taking an answer was over."""
        async with serving(Limits(delivery_s=3600), Logged()) as listener:
            with Flood(listener.addresses[0][1]) as flood:
                one = await asyncio.to_thread(flood.open, "127.0.0.2")
                assert one is not None
                await asyncio.to_thread(flood.push, one, request("/large") * 10_000)
                assert len(listener.connections) == 1
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            await until(lambda: not listener.connections)

    @on_both_loops
    async def test_answers_not_taken_share_a_budget(self) -> None:
        """The one that has waited longest gives way, and no further request of its is begun."""
        logged = Logged()
        async with serving(Limits(undelivered_bytes=130_000), logged) as listener:
            with Flood(listener.addresses[0][1]) as flood:
                for number in range(3):
                    one = await asyncio.to_thread(flood.open, f"127.0.0.{2 + number}")
                    assert one is not None
                    await asyncio.to_thread(flood.push, one, request("/large") * 3)
                await until(lambda: logged.events("connection_evicted"))
                left = {one.peer for one in listener.connections}

        assert reasons(logged, "connection_evicted") == ["too many answers not taken"]
        assert left == {"127.0.0.3", "127.0.0.4"}

    @on_both_loops
    async def test_a_connection_whose_answer_is_not_taken_is_evicted(self) -> None:
        """It once counted as a request in flight, and new connections were refused."""
        logged = Logged()
        async with serving(Limits(connections=2), logged) as listener:
            port = listener.addresses[0][1]
            with Flood(port) as flood:
                for number in range(2):
                    one = await asyncio.to_thread(flood.open, f"127.0.0.{2 + number}")
                    assert one is not None
                    await asyncio.to_thread(flood.push, one, request("/large") * 150)
                assert [await asyncio.to_thread(probe, port, "127.0.0.9") for _ in range(5)] == [True] * 5

        assert logged.events("connection_refused") == []


class TestKeptPlaces:
    @on_both_loops
    async def test_requests_that_come_at_once_on_all_connections_keep_no_probe_out(self) -> None:
        """None of them has come to its handler yet, so none is work that must be finished."""
        logged = Logged()
        limits = Limits(connections=3, connections_per_peer=3, reserved_for_probes=1)
        async with serving(limits, logged) as listener:
            port = listener.addresses[0][1]
            with Flood(port) as flood:
                for number in range(3):
                    assert await asyncio.to_thread(flood.open, f"127.0.0.{2 + number}")
                # All of this is there before the loop turns.
                flood.push_all(request("/"))
                flood.idle("127.0.0.9")
                probing = await asyncio.to_thread(flood.shake_hands)
                assert [await asyncio.to_thread(flood.ask, one) for one in probing] == [True]

        assert logged.events("connection_refused") == []
        assert reasons(logged, "connection_evicted") == ["too many connections"]

    @on_both_loops
    async def test_requests_in_flight_leave_slots_to_probes(self) -> None:
        """Unverified peers whose responses take long are told to retry."""
        logged, service = Logged(), Service()
        limits = Limits(connections=4, connections_per_peer=4, reserved_for_probes=2)
        async with serving(limits, logged, service=service) as listener, contextlib.AsyncExitStack() as stack:
            peers = [await stack.enter_async_context(connected(listener.addresses[0], client())) for _ in range(3)]
            for peer in peers[:2]:
                peer.send("/late")
            await until(lambda: service.entered == 2)
            answer = await peers[2].get("/late")
            assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
            assert json.loads(answer.body)["message"]
            probing = await stack.enter_async_context(connected(listener.addresses[0], client()))
            assert (await probing.get("/livez")).status == 200
            service.released.set()
            assert [(await peer.answer()).body for peer in peers[:2]] == [b"late"] * 2
            assert (await probing.get("/late")).status == 200

        assert reasons(logged, "request_refused") == ["too many requests under way"]

    @on_both_loops
    async def test_unverified_peers_do_not_take_the_slots_of_the_verified(self) -> None:
        """Kube-apiserver comes from few addresses, with many connections."""
        logged, service = Logged(), Service()
        limits = Limits(connections=2, connections_per_peer=2, reserved_for_probes=0, verified=VERIFIED)
        async with serving(limits, logged, service=service) as listener, contextlib.AsyncExitStack() as stack:
            address = listener.addresses[0]
            proxies = [await stack.enter_async_context(connected(address, client(FRONT_PROXY))) for _ in range(2)]
            for proxy in proxies:
                await proxy.get()
            unverified = [await stack.enter_async_context(connected(address, client())) for _ in range(2)]
            for peer in unverified:
                peer.send("/late")
            await until(lambda: service.entered == 2)
            assert await refused(address, client())
            assert [(await proxy.get()).status for proxy in proxies] == [200, 200]
            service.released.set()

        assert reasons(logged, "connection_evicted") == []

    @on_both_loops
    async def test_the_longest_waiting_verified_connection_is_evicted_for_another(self) -> None:
        logged = Logged()
        limits = Limits(verified=VERIFIED)
        async with serving(limits, logged) as listener, contextlib.AsyncExitStack() as stack:
            proxies = []
            for _ in range(3):
                proxies.append(
                    await stack.enter_async_context(connected(listener.addresses[0], client(FRONT_PROXY)))
                )
                await proxies[-1].get()
            assert await proxies[0].closed() == b""
            assert [(await proxy.get()).status for proxy in proxies[1:]] == [200, 200]

        assert reasons(logged, "connection_evicted") == ["too many connections with a verified certificate"]


class TestCertificates:
    @on_both_loops
    async def test_a_kept_connection_closes_when_its_certificate_ends(self) -> None:
        """And so does one that has just been made, by the same clock."""
        logged, clock = Logged(), FakeClock(datetime.now(UTC))
        identity = ServerIdentity(parsed(authority().serving(SERVER_NAMES)), clock=clock, log=logged.log)
        identity.trust(cas(authority()))
        context = client(authority().client("worker", days=1))
        limits = Limits(head_s=0.1)  # looked at as often
        async with serving(limits, logged, identity=identity) as listener:
            async with (
                connected(listener.addresses[0], context) as peer,
                connected(listener.addresses[0], client(authority().client("other"))) as other,
            ):
                assert (await peer.get()).status == (await other.get()).status == 200
                clock.wall += timedelta(days=1, seconds=1)
                assert await peer.closed() == b""
                assert (await other.get()).status == 200
            assert await refused(listener.addresses[0], context)

        assert reasons(logged, "client_certificate_expired") == ["its validity is over"]

    @on_both_loops
    async def test_a_certificate_that_is_no_longer_allowed_no_longer_counts_as_verified(self) -> None:
        """The front proxy's names may change while it keeps its connection."""
        allowed = {"front-proxy"}
        limits = Limits(head_s=0.1, verified=VERIFIED)
        async with (
            serving(limits, Logged(), verified=lambda _: bool(allowed)) as listener,
            connected(listener.addresses[0], client(FRONT_PROXY)) as peer,
        ):
            await peer.get()
            (connection,) = listener.connections
            assert connection.verified
            allowed.clear()
            await until(lambda: not connection.verified)
