"""A client that costs little: blocking TLS connections driven in lock step, for asking a server on another core.

Each turn sends one request on every connection and then reads every answer, so the server has as many requests at
once as there are connections.
"""

import re
import select
import socket
import ssl
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

_LENGTH: Final = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_TIMEOUT_S: Final = 30.0


def trusting(ca_file: Path, client: Path | None = None) -> ssl.SSLContext:
    """Verifies servers with that CA, by chain and not by name; shows the pair of a directory if one is given."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(ca_file)
    if client is not None:
        context.load_cert_chain(client / "tls.crt", client / "tls.key")
    return context


class Connections:
    """Kept-alive connections to one server. Use as a context manager.

    Args:
        port: On 127.0.0.1.
        context: To verify it with.
        count: How many.
        sources: Addresses to connect from, in turn: a server may bound the connections of one peer.
        first: What each connection asks at once: a server gives up those that ask nothing for long.
    """

    def __init__(
        self,
        port: int,
        context: ssl.SSLContext,
        count: int,
        sources: Sequence[str] = (),
        first: bytes | None = None,
    ) -> None:
        self._sockets: list[ssl.SSLSocket] = []
        for index in range(count):
            source = (sources[index % len(sources)], 0) if sources else None
            raw = socket.create_connection(("127.0.0.1", port), timeout=_TIMEOUT_S, source_address=source)
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            one = context.wrap_socket(raw, server_hostname="localhost")
            self._sockets.append(one)
            if first is not None:
                one.sendall(first)
                _answer(one)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for one in self._sockets:
            one.close()

    def turn(self, requests: Sequence[bytes]) -> list[bytes]:
        """One request on each connection, the requests being dealt out in turn; all bodies, in order.

        Raises:
            ConnectionError: A connection closed, or an answer is not 200.
        """
        for index, one in enumerate(self._sockets):
            one.sendall(requests[index % len(requests)])
        return [_answer(one) for one in self._sockets]

    def send(self, requests: Sequence[bytes], pause_s: float) -> None:
        """The first half of a turn, with a pause between any two requests."""
        for index, one in enumerate(self._sockets):
            one.sendall(requests[index % len(requests)])
            time.sleep(pause_s)

    def unanswered(self) -> int:
        """Connections on which nothing has come since the last answer was taken."""
        poll = select.poll()
        for one in self._sockets:
            poll.register(one, select.POLLIN)
        return len(self._sockets) - len(poll.poll(0))

    def turns(self, request: bytes, seconds: float) -> tuple[int, float]:
        """As many turns as fit: requests answered, and the seconds they took."""
        begun_s = time.monotonic()
        answered = 0
        while (took_s := time.monotonic() - begun_s) < seconds:
            answered += len(self.turn([request]))
        return answered, took_s

    def latencies_s(self, request: bytes, seconds: float) -> list[float]:
        """How long each turn took, one after the other."""
        until, taken = time.monotonic() + seconds, []
        while (begun_s := time.monotonic()) < until:
            self.turn([request])
            taken.append(time.monotonic() - begun_s)
        return taken


def get(path: str, headers: Mapping[str, str] | None = None) -> bytes:
    """The bytes of a GET."""
    lines = [
        f"GET {path} HTTP/1.1",
        "Host: localhost",
        *(f"{key}: {value}" for key, value in (headers or {}).items()),
    ]
    return "\r\n".join([*lines, "", ""]).encode()


def _answer(one: ssl.SSLSocket) -> bytes:
    received = bytearray()
    while (end := received.find(b"\r\n\r\n")) < 0:
        received += _some(one)
    length = _LENGTH.search(received, 0, end)
    if not received.startswith(b"HTTP/1.1 200") or length is None:
        raise ConnectionError(f"not a good answer: {bytes(received[:300])!r}")
    missing = end + 4 + int(length[1]) - len(received)
    while missing > 0:
        more = _some(one)
        received += more
        missing -= len(more)
    return bytes(received[end + 4 :])


def _some(one: ssl.SSLSocket) -> bytes:
    data = one.recv(1 << 20)
    if not data:
        raise ConnectionError("closed in the middle of an answer")
    return data
