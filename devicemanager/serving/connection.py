"""One accepted connection: aiohttp's protocol, with what aiohttp does not keep count of.

aiohttp 3.14 knows neither how long nor how large an unfinished request head is; it parses up to 32 requests ahead
of their responses, and reads on while a response is not taken. So its parser gets one request head at a time here,
when the request before it is answered and its response is sent. Bytes that came meanwhile are held.

Beside :mod:`devicemanager.aiohttp_internals` this relies on two things that aiohttp does not document, and tests
pin: ``finish_response`` is awaited once per request, from the finished answer until its last byte is handed to the
transport, and ``data_received`` is called with no bytes by aiohttp itself, to parse on. No handler may read a body:
that is read after the answer, and thrown away.
"""

import asyncio
import contextlib
import socket
from datetime import datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, cast

from aiohttp import StreamReader, web
from typing_extensions import override

from devicemanager.aiohttp_internals import CountingRequestHandler
from devicemanager.serving.heads import Head
from devicemanager.serving.limits import LINGERING_S, READ_BUFFER_BYTES, WRITE_HIGH_BYTES
from devicemanager.serving.messages import HEAD_TOO_LARGE, error_response_unless_started, refusal_reason
from devicemanager.serving.sockets import unacknowledged
from devicemanager.tls.material import TrustedCAs

if TYPE_CHECKING:
    from devicemanager.serving.connection_table import ConnectionTable

_FIRST_RETRY_S, _LONGEST_RETRY_S = 0.01, 1.0
"""How often to check that a response is gone, while the next request waits; no event tells. Doubled each time."""


class Connection(CountingRequestHandler):
    """One peer's connection, from its acceptance.

    Attributes:
        peer: The peer's address.
        client_cas: Whose client certificates the handshake accepts.
        has_certificate: Whether the peer has shown one that those CAs signed.
        certificate_expires_at: When the first certificate of its chain ends; None without one.
        verified: Whether it counts as one with a verified certificate, for which slots are reserved.
        open: Whether the handshake has succeeded.
        answered: Requests answered.
        answer_bytes: Size of the last answer's body.
        handler_started: Whether the last request has reached its handler; until then it may be evicted.
        since: When what the connection now does or waits for began; on the loop's clock.
        closing_after_response: Whether it closes after the response in progress.
        head: What came since the last complete request head.
    """

    def __init__(
        self,
        server: web.Server,
        owner: "ConnectionTable",
        accepted: socket.socket,
        peer: str,
        client_cas: TrustedCAs | None,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        limits = owner.limits
        super().__init__(
            server,
            loop=loop,
            keepalive_timeout=limits.keepalive_s,
            access_log=None,  # type: ignore[arg-type]  # None is what switches it off
            max_line_size=limits.line_bytes,
            max_field_size=limits.line_bytes,
            max_headers=limits.most_headers,
            lingering_time=LINGERING_S,
            auto_decompress=False,
        )
        self.peer = peer
        self.client_cas = client_cas
        self.has_certificate = False
        self.certificate_expires_at: datetime | None = None
        self.verified = False
        self.open = False
        self.answered = 0
        self.answer_bytes = 0
        self.handler_started = False
        self.since = loop.time()
        self.closing_after_response = False
        self.head = Head()
        self._owner = owner
        self._event_loop = loop
        self._socket: socket.socket | None = accepted
        self._tls_transport: asyncio.Transport | None = None
        self._held = bytearray()
        self._retry: asyncio.Handle | None = None
        self._retry_s = _FIRST_RETRY_S
        self._body: StreamReader | None = None
        self._answer_ready = False
        self._closing = False
        self._reading = True

    @property
    def busy(self) -> bool:
        """Whether a complete request is not answered yet."""
        return self.requests_parsed > self.answered

    @property
    def evictable(self) -> bool:
        """Whether it waits for its peer (handshake, request, response to be taken) or for its handler."""
        return not (self.busy and self.handler_started) or self._answer_ready or self.writing_paused

    @property
    def undelivered(self) -> bool:
        """Whether some of what was sent is still in this process or in the kernel."""
        transport = self._tls_transport
        return transport is not None and (transport.get_write_buffer_size() > 0 or unacknowledged(transport) > 0)

    def overdue(self, now: float) -> str | None:
        """What the peer should have done by ``now``, if anything."""
        limits = self._owner.limits
        if not self.open:
            return None  # the handshake has its own deadline
        late_s = now - self.since
        allowed_s = limits.response_s if self.busy and not self._answer_ready else limits.delivery_s
        if late_s > allowed_s and (self.busy or self.undelivered):
            return "response not taken"
        if late_s > limits.head_s and not self.busy and (self.head.size or not self.answered):
            return "request head not complete"
        return None

    def close_after_response(self) -> None:
        """Close after the response in progress, or at once without one."""
        self.closing_after_response = True
        if self.open and not self.busy:
            self.force_close()

    def finish(self) -> None:
        """Close after the response in progress, or at once; a new connection still gets its first response."""
        if self.answered or self.busy:
            self.close_after_response()
        else:
            self.closing_after_response = True

    def abort(self) -> None:
        """Close now, whatever is in progress."""
        self._closing = True
        if self._tls_transport is not None:
            self._tls_transport.abort()
        elif self._socket is not None:
            with contextlib.suppress(OSError):  # in the handshake there is no transport yet; the loop sees this
                self._socket.shutdown(socket.SHUT_RDWR)

    @override
    def close(self) -> None:
        self._closing = True
        super().close()

    @override
    def force_close(self) -> None:
        self._closing = True
        super().force_close()

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._tls_transport = cast("asyncio.Transport", transport)
        self._tls_transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES, low=0)
        cast("Any", transport).set_read_buffer_limits(high=READ_BUFFER_BYTES, low=0)  # TLS transports have it
        self._socket = None
        self.open = True
        self.since = self._event_loop.time()
        self.has_certificate = bool(transport.get_extra_info("peercert"))
        self._owner.handshake_done(self)

    @override
    def connection_lost(self, exc: BaseException | None) -> None:
        self._closing = True
        self._owner.remove(self)
        super().connection_lost(exc)
        self._tls_transport = None  # with it go the buffers of TLS, however long this object is still referred to
        self._body = None
        self._held.clear()
        self._cancel_retry()

    @override
    def data_received(self, data: bytes) -> None:
        if not data:  # aiohttp, which parses on what it has
            super().data_received(data)
        elif not self._closing:
            self._held += data
            self._parse_held()

    def _parse_held(self) -> None:
        """Parse what came, up to the end of one request; read no more from the socket while some of it is left."""
        self._cancel_retry()
        while self._held and not self._closing and not self.busy and not self.undelivered:
            if self._body is not None and not self._body.is_eof():
                # aiohttp throws a body away, for a second at most.
                piece, self._held = self._held[:READ_BUFFER_BYTES], self._held[READ_BUFFER_BYTES:]
                super().data_received(bytes(piece))
            elif not self._parse_head():
                return
        if self._closing or self._tls_transport is None:
            self._held.clear()
        elif not self._held:
            if not self._reading:
                self._tls_transport.resume_reading()
                self._reading = True
        else:
            self._tls_transport.pause_reading()
            self._reading = False
            if not self.busy:
                self._retry = self._event_loop.call_later(self._retry_s, self._parse_held)
                self._retry_s = min(2 * self._retry_s, _LONGEST_RETRY_S)

    def _cancel_retry(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    def _parse_head(self) -> bool:
        """Hand over more of a request head; False when it is beyond its limits."""
        self._body = None
        self._retry_s = _FIRST_RETRY_S
        size, lines = self._owner.head_limits(self)
        piece = self.head.next_piece(self._held, size)
        if not (begun := self.head.size > 0):
            self.since = self._event_loop.time()
        self.head.grow(piece)
        if not piece or self.head.lines > lines:
            self._owner.request_refused(self.peer, "request head too large")
            cast("asyncio.Transport", self._tls_transport).write(HEAD_TOO_LARGE)
            self.force_close()
            return False
        del self._held[: len(piece)]
        complete = self.requests_parsed
        super().data_received(piece)
        if whole := self.requests_parsed > complete:
            self.head.clear()
            self.handler_started = False
            self.since = self._event_loop.time()
        if begun or not whole:
            self._owner.head_grew(self)
        return True

    @override
    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        if isinstance(resp, web.StreamResponse):
            if self.closing_after_response:
                resp.force_close()
            self.answer_bytes = resp.content_length or 0
        self._answer_ready = True
        self.since = self._event_loop.time()
        self._owner.answer_ready(self, self.answer_bytes)
        try:
            return await super().finish_response(request, resp, start_time)
        finally:
            self._answer_ready = False
            self.answered += 1
            self._body = None if request.content.is_eof() else request.content
            if self._held and self._retry is None:
                self._retry = self._event_loop.call_soon(self._parse_held)

    @override
    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if status == HTTPStatus.BAD_REQUEST:
            self._owner.request_refused(self.peer, reason := refusal_reason(exc))
        else:
            self._owner.request_failed(reason := HTTPStatus(status).phrase, exc)
        return error_response_unless_started(request, status, reason)

    @override
    def log_exception(self, *args: object, **kw: BaseException | None) -> None:
        self._owner.request_failed(str(args[0]), kw.get("exc_info"))
