"""Each private attribute of a library that the product uses, and that it still is what the product takes it for.

A test that fails here after an update says which attribute changed. Then read ``docs/decisions/connections.md``.
"""

import ast
import asyncio
import inspect
import ssl
import sys
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from aiohttp.client_proto import ResponseHandler
from aiohttp.test_utils import BaseTestServer, TestServer, make_mocked_request
from typing_extensions import override

from devicemanager.aiohttp_internals import ProtocolConnector, RequestWithoutServerHeader, hide_server_software

ROOT = Path(__file__).parents[2]

SEEN = ("3.14.0", "3.14.5")
"""Versions of aiohttp in which each attribute below was seen and these tests passed."""

ALLOWED = {
    "devicemanager/aiohttp_internals.py": {"_request_count", "_prepare_hook", "_make_request"},  # and sets _factory
    # In Python 3.11 and 3.12, whose ssl module does not show a peer's verified chain.
    "devicemanager/tls/material.py": {"_sslobj"},
}
"""Module -> private attributes of libraries that it may use."""

PUBLIC = {"_exit"}
"""Documented, though it begins with an underscore: ``os._exit``."""


def changed(attribute: str) -> str:
    return f"{attribute} of aiohttp {aiohttp.__version__} is not what it was in {' and '.join(SEEN)}"


def server_of(server: BaseTestServer) -> web.Server:
    assert server.runner is not None
    found = server.runner.server
    assert found is not None
    return found


def own_names(tree: ast.Module) -> set[str]:
    """What a module defines by itself: functions, classes, variables, attributes."""
    names = set[str]()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.Attribute(attr=name, ctx=ast.Store()) | ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
            case _:
                pass
    return names


def private_uses(source: str) -> set[str]:
    """Private attributes that a module reads, by name or with ``getattr``, without a definition of its own."""
    tree = ast.parse(source)
    used = set[str]()
    inherited = set[str]()
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr=name):
                inherited.add(name)
            case ast.Attribute(attr=name, ctx=ast.Load()):
                used.add(name)
            case ast.Call(func=ast.Name(id="getattr" | "setattr"), args=[_, ast.Constant(value=str(name)), *_]):
                used.add(name)
            case _:
                pass
    foreign = inherited | (used - own_names(tree))
    return {name for name in foreign if name.startswith("_") and not name.startswith("__")} - PUBLIC


def test_the_search_finds_every_kind_of_use() -> None:
    source = "class A(B):\n def f(self):\n  self._own = 1\n  return self._own, self._a, getattr(x, '_b'), y._c()\n"
    source += " def _d(self):\n  super()._d()\n"

    assert private_uses(source) == {"_a", "_b", "_c", "_d"}


def test_no_other_module_uses_private_attributes_of_a_library() -> None:
    modules = [path for package in ("devicemanager", "collectors") for path in (ROOT / package).rglob("*.py")]
    uses = {str(path.relative_to(ROOT)): private_uses(path.read_text(encoding="utf-8")) for path in modules}

    assert len(uses) > 100
    assert {module: names for module, names in uses.items() if names} == ALLOWED


@pytest.mark.asyncio
async def test_request_count_of_a_request_handler_counts_parsed_heads() -> None:
    async with TestServer(web.Application()) as server:
        handler = server_of(server)()
        assert getattr(handler, "_request_count", None) == 0, changed("RequestHandler._request_count")
        handler.connection_made(make_mocked_request("GET", "/").transport)  # type: ignore[arg-type]
        counts = []
        for piece in (b"GET / HTTP/1.1\r\n", b"Host: a\r\n\r\n", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"):
            handler.data_received(piece)
            counts.append(handler._request_count)
        handler.force_close()

    assert counts == [0, 1, 2], changed("RequestHandler._request_count")


@pytest.mark.asyncio
async def test_make_request_of_an_application_takes_the_class_of_request() -> None:
    app = web.Application()
    make = getattr(app, "_make_request", None)
    assert make is not None, changed("Application._make_request")
    assert "_cls" in inspect.signature(make).parameters, changed("Application._make_request(_cls=...)")
    classes = []

    async def answer(request: web.Request) -> web.StreamResponse:
        classes.append(type(request))
        return web.Response()

    app.router.add_get("/", answer)
    async with TestServer(app) as server, aiohttp.ClientSession() as session:
        hide_server_software(server_of(server), app)
        async with session.get(server.make_url("/")) as response:
            assert response.status == 200

    assert classes == [RequestWithoutServerHeader], changed("Application._make_request(_cls=...)")


@pytest.mark.asyncio
@pytest.mark.parametrize("hidden", [False, True])
async def test_prepare_hook_of_a_request_runs_after_the_server_header_was_added(hidden: bool) -> None:
    assert inspect.iscoroutinefunction(getattr(web.Request, "_prepare_hook", None)), changed(
        "Request._prepare_hook"
    )
    app = web.Application()
    async with TestServer(app) as server, aiohttp.ClientSession() as session:
        if hidden:
            hide_server_software(server_of(server), app)
        async with session.get(server.make_url("/absent")) as response:
            assert ("Server" in response.headers) is not hidden, changed("Request._prepare_hook")


@pytest.mark.asyncio
async def test_factory_of_a_connector_makes_its_connections() -> None:
    made = []

    class Noted(ResponseHandler):
        @override
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            made.append(type(self))
            super().connection_made(transport)

    app = web.Application()
    async with TestServer(app) as server:
        async with aiohttp.TCPConnector() as plain:
            assert hasattr(plain, "_factory"), changed("TCPConnector._factory")
        session = aiohttp.ClientSession(connector=ProtocolConnector(Noted, limit=1))
        async with session, session.get(server.make_url("/")) as response:
            assert response.status == 404

    assert made == [Noted], changed("TCPConnector._factory")


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="the ssl module shows the chain by itself")
def test_sslobj_of_the_ssl_module_has_a_verified_chain() -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname="a")

    assert callable(getattr(getattr(tls, "_sslobj", None), "get_verified_chain", None)), (
        f"SSLObject._sslobj.get_verified_chain of Python {sys.version_info[:2]} is not what it was in 3.11 and 3.12"
    )
