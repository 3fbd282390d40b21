"""One accepted connection: aiohttp's protocol, with what aiohttp does not keep count of.

aiohttp 3.14 knows neither how long nor how large an unfinished request head is; it parses up to 32 requests ahead
of their answers, and reads on while an answer is not taken. So bytes are handed to its parser here, head by head:
one only when the request before it is answered and the answer is gone. What came meanwhile is held.

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
from typing import Any, cast

from aiohttp import StreamReader, web
from typing_extensions import override

from devicemanager.aiohttp_internals import CountingRequestHandler
from devicemanager.serving.heads import Head
from devicemanager.serving.keeper import Keeper
from devicemanager.serving.limits import LINGERING_S, READ_BUFFER_BYTES, WRITE_HIGH_BYTES
from devicemanager.serving.messages import HEAD_TOO_LARGE, problem_unless_begun, refusal_reason
from devicemanager.serving.sockets import unacknowledged
from devicemanager.tls.material import TrustedCAs

_FIRST_LOOK_S, _LONGEST_PAUSE_S = 0.01, 1.0
"""Between looks whether an answer is gone, while the next request waits; no event tells. Doubled each time."""


class Connection(CountingRequestHandler):
    """One peer's connection, from its acceptance.

    Attributes:
        peer: The peer's address.
        client_cas: Whose client certificates the handshake accepts.
        certified: Whether the peer has shown one, for which those CAs then vouch.
        certified_until: When the first certificate of its chain ends; None without one.
        verified: Whether it takes up one of the places for peers with a verified certificate.
        open: Whether the handshake has succeeded.
        answered: Requests answered.
        answer_bytes: Size of the last answer's body.
        begun: Whether the last request has come to its handler; until then it may still be given up.
        since: When what the connection now does or waits for began; on the loop's clock.
        retiring: It closes after the response that is under way.
        head: What came since the last complete request head.
    """

    __slots__ = (
        "_answer_ready",
        "_body",
        "_closing",
        "_event_loop",
        "_held",
        "_keeper",
        "_look_again",
        "_pause_s",
        "_reading",
        "_socket",
        "_wire",
        "answer_bytes",
        "answered",
        "begun",
        "certified",
        "certified_until",
        "client_cas",
        "head",
        "open",
        "peer",
        "retiring",
        "since",
        "verified",
    )

    def __init__(
        self,
        server: web.Server,
        keeper: Keeper,
        accepted: socket.socket,
        peer: str,
        client_cas: TrustedCAs | None,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        limits = keeper.limits
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
        self.certified = False
        self.certified_until: datetime | None = None
        self.verified = False
        self.open = False
        self.answered = 0
        self.answer_bytes = 0
        self.begun = False
        self.since = loop.time()
        self.retiring = False
        self.head = Head()
        self._keeper = keeper
        self._event_loop = loop
        self._socket: socket.socket | None = accepted
        self._wire: asyncio.Transport | None = None
        self._held = bytearray()
        self._look_again: asyncio.Handle | None = None
        self._pause_s = _FIRST_LOOK_S
        self._body: StreamReader | None = None
        self._answer_ready = False
        self._closing = False
        self._reading = True

    @property
    def busy(self) -> bool:
        """Whether a complete request is not answered yet."""
        return self.requests_parsed > self.answered

    @property
    def waiting(self) -> bool:
        """Whether it waits: for its peer (the handshake, a request, an answer to be taken), or for its handler."""
        return not (self.busy and self.begun) or self._answer_ready or self.writing_paused

    @property
    def untaken(self) -> bool:
        """Whether some of what was sent is still in this process or in the kernel."""
        wire = self._wire
        return wire is not None and (wire.get_write_buffer_size() > 0 or unacknowledged(wire) > 0)

    def overdue(self, now: float) -> str | None:
        """What the peer should have done by ``now``, if anything."""
        limits = self._keeper.limits
        if not self.open:
            return None  # the handshake has its own deadline
        late_s = now - self.since
        allowed_s = limits.response_s if self.busy and not self._answer_ready else limits.take_s
        if late_s > allowed_s and (self.busy or self.untaken):
            return "response not taken"
        if late_s > limits.head_s and not self.busy and (self.head.size or not self.answered):
            return "request head not complete"
        return None

    def retire(self) -> None:
        """Close after the response under way, at once without one."""
        self.retiring = True
        if self.open and not self.busy:
            self.force_close()

    def abort(self) -> None:
        """Close now, whatever is under way."""
        self._closing = True
        if self._wire is not None:
            self._wire.abort()
        elif self._socket is not None:
            with contextlib.suppress(
                OSError
            ):  # in the handshake, the transport is out of reach; the loop sees this
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
        self._wire = cast("asyncio.Transport", transport)
        self._wire.set_write_buffer_limits(high=WRITE_HIGH_BYTES, low=0)
        cast("Any", transport).set_read_buffer_limits(high=READ_BUFFER_BYTES, low=0)  # TLS transports have it
        self._socket = None
        self.open = True
        self.since = self._event_loop.time()
        self.certified = bool(transport.get_extra_info("peercert"))
        self._keeper.opened(self)

    @override
    def connection_lost(self, exc: BaseException | None) -> None:
        self._closing = True
        self._keeper.forget(self)
        super().connection_lost(exc)
        self._wire = None  # with it go the buffers of TLS, however long this object is still referred to
        self._body = None
        self._held.clear()
        self._look_no_more()

    @override
    def data_received(self, data: bytes) -> None:
        if not data:  # aiohttp, which parses on what it has
            super().data_received(data)
        elif not self._closing:
            self._held += data
            self._parse_on()

    def _parse_on(self) -> None:
        """Parse what came, up to the end of one request; read no more from the socket while some of it is left."""
        self._look_no_more()
        while self._held and not self._closing and not self.busy and not self.untaken:
            if self._body is not None and not self._body.is_eof():
                self._discard()
            elif not self._parse_head():
                return
        if self._closing or self._wire is None:
            self._held.clear()
        elif not self._held:
            if not self._reading:
                self._wire.resume_reading()
                self._reading = True
        else:
            self._wire.pause_reading()
            self._reading = False
            if not self.busy:
                self._look_again = self._event_loop.call_later(self._pause_s, self._parse_on)
                self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)

    def _look_no_more(self) -> None:
        if self._look_again is not None:
            self._look_again.cancel()
            self._look_again = None

    def _discard(self) -> None:
        """Hand over some of a body; aiohttp throws it away, for a second at most."""
        piece, self._held = self._held[:READ_BUFFER_BYTES], self._held[READ_BUFFER_BYTES:]
        super().data_received(bytes(piece))

    def _parse_head(self) -> bool:
        """Hand over more of a request head; False when it is beyond its limits."""
        self._body = None
        self._pause_s = _FIRST_LOOK_S
        size, lines = self._keeper.head_limits(self)
        piece = self.head.next_piece(self._held, size)
        if not (begun := self.head.size > 0):
            self.since = self._event_loop.time()
        self.head.grow(piece)
        if not piece or self.head.lines > lines:
            self._refuse_head()
            return False
        del self._held[: len(piece)]
        complete = self.requests_parsed
        super().data_received(piece)
        if whole := self.requests_parsed > complete:
            self.head.clear()
            self.begun = False
            self.since = self._event_loop.time()
        if begun or not whole:
            self._keeper.head_grew(self)
        return True

    @override
    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        if isinstance(resp, web.StreamResponse):
            if self.retiring:
                resp.force_close()
            self.answer_bytes = resp.content_length or 0
        self._answer_ready = True
        self.since = self._event_loop.time()
        self._keeper.answer_ready(self, self.answer_bytes)
        try:
            return await super().finish_response(request, resp, start_time)
        finally:
            self._answer_ready = False
            self.answered += 1
            self._body = None if request.content.is_eof() else request.content
            if self._held and self._look_again is None:
                self._look_again = self._event_loop.call_soon(self._parse_on)

    @override
    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if status == HTTPStatus.BAD_REQUEST:
            self._keeper.request_refused(self.peer, reason := refusal_reason(exc))
        else:
            self._keeper.request_failed(reason := HTTPStatus(status).phrase, exc)
        return problem_unless_begun(request, status, reason)

    @override
    def log_exception(self, *args: object, **kw: BaseException | None) -> None:
        self._keeper.request_failed(str(args[0]), kw.get("exc_info"))

    def _refuse_head(self) -> None:
        self._keeper.request_refused(self.peer, "request head too large")
        cast("asyncio.Transport", self._wire).write(HEAD_TOO_LARGE)
        self.force_close()
