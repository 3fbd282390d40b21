"""Floods: many TLS connections to one real process, by hand."""

import socket
import ssl
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import yaml

from tests.e2e.device_manager import trusting_anyone

MIB: Final = 1024 * 1024
PROBE_TIMEOUT_S: Final = 4.0
"""Longer than the kubelet's second, as machines are busy; shorter than what frees a place by itself."""

_VALUES: Final = Path(__file__).parents[1] / "charts" / "devicemanager" / "values.yaml"
_NO_MORE_S: Final = 1.0
"""When nothing was taken for so long, nothing more will be."""

_SMALL_BUFFER: Final = 16 * 1024

_GONE: Final = (OSError, ssl.SSLError)


def chart_limit_bytes(part: str) -> int:
    """The memory limit of ``worker`` or ``deviceManager`` in the chart."""
    text = yaml.safe_load(_VALUES.read_text())[part]["resources"]["limits"]["memory"]
    assert text.endswith("Mi")
    return int(text.removesuffix("Mi")) * MIB


class Flood:
    """Connections that are kept until the block ends. Use as a context manager.

    Args:
        port: On 127.0.0.1.
        send_buffer: Of the kernel, for each connection's end here; small: what is taken, the server has taken.
    """

    def __init__(self, port: int, send_buffer: int = _SMALL_BUFFER) -> None:
        self._port = port
        self._send_buffer = send_buffer
        self._context = trusting_anyone()
        self._silent: list[socket.socket] = []
        self._sockets: list[ssl.SSLSocket] = []

    def __enter__(self) -> "Flood":
        return self

    def __exit__(self, *_: object) -> None:
        for one in (*self._silent, *self._sockets):
            one.close()

    def idle(self, source: str) -> None:
        """A connection that never begins its handshake."""
        self._silent.append(
            socket.create_connection(("127.0.0.1", self._port), timeout=5, source_address=(source, 0))
        )

    def shake_hands(self) -> list[ssl.SSLSocket]:
        """Let all idle connections have their handshakes; those that the server still wants."""
        begun, self._silent = self._silent, []
        made = []
        for raw in begun:
            try:
                made.append(self._context.wrap_socket(raw))
            except _GONE:
                raw.close()
        self._sockets += made
        return made

    def open(self, source: str) -> ssl.SSLSocket | None:
        """A connection after its handshake; None where the server did not want it."""
        raw = socket.socket()
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SMALL_BUFFER)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._send_buffer)
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        raw.settimeout(10)
        raw.bind((source, 0))
        try:
            raw.connect(("127.0.0.1", self._port))
            made = self._context.wrap_socket(raw)
        except _GONE:
            raw.close()
            return None
        self._sockets.append(made)
        return made

    @staticmethod
    def ask(connection: ssl.SSLSocket, path: str = "/livez") -> bool:
        """One request and its answer; whether there was one."""
        try:
            connection.sendall(request(path))
            return bool(connection.recv(4096))
        except _GONE:
            return False

    @staticmethod
    def push(connection: ssl.SSLSocket, data: bytes) -> int:
        """Send until the server takes no more for a moment, or has closed; how much it took."""
        return _push([connection], data, b"", len(data))

    def push_all(self, data: bytes, again: bytes = b"", size: int = 0) -> int:
        """The same on all connections at once; with ``again``, it follows again and again, up to ``size`` bytes."""
        return _push(self._sockets, data, again, max(size, len(data)))


def _push(connections: Sequence[ssl.SSLSocket], data: bytes, again: bytes, size: int) -> int:
    taken = dict.fromkeys(connections, 0)
    for one in connections:
        one.setblocking(False)
    open_ = set(connections)
    moved_at = time.monotonic()
    while open_ and time.monotonic() - moved_at < _NO_MORE_S:
        for one in list(open_):
            at = taken[one]
            rest, at = (data, at) if at < len(data) else (again, (at - len(data)) % len(again))
            try:
                taken[one] += one.send(rest[at : at + 262_144])
                moved_at = time.monotonic()
            except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
                continue
            except _GONE:
                open_.discard(one)
            if taken[one] >= size:
                open_.discard(one)
    return sum(taken.values())


def request(path: str, headers: bytes = b"") -> bytes:
    """A whole request; ``headers`` are whole lines."""
    return b"GET %s HTTP/1.1\r\nHost: a\r\n%s\r\n" % (path.encode(), headers)


def long_names(size: int) -> str:
    """A probe that was once answered with all that it asks."""
    return f"/livez?verbose&exclude={'x' * size}"


def header_line(size: int) -> bytes:
    """One header line."""
    return b"A: " + b"g" * (size - 5) + b"\r\n"


def unfinished_head(size: int) -> bytes:
    """A request head of many lines that does not end."""
    lines = [b"GET /livez HTTP/1.1\r\nHost: a\r\n"]
    lines += [b"X-Remote-Group: %06d%s\r\n" % (number, b"g" * 200) for number in range(size // 226)]
    return b"".join(lines)


def probe(port: int, source: str, path: str = "/livez") -> bool:
    """Whether a probe from an address of its own is answered with 200 in time, handshake included."""
    deadline = time.monotonic() + PROBE_TIMEOUT_S
    try:
        with (
            socket.create_connection(
                ("127.0.0.1", port), timeout=PROBE_TIMEOUT_S, source_address=(source, 0)
            ) as raw,
            trusting_anyone().wrap_socket(raw) as connection,
        ):
            connection.sendall(request(path))
            answer = connection.recv(4096)
    except _GONE:
        return False
    return answer.startswith(b"HTTP/1.1 200 ") and time.monotonic() < deadline
