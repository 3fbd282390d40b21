"""Accepts connections, and decides who may stay when there are too many.

Both servers listen through this. Beside what ``asyncio`` and aiohttp do, it

* gives each handshake the identity's current TLS context, so that a rotated certificate or CA holds from the next
  connection on; closes the connections that a CA vouched for when that CA leaves, those whose certificate has
  ended, and those that could show no certificate once there is a CA to show one to;
* bounds connections in all and per peer, and makes room by giving up whichever has waited longest for its peer: in
  the handshake, for a request, idle between two, or for its answer to be taken. A connection with a request under
  way is never given up, and some places are kept from those, so that a probe is always let in and answered;
* keeps places apart for peers with a verified certificate, which no stranger can take up;
* bounds the time for a handshake, a request head, and a response that is not taken;
* says why a handshake was refused, and by whom, at a bounded rate;
* drains: accepts no more, closes what is idle, waits a bounded time for what is under way.
"""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from http import HTTPStatus
from typing import Final

from aiohttp import hdrs, web
from structlog.typing import FilteringBoundLogger

from devicemanager.aiohttp_internals import hide_server_software
from devicemanager.serving import sockets
from devicemanager.serving.admission import UnderWay
from devicemanager.serving.connection import Connection
from devicemanager.serving.limits import Limits
from devicemanager.serving.log_rate import RateLimitedLog
from devicemanager.serving.messages import problem
from devicemanager.serving.peer_certificates import PeerCertificates, handshake_refusal
from devicemanager.serving.places import PeerCertificate, Places
from devicemanager.serving.probes import PATHS as PROBE_PATHS
from devicemanager.tls.identity import ServerIdentity
from devicemanager.tls.material import reason_of

_SWEEP_S: Final = 1.0
"""How often deadlines are looked at; they are enforced at most this much late."""

_ACCEPT_BATCH: Final = 4
"""Per turn of the loop, so that a newcomer gets several turns before newer ones of its peer push it out."""

_ACCEPT_PAUSE_S: Final = 0.01
"""After the kernel refused, before the next attempt: closing connections takes a moment."""

_TLS_SHUTDOWN_S: Final = 1.0
"""How long a peer may take to answer our goodbye before its socket is closed."""

_NEWCOMER_GRACE_S: Final = 1.0
"""While draining: for a connection that was made just before and has its first request still on the way."""

_CLEANUP_S: Final = 1.0
"""For handlers that were cancelled to come to an end."""


class Listener:
    """Serves one application over TLS on one or more addresses.

    Attributes:
        limits: What peers may take up.
        addresses: Address and port of each listening socket, in the order given; empty before :meth:`start`.
    """

    def __init__(
        self,
        app: web.Application,
        addresses: Sequence[tuple[str, int]],
        identity: ServerIdentity,
        *,
        limits: Limits | None = None,
        verified: Callable[[PeerCertificate], bool] = lambda _: True,
        log: FilteringBoundLogger,
    ) -> None:
        """Prepare; nothing is opened before :meth:`start`.

        Args:
            app: What is served.
            addresses: IP address and port to listen on; port 0 takes a free one. ``::`` takes IPv4 too,
                and IPv4 alone where the kernel has no IPv6.
            identity: Gives each handshake its TLS context.
            limits: The defaults of :class:`Limits` if not given.
            verified: Whether a client certificate, which the handshake has verified, gives its peer one of the
                places kept for such; asked again while the connection lasts.
            log: Where refusals and limits that were reached are said.
        """
        self.limits = limits or Limits()
        self.addresses: tuple[tuple[str, int], ...] = ()
        self._app = app
        self._wanted = tuple(addresses)
        self._identity = identity
        self._log = log
        self._sockets: list[socket.socket] = []
        self._certificates = PeerCertificates(identity)
        self._rated = RateLimitedLog(log, lambda: self._loop.time())
        self._places = Places(self.limits, self._certificates, verified, self._rated)
        self._under_way = UnderWay(self.limits)
        self._retiring = False
        self._stopped = asyncio.Event()
        identity.on_dropped(self._client_cas_dropped)
        identity.on_first(self._client_cas_came)

    @property
    def connections(self) -> frozenset[Connection]:
        """Those accepted and not gone yet, from their acceptance on."""
        return frozenset(self._places.connections)

    async def start(self) -> None:
        """Start the application and listen; connections wait in the kernel until :meth:`serve`.

        Raises:
            OSError: An address cannot be listened on.
        """
        self._loop = asyncio.get_running_loop()
        self._runner = web.AppRunner(
            self._app, handler_cancellation=True, access_log=None, shutdown_timeout=_CLEANUP_S
        )
        await self._runner.setup()
        assert self._runner.server is not None  # noqa: S101 - set up
        self._server = self._runner.server
        hide_server_software(self._server, self._app)
        self._respond = self._server.request_handler
        self._server.request_handler = self._keep_places
        try:
            for address, port in self._wanted:
                self._sockets.append(sockets.listen(address, port, self.limits, self._log))
        except OSError:
            self._stop_listening()
            await self._runner.cleanup()
            raise
        self.addresses = tuple(one.getsockname()[:2] for one in self._sockets)

    async def serve(self) -> None:
        """Accept connections until :meth:`drain` has ended, or for ever."""
        async with asyncio.TaskGroup() as self._handshakes:
            for one in self._sockets:
                self._loop.add_reader(one, self._accept, one)
            try:
                await self._sweep()
            finally:
                self._stop_listening()

    def retire(self) -> None:
        """Answer on, but ask every peer to come back on another connection: it may then find another replica."""
        self._retiring = True
        for connection in self._places.connections:
            connection.retiring = True

    async def drain(self, timeout_s: float) -> None:
        """Stop. Returns after at most ``timeout_s`` and a second, with every connection closed.

        Args:
            timeout_s: How long requests under way may take; those that take longer are cut off.
        """
        self.retire()
        self._stop_listening()
        for connection in list(self._places.connections):
            _end(connection)
        if not await self._empty_within(min(_NEWCOMER_GRACE_S, timeout_s)):
            for connection in list(self._places.connections):
                if not connection.busy:
                    connection.abort()
            await self._empty_within(timeout_s - _NEWCOMER_GRACE_S)
        if self._places.connections:
            self._log.warning("connections_cut_off", connections=len(self._places.connections))
        for connection in list(self._places.connections):
            connection.abort()
        self._stopped.set()
        await self._runner.cleanup()

    @contextlib.asynccontextmanager
    async def running(self, drain_s: float = 1.0) -> AsyncIterator["Listener"]:
        """Listen and serve for as long as the block runs, then drain."""
        await self.start()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.serve())
            try:
                yield self
            finally:
                await self.drain(drain_s)

    # Accepting.

    def _accept(self, listening: socket.socket) -> None:
        """Take what the kernel holds, a few at a time, so that those who are already in get their turn."""
        for _ in range(_ACCEPT_BATCH):
            try:
                accepted, address = listening.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                self._accept_failed(listening, error)
                return
            accepted.setblocking(False)
            if not self._places.admit(address[0]):
                accepted.close()
                continue
            cas = self._identity.client_cas
            connection = Connection(self._server, self._places, accepted, address[0], cas, self._loop)
            connection.retiring = self._retiring
            self._places.enter(connection)
            # The context of this very moment: the connection remembers whose certificates it accepts.
            self._handshakes.create_task(self._handshake(connection, accepted, self._identity.context))

    def _accept_failed(self, listening: socket.socket, error: OSError) -> None:
        """Make room, and try again in a moment."""
        self._rated.write(logging.ERROR, "accept_failed", cause=reason_of(error))
        if error.errno in sockets.OUT_OF_SOCKETS:
            self._places.make_room("no descriptor or memory for another connection")
        self._loop.remove_reader(listening)
        self._loop.call_later(_ACCEPT_PAUSE_S, self._listen_again, listening)

    def _listen_again(self, listening: socket.socket) -> None:
        if listening in self._sockets:
            self._loop.add_reader(listening, self._accept, listening)

    async def _keep_places(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer, unless a stranger's request would take one of the places that are kept for probes."""
        connection = request.protocol
        if not isinstance(connection, Connection):
            return await self._respond(request)
        if connection.verified or request.path in PROBE_PATHS:
            connection.begun = True
            return await self._respond(request)
        if not self._under_way.begin(peer := connection.peer):
            self._places.request_refused(peer, "too many requests under way")
            response = problem(HTTPStatus.SERVICE_UNAVAILABLE, "too many requests are being answered; try again")
            response.headers[hdrs.RETRY_AFTER] = "1"
            return response
        connection.begun = True
        try:
            return await self._respond(request)
        finally:
            self._under_way.end(peer)

    async def _handshake(self, connection: Connection, accepted: socket.socket, context: ssl.SSLContext) -> None:
        try:
            await self._loop.connect_accepted_socket(
                lambda: connection,
                accepted,
                ssl=context,
                ssl_handshake_timeout=self.limits.handshake_s,
                ssl_shutdown_timeout=_TLS_SHUTDOWN_S,
            )
        except OSError as error:
            if connection in self._places.connections:
                level, reason = handshake_refusal(error)
                self._rated.write(level, "handshake_refused", cause=reason, peer=connection.peer)
        except Exception as error:  # noqa: BLE001 - one peer's connection must not end the server
            self._places.request_failed("handshake failed", error)
        finally:
            if not connection.open:
                self._places.forget(connection)

    # Deadlines, memory, and CAs that leave.

    async def _sweep(self) -> None:
        interval_s = min(_SWEEP_S, self.limits.head_s / 2, self.limits.response_s / 2, self.limits.take_s / 2)
        while not self._stopped.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(interval_s):
                    await self._stopped.wait()
            self._places.look_after(self._loop.time())

    def _client_cas_dropped(self, dropped: frozenset[bytes]) -> None:
        """Close what rests on a CA that has left; in doubt, close."""
        affected = [one for one in self._places.connections if not self._certificates.believed(one)]
        self._log.info("client_ca_dropped", authorities=len(dropped), connections=len(affected))
        for connection in affected:
            connection.retire()

    def _client_cas_came(self) -> None:
        """End what was made before: a front proxy there would stay anonymous for as long as it keeps asking."""
        for connection in list(self._places.connections):
            if connection.client_cas is None:
                _end(connection)

    # Stopping.

    def _stop_listening(self) -> None:
        for one in self._sockets:
            self._loop.remove_reader(one)
            one.close()
        self._sockets.clear()

    async def _empty_within(self, timeout_s: float) -> bool:
        if self._places.connections:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, timeout_s)):
                    await self._places.emptied.wait()
        return not self._places.connections


def _end(connection: Connection) -> None:
    """Close after the answer under way, at once without one; a newcomer's first request is still answered."""
    if connection.answered or connection.busy:
        connection.retire()
    else:
        connection.retiring = True
