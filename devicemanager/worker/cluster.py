"""The API server's client: raw bytes in and out, bounded in time and size.

Names taken from a caller enter a path through :func:`object_path` alone.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import replace
from typing import Final, NoReturn, Protocol, Self

from multidict import CIMultiDict
from typing_extensions import override
from yarl import URL

from devicemanager.clock import Clock
from devicemanager.errors import FetchError, excerpt
from devicemanager.model.usage import SourceState
from devicemanager.rules import retries
from devicemanager.rules.object_names import is_name
from devicemanager.transport.client import CONNECTIONS, ERROR_BODY_LIMIT_BYTES, HttpClient, retry_after_s
from devicemanager.transport.failures import within
from devicemanager.transport.messages import Received, Request
from devicemanager.transport.retries import Retries
from devicemanager.worker.api_errors import fetch_error
from devicemanager.worker.credentials import Credentials, CredentialsSource
from devicemanager.worker.reloaded_credentials import ReloadedCredentials
from devicemanager.worker.watch_stream import WatchEvent, events

BODY_LIMIT_BYTES: Final = 4 * 1024 * 1024
"""Default for an answer, and the limit of one watch event."""

WATCH_S: Final = 240.0
"""Seconds after which the server ends a watch, so that a dead connection is noticed within minutes."""

WATCH_START_S: Final = 30.0
"""For the head of a watch's answer; an API server may fill its own cache before it sends one."""


class Cluster(Protocol):
    """What the product asks of an API server."""

    async def get(
        self,
        path: str,
        params: Mapping[str, str] | None = None,
        *,
        deadline_s: float = 10.0,
        limit_bytes: int = BODY_LIMIT_BYTES,
    ) -> bytes:
        """The body of a good answer; see :meth:`ClusterClient.fetch` for the errors."""
        ...

    async def fetch(
        self,
        path: str,
        params: Mapping[str, str] | None = None,
        *,
        deadline_s: float = 10.0,
        limit_bytes: int = BODY_LIMIT_BYTES,
    ) -> Received:
        """A successful answer with its times."""
        ...

    async def post(self, path: str, body: bytes, *, deadline_s: float = 10.0) -> bytes:
        """The body of the answer to a review: a document that asks something, and changes nothing."""
        ...

    def watch(
        self, path: str, params: Mapping[str, str] | None = None, *, resource_version: str
    ) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent]]:
        """Changes since a version, until the server ends the watch or the block is left."""
        ...


def object_path(prefix: str, *segments: str) -> str:
    """A path below ``prefix``; each segment a literal of ours or a Kubernetes name, neither of which needs quoting.

    Raises:
        FetchError: ``not_served`` with status 404 when a segment is no name that Kubernetes gives to anything.
    """
    for segment in segments:
        if not is_name(segment):
            raise FetchError(
                SourceState.NOT_SERVED, f"{excerpt(segment, 64)!r} is not a Kubernetes name", status=404
            )
    return "/".join([prefix.rstrip("/"), *segments])


class ClusterClient(Cluster):
    """One API server, one session. To be entered before use; entering reads the credentials.

    Args:
        source: Where the credentials come from.
        clock: For the times of answers.
        connections: Upper bound of open connections.
    """

    def __init__(self, source: CredentialsSource, clock: Clock, *, connections: int = CONNECTIONS) -> None:
        self._shown = ReloadedCredentials(source, clock)
        # A refused connection too: the next one may reach another replica behind the same address.
        self._http = HttpClient(clock, connections=connections, retries=Retries(retry_refused=True))

    async def __aenter__(self) -> Self:
        await self._shown.read()
        await self._http.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._http.__aexit__(*error)

    async def authorized(self, ask: Callable[[Credentials], Awaitable[Received]]) -> Received:
        """The answer to a request that shows our credentials; after a 401 they are read and shown once more."""
        used = self._shown.current
        received = await ask(used)
        if received.status == 401 and (renewed := await self._shown.renewed(used)) != used:
            received = await ask(renewed)
        return received

    async def follow_credentials(self) -> NoReturn:
        """Reads the credentials again each minute."""
        await self._shown.follow()

    @override
    async def get(
        self,
        path: str,
        params: Mapping[str, str] | None = None,
        *,
        deadline_s: float = 10.0,
        limit_bytes: int = BODY_LIMIT_BYTES,
    ) -> bytes:
        return (await self.fetch(path, params, deadline_s=deadline_s, limit_bytes=limit_bytes)).body

    @override
    async def fetch(
        self,
        path: str,
        params: Mapping[str, str] | None = None,
        *,
        deadline_s: float = 10.0,
        limit_bytes: int = BODY_LIMIT_BYTES,
        retryable: Collection[int] = retries.STATUSES,
    ) -> Received:
        """A good answer, with the times at which it came. After a failure that may have passed it asks again.

        Args:
            path: Absolute and quoted; see :func:`object_path`.
            params: The query, not quoted.
            deadline_s: Seconds from now for everything, further attempts included.
            limit_bytes: Of the decoded body.
            retryable: Statuses of such failures, beside lost connections.

        Raises:
            FetchError: For any other answer, and for none. ``status`` and ``reason`` are the API server's own.
        """
        return await self._ask(
            "GET", path, params, deadline_s=deadline_s, limit_bytes=limit_bytes, retryable=retryable
        )

    @override
    async def post(self, path: str, body: bytes, *, deadline_s: float = 10.0) -> bytes:
        """Sends a review, which changes nothing and so may be sent again. Raises as :meth:`fetch` does."""
        return (await self._ask("POST", path, None, deadline_s=deadline_s, body=body)).body

    @override
    @asynccontextmanager
    async def watch(
        self, path: str, params: Mapping[str, str] | None = None, *, resource_version: str
    ) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        """Changes since a version, until the server ends the watch; it is asked to after some minutes.

        The block is entered once the watch is open, and leaving it closes the connection.

        Raises:
            FetchError: ``status`` 410 when the version is too old and a list must come first; else as for ``get``.
        """
        query = {
            **(params or {}),
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": f"{WATCH_S:.0f}",
        }
        used = self._shown.current
        request = self._request("GET", path, query, used, BODY_LIMIT_BYTES, None, encoding="identity")
        # No deadline may span a yield: it would cancel the consumer, outside of this block.
        async with AsyncExitStack() as opened:
            async with within(WATCH_START_S):
                response = await opened.enter_async_context(self._http.response(request))
                opened.callback(response.close)
                if response.status != 200:
                    body = await response.content.read(ERROR_BODY_LIMIT_BYTES)
                    if response.status == 401:
                        await self._shown.renewed(used)
                    raise fetch_error(response.status, body, retry_after_s(response))
            changes = events(response.content, silence_s=WATCH_S + 30, limit_bytes=BODY_LIMIT_BYTES)
            yield await opened.enter_async_context(aclosing(changes))

    async def _ask(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None,
        *,
        deadline_s: float,
        limit_bytes: int = BODY_LIMIT_BYTES,
        body: bytes | None = None,
        retryable: Collection[int] = retries.STATUSES,
    ) -> Received:
        async with within(deadline_s, through=True) as ends_s:

            async def ask(shown: Credentials) -> Received:
                request = self._request(method, path, params, shown, limit_bytes, body)
                return await self._http.exchange(replace(request, retryable=retryable), ends_s=ends_s)

            received = await self.authorized(ask)
        if not 200 <= received.status < 300:
            raise fetch_error(received.status, received.body, received.retry_after_s)
        return received

    def _request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None,
        credentials: Credentials,
        limit_bytes: int,
        body: bytes | None,
        *,
        encoding: str = "gzip",
    ) -> Request:
        base = str(credentials.server).rstrip("/")
        headers = CIMultiDict({"Accept": "application/json", "Accept-Encoding": encoding})
        headers.extend(credentials.impersonation)
        if credentials.authorization is not None:
            headers["Authorization"] = credentials.authorization
        if body is not None:
            headers["Content-Type"] = "application/json"
        return Request(
            method=method,
            url=URL(base + path, encoded=True).with_query(params),
            limit_bytes=limit_bytes,
            headers=headers,
            body=body,
            tls=credentials.tls,
            server_hostname=credentials.server_hostname,
            proxy=credentials.proxy,
            backend=_backend(path),
        )


def _backend(path: str) -> str:
    """Who answers a path: a node behind the proxy, an API group (which may be an aggregated one), or the core."""
    target, proxied, _ = path.partition("/proxy/")
    return target if proxied else "/".join(path.split("/")[:3])
