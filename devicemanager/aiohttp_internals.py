"""The private attributes of aiohttp that this package uses; no other module may use one.

``tests/unit/test_aiohttp_internals.py`` names each of them, and the versions of aiohttp in which it was seen.
``docs/decisions/connections.md`` says why they are needed.
"""

import asyncio
import functools
from collections.abc import Callable

import aiohttp
from aiohttp import hdrs, web
from aiohttp.client_proto import ResponseHandler
from typing_extensions import override


class CountingRequestHandler(web.RequestHandler):
    """A server's connection that says how many requests it has parsed."""

    @property
    def requests_parsed(self) -> int:
        """Request heads that were complete, and those that were refused as malformed."""
        return self._request_count


class RequestWithoutServerHeader(web.Request):
    """A request whose response does not say what software made it, in an error answer either."""

    @override
    async def _prepare_hook(self, response: web.StreamResponse) -> None:
        await super()._prepare_hook(response)
        del response.headers[hdrs.SERVER]


def hide_server_software(server: web.Server, app: web.Application) -> None:
    """Have no response of an application carry the header ``Server``."""
    server.request_factory = functools.partial(app._make_request, _cls=RequestWithoutServerHeader)


class ProtocolConnector(aiohttp.TCPConnector):
    """A client's connector that makes connections of a kind of its own. To be made on a running event loop."""

    def __init__(self, protocol: Callable[..., ResponseHandler], *, limit: int) -> None:
        """Args: ``protocol`` takes the ``loop``; ``limit`` is the number of connections open at once."""
        super().__init__(limit=limit)
        self._factory = functools.partial(protocol, loop=asyncio.get_running_loop())
