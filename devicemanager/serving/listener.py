"""Accepts connections, and decides who may stay when there are too many.

Both servers listen through this. Beside what ``asyncio`` and aiohttp do, it

* gives each handshake the identity's current TLS context, so that a rotated certificate or CA holds from the next
  connection on; closes the connections that a CA vouched for when that CA leaves, and those that could show no
  certificate once there is a CA to show one to;
* bounds connections in all and per peer, and makes room by giving up whichever has waited longest for its peer: in
  the handshake, for a request, or idle between two. A connection with a request under way is never given up, and a
  new one, a probe's for example, is always let in while any other waits;
* bounds the time for a handshake, a request head, and a response that is not taken;
* says why a handshake was refused, and by whom, at a bounded rate;
* drains: accepts no more, closes what is idle, waits a bounded time for what is under way.
"""

import asyncio
import contextlib
import errno
import functools
import logging
import os
import socket
import ssl
from collections.abc import AsyncIterator, Sequence
from typing import Final

from aiohttp import web
from structlog.typing import FilteringBoundLogger

from devicemanager.errors import excerpt
from devicemanager.serving import memory
from devicemanager.serving.connection import Connection, Limits, PlainRequest
from devicemanager.serving.log_rate import RateLimitedLog
from devicemanager.tls.identity import ServerIdentity
from devicemanager.tls.material import anchor_of, reason_of

_ANY_IPV6: Final = "::"
_ANY_IPV4: Final = "0.0.0.0"  # noqa: S104 - what the first means where the kernel has no IPv6

_SWEEP_S: Final = 1.0
"""How often deadlines are looked at; they are enforced at most this much late."""

_GIVE_BACK_AFTER: Final = 64
"""Connections that have gone since memory was last given back: they may have left some 4 MiB."""

_ACCEPT_BATCH: Final = 4
"""Per turn of the loop, so that a newcomer gets several turns before newer ones of its peer push it out."""

_ACCEPT_PAUSE_S: Final = 0.2
"""After the kernel refused (no descriptors, no memory), before the next attempt."""

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
        log: FilteringBoundLogger,
    ) -> None:
        """Prepare; nothing is opened before :meth:`start`.

        Args:
            app: What is served.
            addresses: IP address and port to listen on; port 0 takes a free one. ``::`` takes IPv4 too,
                and IPv4 alone where the kernel has no IPv6.
            identity: Gives each handshake its TLS context.
            limits: The defaults of :class:`Limits` if not given.
            log: Where refusals and limits that were reached are said.
        """
        self.limits = limits or Limits()
        self.addresses: tuple[tuple[str, int], ...] = ()
        self._app = app
        self._wanted = tuple(addresses)
        self._identity = identity
        self._log = log
        self._sockets: list[socket.socket] = []
        self._connections: dict[Connection, None] = {}  # in the order of acceptance
        self._gone = 0
        self._emptied = asyncio.Event()
        self._retiring = False
        self._stopped = asyncio.Event()
        identity.on_dropped(self._client_cas_dropped)
        identity.on_first(self._client_cas_came)

    @property
    def connections(self) -> frozenset[Connection]:
        """Those accepted and not gone yet, from their acceptance on."""
        return frozenset(self._connections)

    async def start(self) -> None:
        """Start the application and listen; connections wait in the kernel until :meth:`serve`.

        Raises:
            OSError: An address cannot be listened on.
        """
        self._loop = asyncio.get_running_loop()
        self._rated = RateLimitedLog(self._log, self._loop.time)
        self._runner = web.AppRunner(
            self._app, handler_cancellation=True, access_log=None, shutdown_timeout=_CLEANUP_S
        )
        await self._runner.setup()
        assert self._runner.server is not None  # noqa: S101 - set up
        self._server = self._runner.server
        self._server.request_factory = functools.partial(self._app._make_request, _cls=PlainRequest)
        try:
            for address, port in self._wanted:
                self._sockets.append(_listen(address, port, self.limits.backlog, self._log))
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
        for connection in self._connections:
            connection.retiring = True

    async def drain(self, timeout_s: float) -> None:
        """Stop. Returns after at most ``timeout_s`` and a second, with every connection closed.

        Args:
            timeout_s: How long requests under way may take; those that take longer are cut off.
        """
        self.retire()
        self._stop_listening()
        for connection in list(self._connections):
            _end(connection)
        if not await self._empty_within(min(_NEWCOMER_GRACE_S, timeout_s)):
            for connection in list(self._connections):
                if not connection.busy:
                    connection.abort()
            await self._empty_within(timeout_s - _NEWCOMER_GRACE_S)
        if self._connections:
            self._log.warning("connections_cut_off", connections=len(self._connections))
        for connection in list(self._connections):
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

    # What a connection tells its keeper.

    def opened(self, connection: Connection) -> None:
        """Take a connection whose handshake succeeded, unless its CA has left meanwhile."""
        if not self._believed(connection):
            connection.force_close()

    def forget(self, connection: Connection) -> None:
        """Free the place of a connection that is gone. Harmless when it was free."""
        if connection in self._connections:
            del self._connections[connection]
            self._gone += 1
        if not self._connections:
            self._emptied.set()

    def request_refused(self, peer: str, reason: str) -> None:
        """Say that a peer sent no request, or too large a one."""
        self._rated.write(logging.INFO, "request_refused", cause=reason, peer=peer)

    def request_failed(self, message: str, error: BaseException | None) -> None:
        """Say that answering failed, with the traceback."""
        cause = message if error is None else f"{type(error).__name__}: {excerpt(str(error))}"
        self._rated.write(logging.ERROR, "request_failed", cause=cause, exc_info=error)

    # Accepting.

    def _accept(self, listening: socket.socket) -> None:
        """Take what the kernel holds, a few at a time, so that those who are already in get their turn."""
        for _ in range(_ACCEPT_BATCH):
            try:
                accepted, address = listening.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                self._rated.write(logging.ERROR, "accept_failed", cause=reason_of(error))
                self._loop.remove_reader(listening)
                self._loop.call_later(_ACCEPT_PAUSE_S, self._listen_again, listening)
                return
            accepted.setblocking(False)
            connection = self._admit(accepted, address[0])
            if connection is None:
                accepted.close()
            else:
                # The context of this very moment: the connection remembers whose certificates it accepts.
                self._handshakes.create_task(self._handshake(connection, accepted, self._identity.context))

    def _listen_again(self, listening: socket.socket) -> None:
        if listening in self._sockets:
            self._loop.add_reader(listening, self._accept, listening)

    def _admit(self, accepted: socket.socket, peer: str) -> Connection | None:
        """A place for a connection; None when everybody in the way has a request under way."""
        from_peer = [one for one in self._connections if one.peer == peer]
        if len(from_peer) >= self.limits.connections_per_peer:
            admitted = self._make_room(from_peer, "too many connections from one peer", peer)
        elif len(self._connections) >= self.limits.connections:
            admitted = self._make_room(list(self._connections), "too many connections", peer)
        else:
            admitted = True
        if not admitted:
            return None
        connection = Connection(self._server, self, accepted, peer, self._identity.client_cas, self._loop)
        connection.retiring = self._retiring
        self._connections[connection] = None
        self._emptied.clear()
        return connection

    def _make_room(self, among: Sequence[Connection], cause: str, peer: str) -> bool:
        waiting = [one for one in among if not one.busy]
        if not waiting:
            self._rated.write(logging.WARNING, "connection_refused", cause=cause, peer=peer)
            return False
        longest = min(waiting, key=lambda one: one.since)
        self._rated.write(logging.INFO, "connection_given_up", cause=cause, peer=longest.peer)
        self._give_up(longest)
        return True

    def _give_up(self, connection: Connection) -> None:
        self.forget(connection)
        connection.abort()

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
            if connection in self._connections:
                self._handshake_refused(connection.peer, error)
        except Exception as error:  # noqa: BLE001 - one peer's connection must not end the server
            self.request_failed("handshake failed", error)
        finally:
            if not connection.open:
                self.forget(connection)

    def _handshake_refused(self, peer: str, error: OSError) -> None:
        match error:
            case ssl.SSLCertVerificationError():
                level, reason = logging.WARNING, f"client certificate refused: {error.verify_message}"
            case ssl.SSLError():
                level, reason = logging.WARNING, reason_of(error)
            case ConnectionAbortedError() | TimeoutError():
                level, reason = logging.WARNING, "handshake took too long"
            case _:
                # Load balancers and port scanners come and go like this all day.
                level, reason = logging.DEBUG, "peer left"
        self._rated.write(level, "handshake_refused", cause=reason, peer=peer)

    # Deadlines, memory, and CAs that leave.

    async def _sweep(self) -> None:
        interval_s = min(_SWEEP_S, self.limits.head_s / 2, self.limits.response_s / 2)
        while not self._stopped.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(interval_s):
                    await self._stopped.wait()
            now = self._loop.time()
            for connection in list(self._connections):
                overdue = connection.overdue(now)
                if overdue is not None:
                    self._rated.write(logging.INFO, "connection_overdue", cause=overdue, peer=connection.peer)
                    self._give_up(connection)
            if self._gone >= _GIVE_BACK_AFTER:
                self._gone = 0
                memory.give_back()

    def _believed(self, connection: Connection) -> bool:
        if not connection.certified or self._identity.trusts(connection.client_cas):
            return True
        return self._identity.trusts_anchor(_anchor_of(connection))

    def _client_cas_dropped(self, dropped: frozenset[bytes]) -> None:
        """Close what rests on a CA that has left; in doubt, close."""
        affected = [one for one in self._connections if not self._believed(one)]
        self._log.info("client_ca_dropped", authorities=len(dropped), connections=len(affected))
        for connection in affected:
            connection.retire()

    def _client_cas_came(self) -> None:
        """End what was made before: a front proxy there would stay anonymous for as long as it keeps asking."""
        for connection in list(self._connections):
            if connection.client_cas is None:
                _end(connection)

    # Stopping.

    def _stop_listening(self) -> None:
        for one in self._sockets:
            self._loop.remove_reader(one)
            one.close()
        self._sockets.clear()

    async def _empty_within(self, timeout_s: float) -> bool:
        if self._connections:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, timeout_s)):
                    await self._emptied.wait()
        return not self._connections


def _end(connection: Connection) -> None:
    """Close after the answer under way, at once without one; a newcomer's first request is still answered."""
    if connection.answered or connection.busy:
        connection.retire()
    else:
        connection.retiring = True


def _anchor_of(connection: Connection) -> bytes | None:
    """The CA that vouched for a peer; None in doubt."""
    transport = connection.transport
    tls = transport.get_extra_info("ssl_object") if transport is not None else None
    return anchor_of(tls) if isinstance(tls, ssl.SSLObject) else None


def _listen(address: str, port: int, backlog: int, log: FilteringBoundLogger) -> socket.socket:
    """A socket that listens.

    Raises:
        OSError: It cannot be had; the text says where, and what can be done.
    """
    try:
        listening = _bound(address, port, backlog)
    except OSError as error:
        if address != _ANY_IPV6 or error.errno != errno.EAFNOSUPPORT:
            raise OSError(error.errno, _why_not(error, address, port)) from error
        log.info("kernel_without_ipv6", address=_ANY_IPV4)
        return _listen(_ANY_IPV4, port, backlog, log)
    listening.setblocking(False)
    return listening


def _bound(address: str, port: int, backlog: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    dual_stack = address == _ANY_IPV6 and socket.has_dualstack_ipv6()
    return socket.create_server((address, port), family=family, backlog=backlog, dualstack_ipv6=dual_stack)


def _why_not(error: OSError, address: str, port: int) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            what = "address in use: another program listens there; choose another --secure-port"
        case errno.EACCES:
            what = "not permitted; ports below 1024 need a right of their own, choose a higher --secure-port"
        case errno.EADDRNOTAVAIL:
            what = "no address of this machine; choose another --bind-address"
        case _:
            what = os.strerror(error.errno) if error.errno else excerpt(str(error))
    where = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
    return f"{where}: {what}"
