"""The end of what a collector process writes to standard error."""

import asyncio
from typing import Final

from typing_extensions import override

from devicemanager.errors import excerpt
from devicemanager.node import line_pipe

_TAIL_BYTES: Final = 4096


class StderrTail(asyncio.Protocol):
    """Keeps the end of what a process writes to standard error."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._tail = bytearray()
        self._ended = False
        self._transport: asyncio.BaseTransport | None = None

    @property
    def line(self) -> str:
        """The last line with anything in it."""
        lines = self._tail.decode(errors="replace").splitlines()
        return next((excerpt(line) for line in reversed(lines) if line.strip()), "")

    def close(self) -> None:
        """Read no more."""
        self._ended = True
        if self._transport is not None:
            self._transport.close()

    def finish(self) -> None:
        """Read what is there, and no more."""
        if not self._ended:
            self.data_received(line_pipe.left_in(self._descriptor))
        self.close()

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    @override
    def data_received(self, data: bytes) -> None:
        self._tail += data
        del self._tail[:-_TAIL_BYTES]

    @override
    def eof_received(self) -> None:
        self._ended = True

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._ended = True
