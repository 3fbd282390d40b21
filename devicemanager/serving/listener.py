"""The TLS listener of both servers. ``docs/decisions/connections.md`` says why it accepts connections by itself.

Beside what ``asyncio`` and aiohttp do, it

* gives each handshake the current TLS context, so that a rotated certificate or CA is used from the next connection
  on; closes connections whose CA was removed, whose certificate has expired, and those made before there was a CA
  to ask for a certificate of;
* limits connections in all and per peer, and evicts the one that has waited longest: in the handshake, for a
  request, idle between two, or for its response to be taken. A connection whose handler runs is never evicted, and
  some slots are reserved for probes;
* reserves slots for peers with a verified client certificate;
* limits the time for a handshake, a request head, and a response that is not taken;
* logs failed handshakes at a limited rate;
* drains: accepts no more, closes what is idle, waits a limited time for requests in progress.
"""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Final

from aiohttp import hdrs, web
from structlog.typing import FilteringBoundLogger

from devicemanager.aiohttp_internals import hide_server_software
from devicemanager.serving import sockets
from devicemanager.serving.admission import InFlightRequests
from devicemanager.serving.connection import Connection
from devicemanager.serving.connection_table import ConnectionTable, PeerCertificate
from devicemanager.serving.limits import Limits
from devicemanager.serving.log_rate import RateLimitedLog
from devicemanager.serving.messages import error_response
from devicemanager.serving.peer_certificates import PeerCertificates, handshake_refusal
from devicemanager.serving.probes import PATHS as PROBE_PATHS
from devicemanager.tls.identity import ServerIdentity
from devicemanager.tls.material import reason_of

_SWEEP_S: Final = 1.0
"""How often deadlines are checked; they are enforced at most this much late."""

_ACCEPT_BATCH: Final = 4
"""Per turn of the loop, so that a new connection gets several turns before newer ones of its peer evict it."""

_ACCEPT_PAUSE_S: Final = 0.01
"""After the kernel refused, before the next attempt: closing connections takes a moment."""

_TLS_SHUTDOWN_S: Final = 1.0
"""How long a peer may take to answer the TLS close notification before its socket is closed."""

_NEW_CONNECTION_GRACE_S: Final = 1.0
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
            verified: Whether a client certificate that passed the handshake is one for which slots are reserved;
                asked again while the connection lasts.
            log: For refusals and limits that were reached.
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
        self._table = ConnectionTable(self.limits, self._certificates, verified, self._rated)
        self._in_flight = InFlightRequests(self.limits)
        self._keepalive_disabled = False
        self._stopped = asyncio.Event()
        identity.on_cas_removed(self._client_cas_removed)
        identity.on_cas_added(self._client_cas_added)

    @property
    def connections(self) -> frozenset[Connection]:
        """Accepted and not closed yet, those in their handshake included."""
        return frozenset(self._table.connections)

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
        self._server.request_handler = self._limit_in_flight
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

    def disable_keepalive(self) -> None:
        """Close each connection after its response, so that the peer reconnects, perhaps to another replica."""
        self._keepalive_disabled = True
        for connection in self._table.connections:
            connection.closing_after_response = True

    async def drain(self, timeout_s: float) -> None:
        """Stop. Returns after at most ``timeout_s`` and a second, with every connection closed.

        Args:
            timeout_s: How long requests in progress may take; those that take longer are cut off.
        """
        self.disable_keepalive()
        self._stop_listening()
        for connection in list(self._table.connections):
            connection.finish()
        if not await self._table.empty_within(min(_NEW_CONNECTION_GRACE_S, timeout_s)):
            for connection in list(self._table.connections):
                if not connection.busy:
                    connection.abort()
            await self._table.empty_within(timeout_s - _NEW_CONNECTION_GRACE_S)
        if self._table.connections:
            self._log.warning("connections_cut_off", connections=len(self._table.connections))
        for connection in list(self._table.connections):
            connection.abort()
        self._stopped.set()
        await self._runner.cleanup()

    # Accepting.

    def _accept(self, listening: socket.socket) -> None:
        """Accept a few connections at a time, so that those already accepted get their turn."""
        for _ in range(_ACCEPT_BATCH):
            try:
                accepted, address = listening.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                self._accept_failed(listening, error)
                return
            accepted.setblocking(False)
            if not self._table.admit(address[0]):
                accepted.close()
                continue
            cas = self._identity.client_cas
            connection = Connection(self._server, self._table, accepted, address[0], cas, self._loop)
            connection.closing_after_response = self._keepalive_disabled
            self._table.add(connection)
            # The context and the CAs must be of the same moment.
            self._handshakes.create_task(self._handshake(connection, accepted, self._identity.context))

    def _accept_failed(self, listening: socket.socket, error: OSError) -> None:
        """Evict connections when resources ran out, and try again in a moment."""
        self._rated.write(logging.ERROR, "accept_failed", cause=reason_of(error))
        if error.errno in sockets.OUT_OF_SOCKETS:
            self._table.evict_some("no descriptor or memory for another connection")
        self._loop.remove_reader(listening)
        self._loop.call_later(_ACCEPT_PAUSE_S, self._listen_again, listening)

    def _listen_again(self, listening: socket.socket) -> None:
        if listening in self._sockets:
            self._loop.add_reader(listening, self._accept, listening)

    async def _limit_in_flight(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer, unless the request would take one of the slots reserved for probes."""
        connection = request.protocol
        if not isinstance(connection, Connection):
            return await self._respond(request)
        if connection.verified or request.path in PROBE_PATHS:
            connection.handler_started = True
            return await self._respond(request)
        if not self._in_flight.begin(peer := connection.peer):
            self._table.request_refused(peer, "too many requests under way")
            response = error_response(
                HTTPStatus.SERVICE_UNAVAILABLE, "too many requests are being answered; try again"
            )
            response.headers[hdrs.RETRY_AFTER] = "1"
            return response
        connection.handler_started = True
        try:
            return await self._respond(request)
        finally:
            self._in_flight.end(peer)

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
            if connection in self._table.connections:
                level, reason = handshake_refusal(error)
                self._rated.write(level, "handshake_refused", cause=reason, peer=connection.peer)
        except Exception as error:  # noqa: BLE001 - one peer's connection must not end the server
            self._table.request_failed("handshake failed", error)
        finally:
            if not connection.open:
                self._table.remove(connection)

    # Deadlines, memory, and CAs that change.

    async def _sweep(self) -> None:
        interval_s = min(_SWEEP_S, self.limits.head_s / 2, self.limits.response_s / 2, self.limits.delivery_s / 2)
        while not self._stopped.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(interval_s):
                    await self._stopped.wait()
            self._table.enforce_deadlines(self._loop.time())

    def _client_cas_removed(self, dropped: frozenset[bytes]) -> None:
        """Close connections whose certificate a removed CA signed; in doubt, close."""
        affected = [one for one in self._table.connections if not self._certificates.trusted(one)]
        self._log.info("client_ca_dropped", authorities=len(dropped), connections=len(affected))
        for connection in affected:
            connection.close_after_response()

    def _client_cas_added(self) -> None:
        """Close connections made before: a front proxy on one would stay anonymous for as long as it lasts."""
        for connection in list(self._table.connections):
            if connection.client_cas is None:
                connection.finish()

    # Stopping.

    def _stop_listening(self) -> None:
        for one in self._sockets:
            self._loop.remove_reader(one)
            one.close()
        self._sockets.clear()
