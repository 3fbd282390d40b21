"""The reading end of a collector's pipe: whole lines, in bounded memory.

The lines of a sample mostly arrive together. Those that are there are returned without a timer or a turn of the
loop, which saves a quarter of the cost of a sample in this process.
"""

import asyncio
import contextlib
import os
from collections import deque
from collections.abc import Callable
from typing import Final, TypeVar, cast

from typing_extensions import override

from devicemanager.wire.collector_lines import LINE_LIMIT_BYTES, ends_sample

_BACKLOG_LINES: Final = 256
"""Lines kept unread before the writer is made to wait."""

_PIPE_BYTES: Final = 1 << 20
"""At least what a pipe holds; one of default size holds 64 KiB."""

_GATHER_S: Final = 0.005
"""For how long more lines of a sample gather in the pipe once some were read. To wake up for the lines of each card
would cost as much again as the lines themselves, here and in the writer, whose core or cache it takes."""


class LinePipe(asyncio.Protocol):
    """Cuts what arrives into lines. Make one with :meth:`connect`."""

    def __init__(self, descriptor: int) -> None:
        self.overlong = False
        """Whether a line is too long; no more is read then."""
        self.ended = False
        """Whether the other end is closed, or this one."""
        self._lines: deque[bytes] = deque()
        self._rest = b""
        self._news = asyncio.Event()
        self._timeout: asyncio.Timeout | None = None
        self._backlog = False
        self._descriptor = descriptor
        self._transport: asyncio.ReadTransport | None = None

    @classmethod
    async def connect(cls, descriptor: int) -> "LinePipe":
        """Read from ``descriptor``, which is closed with the pipe, and also when this fails."""
        return await connect(descriptor, lambda: cls(descriptor))

    @property
    def half_line(self) -> bool:
        """Whether the last line was not finished."""
        return bool(self._rest)

    async def next(self, deadline_s: float) -> bytes | None:
        """The next line without its break; None when there is none any more.

        Raises:
            TimeoutError: There is none within ``deadline_s`` seconds.
        """
        if not self._lines and not self._over:
            await self._line_or_end_within(deadline_s)
        return self.take()

    def take(self) -> bytes | None:
        """The next line without its break if it is there."""
        if not self._lines:
            return None
        line = self._lines.popleft()
        if self._backlog and not self._lines and not self._over:
            self._backlog = False
            self._reading.resume_reading()
        return line

    async def _line_or_end_within(self, deadline_s: float) -> None:
        """Wait for the deadline, and as long again as this process itself was delayed, at most twice the deadline.

        A process that was stopped or short of CPU time sees the deadline pass before it has read the pipe.
        The line may have arrived in time.
        """
        loop = asyncio.get_running_loop()
        due_s = loop.time() + deadline_s
        try:
            async with asyncio.timeout(deadline_s) as self._timeout:
                await self._line_or_end()
        except TimeoutError:
            held_up_s = loop.time() - due_s
            async with asyncio.timeout(min(held_up_s, deadline_s)):
                await self._line_or_end()
        finally:
            self._timeout = None

    async def _line_or_end(self) -> None:
        while not self._lines and not self._over:
            self._news.clear()
            await self._news.wait()

    def stop_waiting(self) -> None:
        """Have the line that is waited for not come in time."""
        if self._timeout is not None and not self._timeout.expired():
            self._timeout.reschedule(0.0)

    def close(self) -> None:
        """Read no more."""
        self.ended = True  # from here on, the descriptor may be another file's
        self._reading.close()

    def finish(self) -> None:
        """Read what is in the pipe, and no more: its writer has ended, though others may hold its end open."""
        if not self._over:
            self.data_received(left_in(self._descriptor))
        self.close()
        self._news.set()

    @property
    def _over(self) -> bool:
        return self.ended or self.overlong

    @property
    def _reading(self) -> asyncio.ReadTransport:
        assert self._transport is not None  # noqa: S101 - connect() gives out no pipe before it is connected
        return self._transport

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.ReadTransport", transport)

    @override
    def data_received(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._lines.extend(lines)
        self.overlong = len(self._rest) > LINE_LIMIT_BYTES
        if self.overlong or len(self._lines) > _BACKLOG_LINES:
            self._backlog = True
            self._reading.pause_reading()
        elif lines and not ends_sample(lines[-1]):
            self._reading.pause_reading()
            asyncio.get_running_loop().call_later(_GATHER_S, self._read_on)
        self._news.set()

    def _read_on(self) -> None:
        if not self._over and not self._reading.is_closing():
            self._reading.resume_reading()

    @override
    def eof_received(self) -> None:
        self.connection_lost(None)  # the descriptor is closed before that is called

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self.ended = True
        self._news.set()


class _Pipe:
    """A descriptor that is closed once. uvloop closes it by itself, and this object after that.

    A second ``close`` of the number may meet what another thread has opened meanwhile, and its EBADF would take the
    place of a cancellation.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._file = _file(descriptor)

    def fileno(self) -> int:
        return self._descriptor

    def close(self) -> None:
        with contextlib.suppress(OSError):
            if _file(self._descriptor) == self._file:
                os.close(self._descriptor)


def _file(descriptor: int) -> tuple[int, int]:
    """What a descriptor stands for: device and inode."""
    found = os.fstat(descriptor)
    return found.st_dev, found.st_ino


P = TypeVar("P", bound=asyncio.BaseProtocol)


async def connect(descriptor: int, protocol: Callable[[], P]) -> P:
    """Have a protocol read from a pipe, whose descriptor is closed with it, and also when this fails."""
    pipe = _Pipe(descriptor)
    try:
        _, connected = await asyncio.get_running_loop().connect_read_pipe(protocol, pipe)
    except BaseException:
        pipe.close()
        raise
    return connected


def left_in(descriptor: int) -> bytes:
    """What a pipe holds at this moment; reading from it does not block."""
    data = bytearray()
    with contextlib.suppress(BlockingIOError):
        while len(data) < _PIPE_BYTES and (piece := os.read(descriptor, 1 << 16)):
            data += piece
    return bytes(data)
