"""One accepted connection: aiohttp's protocol, with what aiohttp does not keep count of.

aiohttp 3.14 knows neither how long a peer has been sending one request head, nor its total size, and offers nothing
to tell an idle connection from one in the middle of a request. Beside public names this module relies on four
internals, which its tests pin: ``RequestHandler._request_count`` grows when a request head is complete;
``finish_response`` is awaited once per request, until the last byte is handed over; ``Application._make_request``
takes the class of request; ``Request._prepare_hook`` runs after the ``Server`` header was added.
"""

import asyncio
import contextlib
import json
import socket
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, Protocol, cast

from aiohttp import hdrs, web
from aiohttp.http_exceptions import BadHttpMethod, LineTooLong
from typing_extensions import override

from devicemanager.tls.material import TrustedCAs

LINGERING_S: Final = 1.0
"""How long a request body that nobody reads may keep its connection."""

_HEAD_TOO_LARGE: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
)


@dataclass(frozen=True, slots=True)
class Limits:
    """What peers may take up. Times in seconds, sizes in bytes.

    Attributes:
        connections: In all. When full, the longest waiting connection makes room for a new one.
        connections_per_peer: From one address.
        handshake_s: From the accepted connection to the end of the TLS handshake.
        head_s: From the end of the handshake, or the first byte of a later request, to the end of its head.
        response_s: From a complete head to the last byte of the response taken by the peer.
        keepalive_s: Between a response and the next request.
        head_bytes: Request line and all headers together.
        line_bytes: The request line, and any one header name or value.
        headers: Number of header lines.
        backlog: Connections that the kernel holds until they are accepted.
    """

    connections: int = 256
    connections_per_peer: int = 32
    handshake_s: float = 5.0
    head_s: float = 5.0
    response_s: float = 30.0
    keepalive_s: float = 75.0
    head_bytes: int = 64 * 1024
    line_bytes: int = 8190
    headers: int = 128
    backlog: int = 1024


class Keeper(Protocol):
    """Who keeps the connections, as one of them sees it."""

    limits: Limits

    def opened(self, connection: "Connection") -> None:
        """The handshake succeeded."""
        ...

    def forget(self, connection: "Connection") -> None:
        """The connection is gone."""
        ...

    def request_refused(self, peer: str, reason: str) -> None:
        """A peer sent what is not a request, or one beyond the limits."""
        ...

    def request_failed(self, message: str, error: BaseException | None) -> None:
        """Answering a request failed, through our own fault."""
        ...


class PlainRequest(web.Request):
    """A request whose response does not say what software made it."""

    @override
    async def _prepare_hook(self, response: web.StreamResponse) -> None:
        await super()._prepare_hook(response)
        del response.headers[hdrs.SERVER]


class Connection(web.RequestHandler):
    """One peer's connection, from its acceptance.

    Attributes:
        peer: The peer's address.
        client_cas: Whose client certificates the handshake accepts.
        certified: Whether the peer has shown a certificate, which those CAs then vouch for.
        open: Whether the handshake has succeeded.
        answered: Requests answered.
        since: When what the connection now does or waits for began; on the loop's clock.
        retiring: It closes after the response that is under way.
    """

    __slots__ = (
        "_keeper",
        "_partial_bytes",
        "_socket",
        "_wire",
        "answered",
        "certified",
        "client_cas",
        "open",
        "peer",
        "retiring",
        "since",
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
            max_headers=limits.headers,
            lingering_time=LINGERING_S,
            auto_decompress=False,
        )
        self.peer = peer
        self.client_cas = client_cas
        self.certified = False
        self.open = False
        self.answered = 0
        self.since = loop.time()
        self.retiring = False
        self._keeper = keeper
        self._socket: socket.socket | None = accepted
        self._wire: asyncio.Transport | None = None
        self._partial_bytes = 0

    @property
    def busy(self) -> bool:
        """Whether a complete request is not answered yet."""
        return self._request_count > self.answered

    def overdue(self, now: float) -> str | None:
        """What the peer should have done by ``now``, if anything."""
        limits = self._keeper.limits
        if not self.open:
            return None  # the handshake has its own deadline
        if self.busy:
            return "response not taken" if now - self.since > limits.response_s else None
        if self._partial_bytes or not self.answered:
            return "request head not complete" if now - self.since > limits.head_s else None
        return None

    def retire(self) -> None:
        """Close after the response that is under way; at once without one."""
        self.retiring = True
        if self.open and not self.busy:
            self.force_close()

    def abort(self) -> None:
        """Close now, whatever is under way."""
        if self._wire is not None:
            self._wire.abort()
        elif self._socket is not None:
            # In the handshake the transport is out of reach. The loop sees the end of its socket.
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._wire = cast("asyncio.Transport", transport)
        self._socket = None
        self.open = True
        self.since = self._loop.time()
        self.certified = bool(transport.get_extra_info("peercert"))
        self._keeper.opened(self)

    @override
    def connection_lost(self, exc: BaseException | None) -> None:
        self._keeper.forget(self)
        super().connection_lost(exc)
        self._wire = None  # with it go the buffers of TLS, however long this object is still referred to

    @override
    def data_received(self, data: bytes) -> None:
        complete = self._request_count
        was_busy = complete > self.answered
        super().data_received(data)
        if was_busy:
            return
        if self._request_count > complete:
            self._partial_bytes = 0
            self.since = self._loop.time()
            return
        if not self._partial_bytes:
            self.since = self._loop.time()
        self._partial_bytes += len(data)
        if self._partial_bytes > self._keeper.limits.head_bytes:
            self._refuse_head()

    @override
    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        if self.retiring and isinstance(resp, web.StreamResponse):
            resp.force_close()
        try:
            return await super().finish_response(request, resp, start_time)
        finally:
            self.answered += 1
            self.since = self._loop.time()

    @override
    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if status == HTTPStatus.BAD_REQUEST:
            reason = _refusal(exc)
            self._keeper.request_refused(self.peer, reason)
        else:
            reason = HTTPStatus(status).phrase
            self._keeper.request_failed(reason, exc)
        if request.writer.output_size > 0:
            raise ConnectionError("part of a response was sent already")
        response = web.Response(
            status=status, body=json.dumps({"message": reason}).encode() + b"\n", content_type="application/json"
        )
        response.force_close()
        return response

    @override
    def log_exception(self, *args: object, **kw: object) -> None:
        error = kw.get("exc_info")
        self._keeper.request_failed(str(args[0]), error if isinstance(error, BaseException) else None)

    def _refuse_head(self) -> None:
        self._keeper.request_refused(self.peer, "request head too large")
        if self._wire is not None:
            self._wire.write(_HEAD_TOO_LARGE)
        self.force_close()


def _refusal(error: BaseException | None) -> str:
    """Why a request head was refused, without a byte of it: aiohttp's own words quote headers, and so secrets."""
    match error:
        case LineTooLong():
            return "request line or header too long"
        case BadHttpMethod():
            return "not an HTTP request"
        case _:
            return "bad request"
