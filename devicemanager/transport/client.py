"""The HTTP client for peers: time, bytes, redirects and connections are limited.

Bodies arrive undecoded, so that what counts against the limit is what decompression produced, never what it might
produce.
"""

import asyncio
import re
import ssl
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from types import SimpleNamespace
from typing import Any, Final, Self

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.http import RawResponseMessage
from aiohttp.streams import StreamReader
from typing_extensions import override

from devicemanager import __version__
from devicemanager.aiohttp_internals import ProtocolConnector
from devicemanager.clock import Clock
from devicemanager.errors import FetchError, excerpt
from devicemanager.model.usage import SourceState
from devicemanager.tls.material import chain_end
from devicemanager.transport import body_memory, peer_time
from devicemanager.transport.failures import InterimAnswersError
from devicemanager.transport.messages import Received, Request
from devicemanager.transport.pace import Pace
from devicemanager.transport.retries import Retries

CONNECTIONS: Final = 1024
"""To all peers of a client at once. Each carries one request, so hanging ones must leave some free."""

ERROR_BODY_LIMIT_BYTES: Final = 64 * 1024
"""Of an error answer: room for any Kubernetes Status, too little to hurt."""

INTERIM_LIMIT: Final = 8
"""Interim (1xx) answers before the answer. We ask for none, so a proper peer sends one or two at most."""

_PIECE_BYTES: Final = 256 * 1024
"""Decompressed at once."""

_SECONDS: Final = re.compile(r"[0-9]+", re.ASCII)

_MOST_S: Final = 2**31
"""What stands for any greater number of seconds (RFC 9111, 1.2.2)."""


class HttpClient:
    """Asks peers of one kind. To be entered before use; leaving it closes its connections.

    Args:
        clock: For the times of answers.
        connections: Open at once at most; further requests wait.
        retries: How failed requests are sent again, where the caller allows it.
    """

    def __init__(self, clock: Clock, *, connections: int = CONNECTIONS, retries: Retries | None = None) -> None:
        self._clock = clock
        self._connections = connections
        self._retries = retries or Retries(retry_refused=False)
        self._session: aiohttp.ClientSession

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            trace_configs=[_traces()],
            connector=ProtocolConnector(partial(_Connection, self._clock), limit=self._connections),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
            headers={"User-Agent": f"devicemanager/{__version__}"},
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def exchange(self, request: Request, *, ends_s: float | None = None) -> Received:
        """Asks, follows nothing, and reads the whole answer. To be called inside
        :func:`~devicemanager.transport.failures.within`.

        Args:
            request: What is asked.
            ends_s: The deadline that ``within`` gives: a request that changes nothing is sent again until then,
                where a failure may have passed. None asks once.

        Raises:
            FetchError: ``invalid`` for a redirect, a body over the limit or one that cannot be decoded.
        """
        if ends_s is None:
            return await self._exchange(request)
        return await self._retries.answer(request, self._exchange, ends_s)

    async def _exchange(self, request: Request) -> Received:
        async with self.response(request) as response:
            received_monotonic_s = self._clock.monotonic()
            if 300 <= response.status < 400:
                raise FetchError(
                    SourceState.INVALID,
                    "answered with a redirect",
                    status=response.status,
                    by_peer=not request.backend,  # else by whoever is before it
                )
            limit = request.limit_bytes if response.status < 400 else ERROR_BODY_LIMIT_BYTES
            return Received(
                status=response.status,
                body=await _read(response, limit),
                received_monotonic_s=received_monotonic_s,
                age_s=_seconds(response.headers.get("Age")),
                date=_date(response.headers.get("Date")),
                retry_after_s=retry_after_s(response),
            )

    @asynccontextmanager
    async def response(self, request: Request) -> AsyncIterator[aiohttp.ClientResponse]:
        """The answer's head, its body still to come; an answer not read to its end costs the connection."""
        try:
            async with self._session.request(
                request.method,
                request.url,
                data=request.body,
                headers=request.headers,
                allow_redirects=False,
                ssl=request.tls if request.tls is not None else True,
                server_hostname=request.server_hostname,
                proxy=request.proxy,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=request.connect_s),
                trace_request_ctx=request,
            ) as response:
                peer_time.begin()
                try:
                    yield response
                except BaseException:
                    response.close()
                    raise
        finally:
            peer_time.end()


def _traces() -> aiohttp.TraceConfig:
    """Begins connections at a pace, and counts as a peer's time what comes after the wait for one."""
    pace = Pace()

    async def begin(_: object, context: SimpleNamespace, __: object) -> None:
        # Where somebody is in between, it is the peer's once its answer comes.
        if not context.trace_request_ctx.backend:
            peer_time.begin()

    traces = aiohttp.TraceConfig()
    traces.on_connection_create_start.append(lambda *_: pace.turn())
    traces.on_connection_create_start.append(begin)
    traces.on_connection_reuseconn.append(begin)
    return traces


class _Connection(ResponseHandler):
    """A connection that is closed when interim answers do not end; aiohttp would read for ever.

    One that is kept is not used again once a certificate of the peer's chain has expired.
    """

    _interim = 0
    _expires_at: datetime | None = None

    def __init__(self, clock: Clock, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._clock = clock

    @override
    def is_connected(self) -> bool:
        """Whether a request may be sent; the pool asks for those that are kept."""
        return super().is_connected() and not self._has_expired()

    def _has_expired(self) -> bool:
        tls = None if self.transport is None else self.transport.get_extra_info("ssl_object")
        if tls is None or tls.context.verify_mode is ssl.CERT_NONE:
            return False
        if self._expires_at is None:
            self._expires_at = chain_end(tls)
        return self._expires_at is not None and self._expires_at <= self._clock.now()

    @override
    def set_response_params(self, **parameters: Any) -> None:
        self._interim = 0
        super().set_response_params(**parameters)

    @override
    def feed_data(self, data: tuple[RawResponseMessage, StreamReader], size: int = 0) -> None:
        self._interim += 100 <= data[0].code < 200
        if self._interim <= INTERIM_LIMIT:
            super().feed_data(data, size)
        elif not self.is_eof():
            # The rest of what has come already is dropped, an answer in it included.
            self.set_exception(InterimAnswersError(f"more than {INTERIM_LIMIT} interim answers"))
            if self.transport is not None:
                self.transport.abort()


async def _read(response: aiohttp.ClientResponse, limit_bytes: int) -> bytes:
    if response.content_length is not None and response.content_length > limit_bytes:
        raise _too_long(limit_bytes)
    decoder = _decoder(response.headers.get("Content-Encoding", "identity"))
    body = bytearray()
    async with body_memory.arriving():
        async for chunk in response.content.iter_any():
            if decoder and decoder.eof:
                # The decoder would keep all that follows, and copy it with each chunk.
                raise _unusable("the compressed body goes on after its end")
            while chunk:
                piece, chunk = _decompressed(decoder, chunk)
                if len(body) + len(piece) > limit_bytes:
                    raise _too_long(limit_bytes)
                await body_memory.take(len(piece))
                body += piece
                if chunk:
                    await asyncio.sleep(0)  # a few bytes may become megabytes
    if decoder and not decoder.eof:
        raise _unusable("the compressed body ended early")
    return bytes(body)


def _decompressed(decoder: "zlib._Decompress | None", chunk: bytes) -> tuple[bytes, bytes]:
    """What comes out next, and what is left to go in."""
    if decoder is None:
        return chunk, b""
    try:
        return decoder.decompress(chunk, _PIECE_BYTES), decoder.unconsumed_tail
    except zlib.error as error:
        raise _unusable("the body is not the gzip it claims to be") from error


def _decoder(encoding: str) -> "zlib._Decompress | None":
    match encoding.strip().lower():
        case "identity" | "":
            return None
        case "gzip" | "x-gzip":
            return zlib.decompressobj(wbits=31)
        case other:
            raise _unusable("unknown content encoding", repr(excerpt(other, 32)))


def _too_long(limit_bytes: int) -> FetchError:
    return _unusable(f"the body is longer than {limit_bytes} bytes")


def _unusable(message: str, detail: str | None = None) -> FetchError:
    return FetchError(SourceState.INVALID, message, detail=detail, by_peer=True)


def retry_after_s(response: aiohttp.ClientResponse) -> int | None:
    """Seconds of the ``Retry-After`` header, which may name a time instead; None where it says neither."""
    header = response.headers.get("Retry-After")
    until, sent = _date(header), _date(response.headers.get("Date"))
    if until is None or sent is None:
        return _seconds(header)
    return max(0, int((until - sent).total_seconds()))


def _seconds(header: str | None) -> int | None:
    text = (header or "").strip()
    if not _SECONDS.fullmatch(text):
        return None
    digits = text.lstrip("0")
    return min(int(digits or "0"), _MOST_S) if len(digits) <= len(str(_MOST_S)) else _MOST_S


def _date(header: str | None) -> datetime | None:
    try:
        return parsedate_to_datetime(header or "").astimezone(UTC)
    except (ValueError, OverflowError):
        return None
