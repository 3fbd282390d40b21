"""One bounded HTTP exchange with a peer: time, bytes and redirects are limited, and every failure is a FetchError.

The session must come from :func:`open_session`: bodies arrive undecoded, so that what counts against the limit is
what decompression produced, never what it might produce.
"""

import asyncio
import os
import re
import ssl
import zlib
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any, Final, TypeVar

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.http import RawResponseMessage
from aiohttp.http_exceptions import BadHttpMessage
from aiohttp.streams import StreamReader
from typing_extensions import override
from yarl import URL

from devicemanager.clock import Clock
from devicemanager.errors import FetchError, excerpt
from devicemanager.model.usage import SourceState

T = TypeVar("T")

CONNECTION_LOST: Final = "the connection was lost before the answer"

ERROR_BODY_LIMIT_BYTES: Final = 64 * 1024
"""Of an error answer: room for any Kubernetes Status, too little to hurt."""

INTERIM_LIMIT: Final = 8
"""Interim (1xx) answers before the answer. We ask for none, so an honest peer sends one or two at most."""

_AGE: Final = re.compile(r"[0-9]{1,10}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Request:
    """What to ask of whom.

    Attributes:
        url: Complete and already quoted.
        limit_bytes: Of the decoded body of a good answer.
        tls: The context to verify with; None for plain HTTP.
        server_hostname: The name to verify, where it is not the host of the URL.
        proxy: Only ever from a kubeconfig; the environment is never asked.
    """

    method: str
    url: URL
    limit_bytes: int
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes | None = field(default=None, repr=False)
    tls: ssl.SSLContext | None = None
    server_hostname: str | None = None
    proxy: URL | None = None


@dataclass(frozen=True, slots=True)
class Received:
    """A complete answer.

    Attributes:
        body: Decoded, within the limit; empty once it was read and only the times still matter.
        received_at: Our wall clock when the headers were in, aware UTC.
        received_monotonic_s: Our monotonic clock at the same moment.
        age_s: The ``Age`` header; None where it is missing or no whole number of seconds.
        date: The sender's clock, from the ``Date`` header; None where it is missing or malformed.
    """

    status: int
    body: bytes
    content_type: str
    received_at: datetime
    received_monotonic_s: float
    age_s: int | None = None
    date: datetime | None = None

    def without_body(self) -> "Received":
        """For keeping: what a body said is kept by whoever read it."""
        return replace(self, body=b"")


class _Connection(ResponseHandler):
    """A connection to a peer, given up when interim answers do not end; aiohttp itself reads on for ever."""

    _interim = 0

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
            self.set_exception(BadHttpMessage(f"more than {INTERIM_LIMIT} interim answers"))
            if self.transport is not None:
                self.transport.abort()


class _Connector(aiohttp.TCPConnector):
    """Makes connections of our class."""

    def __init__(self, *, limit: int) -> None:
        super().__init__(limit=limit)
        made: type[ResponseHandler] = _Connection
        self._factory = partial(made, loop=self._loop)


def open_session(*, connections: int, user_agent: str) -> aiohttp.ClientSession:
    """A session for this module. Its owner closes it. At most ``connections`` are open; further requests wait."""
    return aiohttp.ClientSession(
        connector=_Connector(limit=connections),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        trust_env=False,
        headers={"User-Agent": user_agent},
    )


@asynccontextmanager
async def within(deadline_s: float) -> AsyncIterator[None]:
    """Bounds the block in time and turns every foreign failure in it into a FetchError."""
    try:
        async with asyncio.timeout(deadline_s):
            yield
    except TimeoutError as error:
        raise FetchError(SourceState.TIMEOUT, f"no complete answer within {deadline_s:.3g} s") from error
    except aiohttp.ClientConnectorCertificateError as error:
        reason = getattr(error.certificate_error, "verify_message", "") or str(error.certificate_error)
        raise FetchError(SourceState.UNREACHABLE, f"certificate not accepted: {excerpt(reason)}") from error
    except aiohttp.ClientConnectorError as error:
        # The text of the error itself names the address, which is nobody's business but the log's.
        raise FetchError(SourceState.UNREACHABLE, f"cannot connect: {_cause(error.os_error)}") from error
    except aiohttp.ClientPayloadError as error:
        raise FetchError(SourceState.INVALID, "the body ended early or was garbled") from error
    except (aiohttp.ClientConnectionError, OSError) as error:
        raise FetchError(SourceState.UNREACHABLE, CONNECTION_LOST) from error
    except aiohttp.ClientError as error:
        raise FetchError(SourceState.INVALID, f"not HTTP as expected: {excerpt(str(error))}") from error


async def attempt(read: Awaitable[T]) -> T | FetchError:
    """The answer, or the failure as a value: in a TaskGroup one source's failure must not cancel the others."""
    try:
        return await read
    except FetchError as error:
        return error


async def exchange(session: aiohttp.ClientSession, request: Request, clock: Clock) -> Received:
    """Asks once, follows nothing, and reads the whole answer. To be called inside :func:`within`.

    Raises:
        FetchError: ``invalid`` for a redirect, a body over the limit or one that cannot be decoded.
    """
    async with start(session, request) as response:
        received_at, received_monotonic_s = clock.now(), clock.monotonic()
        if 300 <= response.status < 400:
            raise FetchError(SourceState.INVALID, "answered with a redirect", status=response.status)
        limit = request.limit_bytes if response.status < 400 else ERROR_BODY_LIMIT_BYTES
        return Received(
            status=response.status,
            body=await _read(response, limit),
            content_type=response.content_type,
            received_at=received_at,
            received_monotonic_s=received_monotonic_s,
            age_s=_age(response.headers.get("Age")),
            date=_date(response.headers.get("Date")),
        )


@asynccontextmanager
async def start(session: aiohttp.ClientSession, request: Request) -> AsyncIterator[aiohttp.ClientResponse]:
    """The answer's head, its body still to come; an answer not read to its end costs the connection."""
    async with session.request(
        request.method,
        request.url,
        data=request.body,
        headers=request.headers,
        allow_redirects=False,
        ssl=request.tls if request.tls is not None else True,
        server_hostname=request.server_hostname,
        proxy=request.proxy,
    ) as response:
        try:
            yield response
        except BaseException:
            response.close()
            raise


async def _read(response: aiohttp.ClientResponse, limit_bytes: int) -> bytes:
    if response.content_length is not None and response.content_length > limit_bytes:
        raise _too_long(limit_bytes)
    decoder = _decoder(response.headers.get("Content-Encoding", "identity"))
    body = bytearray()
    async for chunk in response.content.iter_any():
        if decoder and decoder.eof:
            # The decoder would keep all that follows, and copy it with each chunk.
            raise FetchError(SourceState.INVALID, "the compressed body goes on after its end")
        room = limit_bytes - len(body)
        try:
            body += decoder.decompress(chunk, room + 1) if decoder else chunk
        except zlib.error as error:
            raise FetchError(SourceState.INVALID, "the body is not the gzip it claims to be") from error
        if len(body) > limit_bytes:
            raise _too_long(limit_bytes)
    if decoder and not decoder.eof:
        raise FetchError(SourceState.INVALID, "the compressed body ended early")
    return bytes(body)


def _decoder(encoding: str) -> "zlib._Decompress | None":
    match encoding.strip().lower():
        case "identity" | "":
            return None
        case "gzip" | "x-gzip":
            return zlib.decompressobj(wbits=31)
        case other:
            raise FetchError(SourceState.INVALID, f"unknown content encoding {excerpt(other, 32)!r}")


def _too_long(limit_bytes: int) -> FetchError:
    return FetchError(SourceState.INVALID, f"the body is longer than {limit_bytes} bytes")


def _cause(error: OSError) -> str:
    """What went wrong without where: asyncio writes the address into the text of a refused connection."""
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return excerpt(error.strerror or type(error).__name__)


def _age(header: str | None) -> int | None:
    text = (header or "").strip()
    return int(text) if _AGE.fullmatch(text) else None


def _date(header: str | None) -> datetime | None:
    try:
        return parsedate_to_datetime(header or "").astimezone(UTC)
    except (ValueError, OverflowError):
        return None
