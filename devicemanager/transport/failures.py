"""Turns foreign failures of a request into a FetchError, and a FetchError into a value."""

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Final, TypeVar

import aiohttp
from aiohttp.http_exceptions import BadHttpMessage

from devicemanager.errors import DocumentError, ExcessError, FetchError, excerpt
from devicemanager.model.usage import SourceState
from devicemanager.transport import peer_time

T = TypeVar("T")

CONNECTION_LOST: Final = "the connection was lost before the answer"
CERTIFICATE_REFUSED: Final = "certificate not accepted"


class InterimAnswersError(BadHttpMessage):
    """A peer sends interim answers without end; made by our own connections."""


@asynccontextmanager
async def within(deadline_s: float, *, through: bool = False) -> AsyncIterator[float]:
    """Bounds the block in time and turns every foreign failure in it into a FetchError.

    Args:
        deadline_s: Seconds from now.
        through: Whether somebody is between us and the peer, who may as well have broken the connection.

    Yields:
        When the time is over, by the loop's clock.
    """
    ends_s = asyncio.get_running_loop().time() + deadline_s
    try:
        async with asyncio.timeout_at(ends_s):
            yield ends_s
    except TimeoutError as error:
        said = f"no complete answer within {deadline_s:.3g} s"
        raise FetchError(SourceState.TIMEOUT, said, by_peer=peer_time.was_enough()) from error
    except aiohttp.ClientConnectorCertificateError as error:
        raise _certificate_refused(error.certificate_error) from error
    except aiohttp.ClientConnectorError as error:
        # The text of the error names the address, which belongs in the log only.
        raise FetchError(SourceState.UNREACHABLE, f"cannot connect: {_cause(error.os_error)}") from error
    except aiohttp.ClientPayloadError as error:
        raise FetchError(SourceState.INVALID, "the body ended early or was garbled", by_peer=not through) from error
    except (aiohttp.ClientConnectionError, OSError) as error:
        raise FetchError(SourceState.UNREACHABLE, CONNECTION_LOST) from error
    except aiohttp.ClientError as error:
        ours = error.__cause__ if isinstance(error.__cause__, InterimAnswersError) else None
        said = ours.message if ours else "the answer is not valid HTTP"
        raise FetchError(SourceState.INVALID, said, detail=excerpt(str(error)), by_peer=not through) from error


def unreadable(error: DocumentError) -> FetchError:
    """The failure of a peer whose document cannot be used. What is wrong may quote it, and is for the log."""
    excess = isinstance(error, ExcessError)
    message = "its answer holds more than is read" if excess else "its answer cannot be read"
    return FetchError(SourceState.INVALID, message, detail=str(error), lasting=excess, by_peer=True)


async def attempt(read: Awaitable[T]) -> T | FetchError:
    """The answer, or the failure as a value: in a TaskGroup one source's failure must not cancel the others."""
    try:
        return await read
    except FetchError as error:
        return error


def _certificate_refused(error: Exception) -> FetchError:
    """In OpenSSL's words, a closed list, but for the name or address that a certificate is not valid for."""
    why, _, whom = getattr(error, "verify_message", "").partition(", ")
    if not why:
        return FetchError(SourceState.UNREACHABLE, CERTIFICATE_REFUSED, detail=excerpt(str(error)))
    return FetchError(
        SourceState.UNREACHABLE, f"{CERTIFICATE_REFUSED}: {excerpt(why)}", detail=excerpt(whom) or None
    )


def _cause(error: OSError) -> str:
    """What went wrong without where: asyncio writes the address into the text of a refused connection."""
    if isinstance(error, ssl.SSLError):  # whose number is OpenSSL's, and none of the system's
        if error.reason in {"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL"}:
            return "what listens there does not speak TLS"
        return f"TLS handshake failed: {excerpt((error.reason or type(error).__name__).lower().replace('_', ' '))}"
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return excerpt(error.strerror or type(error).__name__)
