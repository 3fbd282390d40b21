"""Reads a node's summary from its kubelet directly, for which the right to ``nodes/stats`` is enough.

The address dialled comes from the Node, and its kubelet's certificate is verified under that address, or under a
name given separately. Each kubelet is shown the worker's own token, as the API server is.
"""

import ipaddress
import ssl
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Protocol, Self

from typing_extensions import override
from yarl import URL

from devicemanager.clock import Clock
from devicemanager.errors import FetchError, excerpt
from devicemanager.model.usage import SourceState
from devicemanager.settings.kubelet import NODE_NAME
from devicemanager.transport.client import HttpClient
from devicemanager.transport.failures import within
from devicemanager.transport.messages import Received, Request
from devicemanager.wire import nodes
from devicemanager.worker.api_errors import fetch_error
from devicemanager.worker.cluster import Cluster, is_name, object_path
from devicemanager.worker.credentials import Credentials
from devicemanager.worker.decoding import Decoding
from devicemanager.worker.kubelet import READ_DEADLINE_S, SUMMARY_LIMIT_BYTES, KubeletSource, NodeRead, decoded
from devicemanager.worker.single_flight import SharedReads

DEFAULT_PORT: Final = 10250
"""Where a Node names no port of its kubelet."""

ADDRESS_MAX_AGE_S: Final = 600.0
"""A node keeps its address for life; one that cannot be reached is looked up again at once."""

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
        address_types: The first type of which a Node has an address is dialled.
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
    """

    def __init__(self, cluster: Cluster, bearer: Bearer, access: KubeletAccess, clock: Clock) -> None:
        self._cluster = cluster
        self._bearer = bearer
        self._access = access
        self._http = HttpClient(clock)
        self._decoding = Decoding()
        self._urls: SharedReads[str, URL] = SharedReads(self._locate, clock, max_age_s=ADDRESS_MAX_AGE_S)

    async def __aenter__(self) -> Self:
        await self._http.__aenter__()
        await self._urls.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._urls.__aexit__(kind, error, trace)
        await self._http.__aexit__()

    @override
    async def read(self, node: str) -> NodeRead:
        try:
            async with within(READ_DEADLINE_S) as ends_s:
                url = await self._urls.read(node, deadline_s=READ_DEADLINE_S)
                received = await self._bearer.authorized(
                    lambda shown: self._exchange(node, url, shown.authorization, ends_s)
                )
        except FetchError as error:
            if error.state in {SourceState.UNREACHABLE, SourceState.TIMEOUT}:
                self._urls.forget(node)  # it may have come back under another address
            raise
        if received.status != 200:
            raise fetch_error(received.status, received.body)
        return await decoded(received, self._decoding)

    async def _exchange(self, node: str, url: URL, authorization: str | None, ends_s: float) -> Received:
        if authorization is None or not authorization.startswith("Bearer "):
            raise FetchError(SourceState.UNAUTHORIZED, "the worker has no bearer token to show to kubelets")
        access = self._access
        request = Request(
            method="GET",
            url=url,
            limit_bytes=SUMMARY_LIMIT_BYTES,
            headers={"Accept": "application/json", "Accept-Encoding": "gzip", "Authorization": authorization},
            tls=access.tls(),
            server_hostname=None if access.server_name is None else access.server_name.replace(NODE_NAME, node),
        )
        return await self._http.exchange(request, ends_s=ends_s)

    async def _locate(self, node: str) -> URL:
        path = object_path("/api/v1/nodes", node)
        found = nodes.parse(await self._cluster.get(path, deadline_s=READ_DEADLINE_S))
        return summary_url(found, self._access.address_types)


def summary_url(node: nodes.Node, address_types: Sequence[nodes.AddressType]) -> URL:
    """Where a node's kubelet serves its summary.

    Raises:
        FetchError: ``unreachable`` when the Node has no address of these types, ``invalid`` for one that is none.
    """
    by_type = {entry.type: entry.address for entry in reversed(node.addresses)}
    address = next((by_type[kind] for kind in address_types if kind in by_type), None)
    if address is None:
        raise FetchError(SourceState.UNREACHABLE, f"the node has no address of type {' or '.join(address_types)}")
    port = DEFAULT_PORT if node.kubelet_port is None else node.kubelet_port
    return URL.build(scheme="https", host=_host(address), port=port, path=_SUMMARY)


def _host(address: str) -> str:
    """An IP address in its one spelling, or a DNS name."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        if is_name(address.lower()):
            return address.lower()
    else:
        if not getattr(parsed, "scope_id", None):
            return str(parsed)
    raise FetchError(SourceState.INVALID, f"the node has the address {excerpt(address, 64)!r}")
