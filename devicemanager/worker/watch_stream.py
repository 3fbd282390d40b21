"""The events of a watch, cut out of the body of its answer."""

from collections.abc import AsyncGenerator
from typing import NamedTuple

import aiohttp

from devicemanager.errors import DocumentError, FetchError
from devicemanager.model.usage import SourceState
from devicemanager.transport.failures import unreadable, within
from devicemanager.wire import kubernetes
from devicemanager.worker.api_errors import fetch_error


class WatchEvent(NamedTuple):
    """One change.

    Attributes:
        type: ``ADDED``, ``MODIFIED``, ``DELETED`` or ``BOOKMARK``.
        object: The object as JSON.
    """

    type: str
    object: bytes


async def events(
    content: aiohttp.StreamReader, *, silence_s: float, limit_bytes: int
) -> AsyncGenerator[WatchEvent, None]:
    """The events as they come.

    Args:
        content: Of a good answer.
        silence_s: Seconds without a byte after which the connection counts as dead.
        limit_bytes: Of one event.

    Raises:
        FetchError: The stream breaks off, is no watch, or ends with a Status.
    """
    lines = _Lines(limit_bytes)
    while chunk := await _next_chunk(content, silence_s):
        for line in lines.feed(chunk):
            yield _event(line)


async def _next_chunk(content: aiohttp.StreamReader, silence_s: float) -> bytes:
    async with within(silence_s):
        return await content.readany()


class _Lines:
    """Cuts chunks into lines, none longer than a limit."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._pending = bytearray()

    def feed(self, chunk: bytes) -> list[bytes]:
        self._pending += chunk
        *complete, rest = self._pending.split(b"\n")
        if len(rest) > self._limit_bytes:
            raise FetchError(SourceState.INVALID, f"a watch event is longer than {self._limit_bytes} bytes")
        self._pending = rest
        return [bytes(line) for line in complete if line.strip()]


def _event(line: bytes) -> WatchEvent:
    try:
        event = kubernetes.parse_watch_line(line)
    except DocumentError as error:
        raise unreadable(error) from error
    if event.type == "ERROR":
        status = kubernetes.parse_status(bytes(event.object))
        raise fetch_error(status.code if status and status.code else 500, bytes(event.object))
    return WatchEvent(event.type, bytes(event.object))
