"""Reads a node's summary from its kubelet directly, for which the right to ``nodes/stats`` is enough.

The address dialled comes from the Node, and its kubelet's certificate is verified under that address, or under a
name given separately. Each kubelet is shown the worker's own token, as the API server is.
"""

import ipaddress
import ssl
from collections.abc import Awaitable, Callable, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType
from typing import Final, Protocol, Self

import aiohttp
from typing_extensions import override
from yarl import URL

from devicemanager.clock import Clock
from devicemanager.errors import FetchError, excerpt
from devicemanager.model.usage import SourceState
from devicemanager.rules.object_names import is_name
from devicemanager.settings.kubelet import NODE_NAME
from devicemanager.transport.body_memory import BodyMemory
from devicemanager.transport.client import HttpClient
from devicemanager.transport.document_limits import BODY_BYTES
from devicemanager.transport.failures import attempt, within
from devicemanager.transport.messages import Received, Request
from devicemanager.wire import nodes
from devicemanager.worker.api_errors import fetch_error
from devicemanager.worker.cluster import Cluster, object_path
from devicemanager.worker.credentials import Credentials
from devicemanager.worker.deadlines import Countdown
from devicemanager.worker.decoding import Decoding
from devicemanager.worker.kubelet import (
    READ_DEADLINE_S,
    SUMMARY_LIMIT_BYTES,
    AnotherNodeError,
    KubeletSource,
    NodeRead,
    decoded,
)
from devicemanager.worker.single_flight import SharedReads

DEFAULT_PORT: Final = 10250
"""Where a Node names no port of its kubelet."""

ADDRESS_MAX_AGE_S: Final = 600.0
"""A node seldom moves; one that cannot be reached, or answers as another, is looked up again at once."""

RELOCATED_AFTER_S: Final = 10.0
"""How often the Node of a kubelet in back-off is read again while somebody asks: another address ends that."""

ADDRESSES_AT_MOST: Final = 4
"""Tried of one node: two families of two types."""

CONNECT_S: Final = 1.0
"""For a connection to one address while there are others."""

_SUMMARY: Final = "/stats/summary"


class Bearer(Protocol):
    """Source of the worker's bearer token."""

    async def authorized(self, ask: Callable[[Credentials], Awaitable[Received]]) -> Received:
        """The answer to a request that shows our credentials, asked again with new ones after a 401."""
        ...


@dataclass(frozen=True, slots=True)
class KubeletAccess:
    """How kubelets are reached.

    Attributes:
        tls: The context, called for each read, so that a replaced authority counts at once.
        address_types: In the order in which a Node's addresses are tried.
        server_name: What a kubelet's certificate must carry, ``{node}`` standing for the node's name; None for the
            address dialled.
    """

    tls: Callable[[], ssl.SSLContext]
    address_types: Sequence[nodes.AddressType]
    server_name: str | None = None


class DirectKubelets(KubeletSource):
    """Reads each kubelet at its own address. To be entered before use.

    Args:
        cluster: Tells where nodes are.
        bearer: Gives the token to show.
        access: How to ask.
        clock: For the times of answers.
        decoding: Shared with others that decode; None for an own.
        bodies: Counts what Nodes take; None for an own one.
    """

    def __init__(
        self,
        cluster: Cluster,
        bearer: Bearer,
        access: KubeletAccess,
        clock: Clock,
        decoding: Decoding | None = None,
        bodies: BodyMemory | None = None,
    ) -> None:
        self._cluster = cluster
        self._bearer = bearer
        self._access = access
        self._clock = clock
        self._http = HttpClient(clock)
        self._decoding = decoding or Decoding()
        self._bodies = bodies or BodyMemory(BODY_BYTES)
        self._nodes: SharedReads[str, _Located] = SharedReads(self._locate, clock, max_age_s=ADDRESS_MAX_AGE_S)

    async def __aenter__(self) -> Self:
        await self._http.__aenter__()
        await self._nodes.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._nodes.__aexit__(kind, error, trace)
        await self._http.__aexit__()

    @override
    def answering(self, node: str) -> Set[URL]:
        """The addresses that the Node has, read again now and then."""
        located = self._nodes.peek(node)
        if not isinstance(located, _Located):
            return frozenset()
        found = frozenset(located.urls)
        if self._clock.monotonic() - located.read_at_s >= RELOCATED_AFTER_S:
            self._nodes.forget(node)
            self._nodes.begin(node, deadline_s=READ_DEADLINE_S)
        return found

    @override
    async def read(self, node: str) -> NodeRead:
        left = Countdown(READ_DEADLINE_S)
        began_s = self._clock.monotonic()
        located = await self._located(node, left)
        known = frozenset(located.urls)
        outcome = await attempt(self._read_at(node, located, left))
        if isinstance(outcome, FetchError) and _may_have_moved(outcome) and located.read_at_s < began_s:
            self._nodes.forget(node)
            moved = None if left.over else await attempt(self._located(node, left))
            if isinstance(moved, _Located) and not known.issuperset(moved.urls):
                return await self._read_at(node, moved, left)
        if not isinstance(outcome, FetchError):
            return outcome
        if left.over:
            late = f"no complete answer within {READ_DEADLINE_S:.3g} s"
            raise FetchError(SourceState.TIMEOUT, late, by_peer=outcome.by_peer)
        raise outcome

    async def _located(self, node: str, left: Countdown) -> "_Located":
        async with within(left.left_s):
            try:
                return await self._nodes.read(node, deadline_s=left.left_s)
            except FetchError as error:
                raise error.again(by_peer=False) from error  # what the API server did is no kubelet's fault

    async def _read_at(self, node: str, located: "_Located", left: Countdown) -> NodeRead:
        async with within(left.left_s) as ends_s:
            received = await self._ask(node, located, ends_s)
        if received.status != 200:
            raise fetch_error(received.status, received.body).again(by_peer=True)
        return replace(await decoded(received, self._decoding, node), cpu_nanocores=located.cpu_nanocores)

    async def _ask(self, node: str, located: "_Located", ends_s: float) -> Received:
        """The answer of the first address that can be connected to, which is asked first the next time."""
        failures: list[Exception] = []
        urls = tuple(located.urls)
        for url in urls:
            request = self._request(node, url)
            if url != urls[-1]:
                request = replace(request, connect_s=CONNECT_S)
            try:
                received = await self._bearer.authorized(partial(self._exchange, request, ends_s))
            except (aiohttp.ClientConnectorError, aiohttp.ServerTimeoutError) as error:
                failures.append(error)
            else:
                located.urls.remove(url)
                located.urls.insert(0, url)
                return received
        raise failures[0]

    async def _exchange(self, request: Request, ends_s: float, shown: Credentials) -> Received:
        authorization = shown.authorization
        if authorization is None or not authorization.startswith("Bearer "):
            raise FetchError(SourceState.UNAUTHORIZED, "the worker has no bearer token to show to kubelets")
        request = replace(request, headers={**request.headers, "Authorization": authorization})
        # A retry is for the last address; before, there is another one to ask.
        return await self._http.exchange(request, ends_s=ends_s if request.connect_s is None else None)

    def _request(self, node: str, url: URL) -> Request:
        access = self._access
        return Request(
            method="GET",
            url=url,
            limit_bytes=SUMMARY_LIMIT_BYTES,
            headers={"Accept": "application/json", "Accept-Encoding": "gzip"},
            tls=access.tls(),
            server_hostname=None if access.server_name is None else access.server_name.replace(NODE_NAME, node),
        )

    async def _locate(self, node: str) -> "_Located":
        path = object_path("/api/v1/nodes", node)
        with self._bodies.api_server.holding():
            found = nodes.parse(await self._cluster.get(path, deadline_s=READ_DEADLINE_S))
        types = self._access.address_types
        if self._access.tls().verify_mode is ssl.CERT_NONE:
            # Whoever answers is shown our token: only where the first choice is.
            listed = {entry.type for entry in found.addresses}
            types = [kind for kind in types if kind in listed][:1] or types
        return _Located(summary_urls(found, types), found.cpu_nanocores, self._clock.monotonic())


def _may_have_moved(error: FetchError) -> bool:
    """Whether the address may not be the node's any longer: nothing answers there, or another node does."""
    if isinstance(error, AnotherNodeError):
        return True
    return error.status is None and error.state in {SourceState.UNREACHABLE, SourceState.TIMEOUT}


@dataclass(slots=True)
class _Located:
    """What a Node says.

    Attributes:
        urls: The one that answered last comes first.
        read_at_s: When the Node was read, on the monotonic clock.
    """

    urls: list[URL]
    cpu_nanocores: int | None
    read_at_s: float


def summary_urls(node: nodes.Node, address_types: Sequence[nodes.AddressType]) -> list[URL]:
    """Where a node's kubelet serves its summary, at least one: in the order of the types, then of the Node.

    Raises:
        FetchError: ``unreachable`` when the Node has no address of these types, ``invalid`` when none is one.
    """
    listed = [entry.address for kind in address_types for entry in node.addresses if entry.type == kind]
    if not listed:
        raise FetchError(SourceState.UNREACHABLE, f"the node has no address of type {' or '.join(address_types)}")
    hosts = list(dict.fromkeys(host for address in listed if (host := _host(address)) is not None))
    if not hosts:
        raise FetchError(
            SourceState.INVALID, "the node has no address that can be used", detail=repr(excerpt(listed[0], 64))
        )
    port = DEFAULT_PORT if node.kubelet_port is None else node.kubelet_port
    return [URL.build(scheme="https", host=host, port=port, path=_SUMMARY) for host in hosts[:ADDRESSES_AT_MOST]]


def _host(address: str) -> str | None:
    """An IP address in its one spelling, or a DNS name; None for anything else."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address.lower() if is_name(address.lower()) else None
    return None if getattr(parsed, "scope_id", None) else str(parsed)
