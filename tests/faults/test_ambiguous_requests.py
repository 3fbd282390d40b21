"""Requests that two servers may read differently, and old TLS: refused, and nothing that follows is let in."""

import asyncio
import ssl
import warnings
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from aiohttp import web

from devicemanager.serving.listener import Listener
from tests.tls_peers import Logged, authority, cas, client, connected, refused, running, server_identity

pytestmark = pytest.mark.asyncio

INNER = b"GET /inner HTTP/1.1\r\nHost: a\r\n\r\n"
"""What an attacker wants to be taken for a request of its own."""


class Seen:
    """The paths that came to a handler."""

    def __init__(self) -> None:
        self.paths: list[str] = []

    async def answer(self, request: web.Request) -> web.Response:
        self.paths.append(request.path)
        return web.Response(text="ok")


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest_asyncio.fixture
async def listener(seen: Seen) -> AsyncIterator[Listener]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", seen.answer)
    log = Logged().log
    async with running(Listener(app, [("127.0.0.1", 0)], server_identity(cas(authority())), log=log), 0) as one:
        yield one


def head(*lines: bytes) -> bytes:
    return b"POST /outer HTTP/1.1\r\nHost: a\r\n" + b"".join(line + b"\r\n" for line in lines) + b"\r\n"


CHUNKED = b"Transfer-Encoding: chunked"
LENGTH = b"Content-Length: %d" % len(INNER)
SMUGGLED = {
    "a length and chunks": head(LENGTH, CHUNKED) + b"0\r\n\r\n",
    "chunks and a length": head(CHUNKED, LENGTH) + b"0\r\n\r\n",
    "two lengths": head(LENGTH, b"Content-Length: 0"),
    "two lengths in a line": head(b"Content-Length: 0, %d" % len(INNER)),
    "a length with a sign": head(b"Content-Length: +0"),
    "a negative length": head(b"Content-Length: -1"),
    "a length in hexadecimal": head(b"Content-Length: 0x0"),
    "a length in other digits": head("Content-Length: \u0660".encode()),
    "a length with a space inside": head(b"Content-Length: 0 0"),
    "chunks last but one": head(b"Transfer-Encoding: chunked, identity") + b"0\r\n\r\n",
    "chunks by another name": head(b"Transfer-Encoding: xchunked"),
    "chunks twice": head(CHUNKED, CHUNKED) + b"0\r\n\r\n",
    "chunks behind a vertical tab": head(b"Transfer-Encoding: \x0bchunked") + b"0\r\n\r\n",
    "chunks in quotes": head(b'Transfer-Encoding: "chunked"') + b"0\r\n\r\n",
    "a space before the colon": head(b"Content-Length : 0"),
    "a space before the name": head(b"A: b", b" Content-Length: 0"),
    "a folded line": head(b"A: b", b"\tc"),
    "a zero byte in a value": head(b"A: b\x00"),
    "a zero byte in a name": head(b"A\x00: b"),
    "a line without a colon": head(b"Content-Length 0"),
    "a bare carriage return": head(b"A: b\rContent-Length: 0"),
    "a size of a chunk with a sign": head(CHUNKED) + b"+0\r\n\r\n",
    "a size of a chunk in hexadecimal": head(CHUNKED) + b"0x0\r\n\r\n",
    "a size of a chunk that is none": head(CHUNKED) + b"g\r\n\r\n",
    "a size of a chunk beyond counting": head(CHUNKED) + b"1" + b"0" * 40 + b"\r\n\r\n",
    "a chunk longer than it says": head(CHUNKED) + b"1\r\nabc\r\n0\r\n\r\n",
    "a version of its own": b"POST /outer HTTP/9.9\r\nHost: a\r\n\r\n",
    "no version": b"GET /outer\r\n",
    "spaces in the path": b"GET /outer /other HTTP/1.1\r\nHost: a\r\n\r\n",
    "no method": b" /outer HTTP/1.1\r\nHost: a\r\n\r\n",
}


@pytest.mark.parametrize("kind", SMUGGLED)
async def test_a_request_that_may_be_read_in_two_ways_lets_no_other_one_in(
    listener: Listener, seen: Seen, kind: str
) -> None:
    async with connected(listener.addresses[0], client()) as peer:
        peer.writer.write(SMUGGLED[kind] + INNER)
        async with asyncio.timeout(5):
            answered = await peer.reader.read()
    # What is wrong with a body comes to light when its request has been answered; the connection ends there.
    assert seen.paths in ([], ["/outer"] if "size of a chunk" in kind or "longer than it says" in kind else [])
    assert answered.count(b"HTTP/1.") == 1
    assert seen.paths or answered.startswith((b"HTTP/1.0 400 ", b"HTTP/1.1 400 ")), answered[:100]


@pytest.mark.parametrize(
    "outer",
    [
        head(LENGTH),
        head(CHUNKED) + b"%x\r\n" % len(INNER),
        b"GET /outer HTTP/1.1\r\nHost: a\r\n" + LENGTH + b"\r\n\r\n",
    ],
    ids=["a length", "a chunk", "a body of a GET"],
)
async def test_a_request_within_a_body_is_none(listener: Listener, seen: Seen, outer: bytes) -> None:
    end = b"\r\n0\r\n\r\n" if b"chunked" in outer else b""
    async with connected(listener.addresses[0], client()) as peer:
        peer.writer.write(outer + INNER + end)
        assert (await peer.answer()).status == 200
        peer.writer.write(b"GET /next HTTP/1.1\r\nHost: a\r\n\r\n")
        assert (await peer.answer()).status == 200
    assert seen.paths == ["/outer", "/next"]


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
async def test_a_peer_of_an_older_tls_gets_no_connection(listener: Listener, version: ssl.TLSVersion) -> None:
    context = client()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = context.maximum_version = version
    context.set_ciphers("ALL:@SECLEVEL=0")  # else this side would refuse
    assert await refused(listener.addresses[0], context)
