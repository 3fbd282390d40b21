"""The attackers: each attack is a process of its own, in which all addresses share one core."""

import os
import random
import resource
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

from tests.attack.program import ATTACKER_CORE
from tests.e2e.device_manager import trusting_anyone
from tests.floods import MIB, Flood, header_line, long_names, request, unfinished_head

_ROOT: Final = Path(__file__).parents[2]
_PROGRAM: Final = (
    "import sys; sys.path.insert(0, sys.argv[1]); from tests.attack import attackers; attackers.main()"
)

HELD_S: Final = 2.0
"""For how long connections are kept once an attack has sent all it can."""

ADDRESSES: Final = 16
_MANY: Final = 64
"""Connections that one address of the mixed attack holds; more than one may."""

Step = Callable[[str, int, float], None]
"""One address of the mixed attack: from where, which port, until when (monotonic)."""

_GONE: Final = (OSError, ssl.SSLError, ValueError)


def unfinished_heads(port: int) -> None:
    """256 KB of a head on each of 800 connections from one address, after one request each."""
    with Flood(port, send_buffer=262_144) as flood:
        for _ in range(800):
            connection = flood.open("127.0.2.1")
            if connection is not None:
                flood.ask(connection)
        flood.push_all(unfinished_head(256 * 1024))
        _hold()


def answers_never_read(port: int, path: str = long_names(60_000)) -> None:
    """14 requests on each of 32 connections from each of 8 addresses."""
    with Flood(port) as flood:
        for number in range(8 * 32):
            flood.open(f"127.0.2.{1 + number % 8}")
        flood.push_all(request(path) * 14)
        _hold()


def an_endless_head_behind_answers(port: int) -> None:
    """On one connection, which never reads."""
    with Flood(port, send_buffer=262_144) as flood:
        flood.open("127.0.2.1")
        begun = request(long_names(60_000)) * 100 + b"GET /livez HTTP/1.1\r\n"
        flood.push_all(begun, header_line(60_000), 320 * MIB)
        _hold()


def large_requests_behind_answers(port: int) -> None:
    """On six connections, which never read."""
    with Flood(port) as flood:
        for _ in range(6):
            flood.open("127.0.2.1")
        flood.push_all(request("/metrics") * 200, request("/livez", header_line(8000) * 120), 40 * MIB)
        _hold()


def every_slot_with_an_answer_not_read(port: int, path: str = "/livez?verbose") -> None:
    """From 11 addresses, 24 connections each."""
    with Flood(port) as flood:
        for number in range(11 * 24):
            flood.open(f"127.0.2.{1 + number % 11}")
        flood.push_all(request(path) * 400)
        _hold()


def idle_connections(port: int) -> None:
    """1,400 of them, from 100 addresses."""
    with Flood(port) as flood:
        for number in range(1400):
            with suppress(OSError):
                flood.idle(f"127.0.4.{1 + number % 100}")
        _hold()


def mixed(port: int, seconds: str = "6") -> None:
    """All kinds at once, one or two kinds from each of 16 addresses."""
    until_s = time.monotonic() + float(seconds)
    threads = [
        threading.Thread(target=_mixed[number % len(_mixed)], args=(f"127.0.2.{1 + number}", port, until_s))
        for number in range(ADDRESSES)
    ]
    for one in threads:
        one.start()
    for one in threads:
        one.join()


def unknown_tokens(port: int, seconds: str = "6") -> None:
    """Requests with tokens that nobody knows, each another one, from each of 16 addresses."""
    until_s = time.monotonic() + float(seconds)
    threads = [
        threading.Thread(target=_unknown_tokens, args=(f"127.0.2.{1 + number}", port, until_s))
        for number in range(ADDRESSES)
    ]
    for one in threads:
        one.start()
    for one in threads:
        one.join()


def _unknown_tokens(address: str, port: int, until_s: float) -> None:
    while time.monotonic() < until_s:
        with ExitStack() as stack, suppress(*_GONE):
            for _ in range(4):
                one = stack.enter_context(_tls(address, port))
                one.sendall(request("/apis", b"Authorization: Bearer %s\r\n" % os.urandom(16).hex().encode()))


def _hold() -> None:
    time.sleep(HELD_S)


def _tcp(address: str, port: int) -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
    made.settimeout(2)
    made.bind((address, 0))
    try:
        made.connect(("127.0.0.1", port))
    except OSError:
        made.close()
        raise
    return made


def _tls(address: str, port: int, context: ssl.SSLContext | None = None) -> ssl.SSLSocket:
    raw = _tcp(address, port)
    try:
        return (context or trusting_anyone()).wrap_socket(raw)
    except _GONE:
        raw.close()
        raise


def _held(
    address: str,
    port: int,
    until_s: float,
    make: Callable[[str, int], socket.socket],
    first: bytes,
    then: bytes,
    pause_s: float = 0.2,
) -> None:
    """Keeps many connections, sends ``first`` and then ``then`` again and again, and replaces those that closed."""
    with ExitStack() as stack:
        held: list[socket.socket] = []
        while time.monotonic() < until_s:
            while len(held) < _MANY and time.monotonic() < until_s:
                try:
                    one = stack.enter_context(make(address, port))
                    one.setblocking(False)
                    held.append(one)
                    one.send(first)
                except _GONE:
                    break
            for one in list(held):
                try:
                    if then:
                        one.send(then)
                except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                    continue
                except _GONE:
                    held.remove(one)
                    one.close()
            time.sleep(pause_s)


def _idle(address: str, port: int, until_s: float) -> None:
    _held(address, port, until_s, _tcp, b"", b"")


def _half_handshakes(address: str, port: int, until_s: float) -> None:
    hello = _client_hello()
    _held(address, port, until_s, _tcp, hello[: len(hello) // 2], b"")


def _slow_heads(address: str, port: int, until_s: float) -> None:
    _held(address, port, until_s, _tls, b"GET /livez HTTP/1.1\r\nHost: a\r\nX-", b"a")


def _endless_heads(address: str, port: int, until_s: float) -> None:
    _held(address, port, until_s, _tls, b"GET /livez HTTP/1.1\r\nHost: a\r\n", header_line(4000), 0.0)


def _answers_not_read(address: str, port: int, until_s: float) -> None:
    _held(address, port, until_s, _tls, request(long_names(8000)) * 40, request("/metrics") * 40)


def _huge_headers(address: str, port: int, until_s: float) -> None:
    _again(address, port, until_s, b"GET / HTTP/1.1\r\nHost: a\r\n" + header_line(MIB))


def _churn(address: str, port: int, until_s: float) -> None:
    """Whole handshakes, each ended by a reset."""
    while time.monotonic() < until_s:
        with suppress(*_GONE), _tls(address, port) as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _garbage(address: str, port: int, until_s: float) -> None:
    """In place of a handshake, and as records of TLS."""
    dice = random.Random(address)
    while time.monotonic() < until_s:
        noise = dice.randbytes(dice.choice([1, 5, 300, 20_000]))
        with suppress(*_GONE), _tcp(address, port) as one:
            one.sendall(dice.choice([b"", b"\x16\x03\x01\x40\x00", b"\x17\x03\x03\x10\x00"]) + noise)
            one.recv(100)


def _garbage_inside(address: str, port: int, until_s: float) -> None:
    dice = random.Random(address)
    while time.monotonic() < until_s:
        _send(address, port, dice.randbytes(dice.choice([1, 300, 20_000])) + b"\r\n\r\n")


def _wrong_requests(address: str, port: int, until_s: float) -> None:
    """Shapes with which requests are smuggled."""
    while time.monotonic() < until_s:
        for one in WRONG_REQUESTS:
            _send(address, port, one)


def _renegotiation_and_early_data(address: str, port: int, until_s: float) -> None:
    """Another ClientHello on a connection that is up, and application data right behind the first one."""
    old = trusting_anyone()
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    hello = _client_hello()
    while time.monotonic() < until_s:
        for context in (old, trusting_anyone()):
            with suppress(*_GONE), _tls(address, port, context) as one:
                socket.socket.send(one, hello)
                one.recv(100)
        with suppress(*_GONE), _tcp(address, port) as one:
            one.sendall(hello + b"\x17\x03\x03\x40\x00" + bytes(0x4000))
            one.recv(100)


def _half_closed(address: str, port: int, until_s: float) -> None:
    """Requests whose sender says at once that it will send no more."""
    while time.monotonic() < until_s:
        with suppress(*_GONE), _tls(address, port) as one:
            one.sendall(request("/metrics") * 3)
            one.shutdown(socket.SHUT_WR)


WRONG_REQUESTS: Final = (
    *(
        b"POST /livez HTTP/1.1\r\nHost: a\r\n" + rest
        for rest in (
            b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
            b"Transfer-Encoding: chunked\r\n\r\nZZ\r\nabc\r\n",
            b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nabc",
            b"Transfer-Encoding: chunked\r\n\r\n3;" + b"x" * 9000 + b"\r\nabc\r\n0\r\n\r\n",
            b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
            b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
            b"Content-Length: -1\r\n\r\n",
            b"Content-Length: 99999999999999999999\r\n\r\nabc",
            b"X-Folded: a\r\n b\r\n\r\n",
            b"X Space: a\r\n\r\n",
            b"X-Nul: a\x00b\r\n\r\n",
            b"Expect: 100-continue\r\nContent-Length: 1000000000\r\n\r\n",
            b"Upgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
        )
    ),
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"GET http://other/livez HTTP/1.1\r\nHost: a\r\n\r\n",
    b"\n" * 20_000,
)

_mixed: Final[Sequence[Step]] = (
    _idle,
    _half_handshakes,
    _slow_heads,
    _endless_heads,
    _answers_not_read,
    _huge_headers,
    _churn,
    _garbage,
    _garbage_inside,
    _wrong_requests,
    _renegotiation_and_early_data,
    _half_closed,
)


def _again(address: str, port: int, until_s: float, data: bytes) -> None:
    while time.monotonic() < until_s:
        _send(address, port, data)


def _send(address: str, port: int, data: bytes) -> None:
    """On a connection of its own; whatever comes back is read once."""
    with suppress(*_GONE), _tls(address, port) as one:
        one.settimeout(0.5)
        one.sendall(data)
        one.recv(1000)


def _client_hello() -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    hello = trusting_anyone().wrap_bio(incoming, outgoing)
    with suppress(ssl.SSLWantReadError):
        hello.do_handshake()
    return outgoing.read()


def _attacks() -> Iterator[Callable[..., None]]:
    yield from (unfinished_heads, answers_never_read, an_endless_head_behind_answers)
    yield from (large_requests_behind_answers, every_slot_with_an_answer_not_read, idle_connections, mixed)
    yield unknown_tokens


def attack(name: Callable[..., None], port: int, *arguments: str) -> None:
    """Run one attack to its end, on the attackers' core."""
    command = [sys.executable, "-P", "-c", _PROGRAM, str(_ROOT), name.__name__, str(port), *arguments]
    subprocess.run(command, check=True, timeout=60)


def main() -> None:
    """The attack that the arguments name."""
    os.sched_setaffinity(0, {ATTACKER_CORE})
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    _, name, port, *arguments = sys.argv[1:]
    {one.__name__: one for one in _attacks()}[name](int(port), *arguments)
