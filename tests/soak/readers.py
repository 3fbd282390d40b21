"""Those who read: honestly once in a while, slowly on many connections, and only to connect and go away."""

import asyncio
import json
import ssl
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.e2e.device_manager import trusting_anyone

DEADLINE_S: Final = 30.0

Explained = Callable[[Mapping[str, Any]], str | None]
"""What is wrong with an answer and is not explained by a source that fails just now; None for nothing."""


@dataclass
class Tally:
    """What came of one kind of reading."""

    count: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    slowest_s: float = 0.0


class Connection:
    """A client's kept connection, made again when it was closed between two requests."""

    def __init__(
        self, port: Callable[[], int], pair: Path, headers: Mapping[str, str], piece: int, pause_s: float
    ) -> None:
        self._port = port
        self._pair = pair
        self._headers = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self._piece = piece
        self._pause_s = pause_s
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def get(self, path: str) -> tuple[int, bytes]:
        """Status and body.

        Raises:
            OSError: There was no whole answer, on a new connection either.
        """
        async with asyncio.timeout(DEADLINE_S):
            kept = self._streams is not None
            try:
                return await self._exchange(path)
            except (OSError, asyncio.IncompleteReadError, EOFError):
                self.close()
                if not kept:
                    raise
                return await self._exchange(path)

    async def _exchange(self, path: str) -> tuple[int, bytes]:
        if self._streams is None:
            context = trusting_anyone()
            context.load_cert_chain(self._pair / "tls.crt", self._pair / "tls.key")
            self._streams = await asyncio.open_connection("127.0.0.1", self._port(), ssl=context, limit=4096)
        reader, writer = self._streams
        writer.write(f"GET {path} HTTP/1.1\r\nHost: a\r\n{self._headers}\r\n".encode())
        status = int((await reader.readuntil(b"\r\n")).split()[1])
        length, closes = 0, False
        while (line := await reader.readuntil(b"\r\n")) != b"\r\n":
            name, _, value = line.decode().partition(":")
            length = int(value) if name.lower() == "content-length" else length
            closes = closes or (name.lower() == "connection" and "close" in value)
        body = bytearray()
        while len(body) < length:
            body += await reader.readexactly(min(self._piece, length - len(body)))
            if self._pause_s:
                await asyncio.sleep(self._pause_s)
        if closes:
            self.close()
        return status, bytes(body)

    def close(self) -> None:
        """Until the next request."""
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None


async def read(connection: Connection, path: str, tally: Tally, explained: Explained, every_s: float) -> None:
    """Ask for as long as the soak lasts."""
    while True:
        began_s = time.monotonic()
        try:
            status, body = await connection.get(path)
            wrong = f"status {status}" if status != 200 else explained(json.loads(body))
        except (OSError, EOFError, TimeoutError, ValueError) as error:
            wrong = repr(error)
        tally.count += 1
        tally.slowest_s = max(tally.slowest_s, time.monotonic() - began_s)
        if wrong is not None:
            tally.failed[wrong] += 1
            connection.close()
        await asyncio.sleep(every_s)


async def churn(port: Callable[[], int]) -> None:
    """Connections that end in the handshake, after it, and in the middle of a head."""
    while True:
        for what in (None, b"", b"GET /livez HTTP/1.1\r\nHo"):
            try:
                context = None if what is None else trusting_anyone()
                _, writer = await asyncio.open_connection("127.0.0.1", port(), ssl=context)
                writer.write(what or b"")
                writer.transport.abort()
            except (OSError, ssl.SSLError):
                pass
            await asyncio.sleep(0.05)
