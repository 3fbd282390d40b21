"""Finds the device manager of a node and manufacturer, and reads its snapshot.

Pods are kept by one watch, so finding one costs no request. A snapshot comes over HTTPS from the pod's own address,
verified under a name given separately, because certificates name the device managers and not today's address.
"""

import ipaddress
import math
import ssl
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final, NoReturn, Self, TypeAlias

import aiohttp
from yarl import URL

from devicemanager.clock import Clock
from devicemanager.errors import DocumentError, FetchError, excerpt
from devicemanager.model.usage import PeerSnapshot, SnapshotReading, SourceState
from devicemanager.rules import freshness
from devicemanager.transport.client import HttpClient
from devicemanager.transport.failures import within
from devicemanager.transport.messages import Received, Request
from devicemanager.wire import pods, snapshot
from devicemanager.worker.cluster import Cluster, object_path
from devicemanager.worker.decoding import Decoding
from devicemanager.worker.reflector import Reflector

COMPONENT_LABEL: Final = "app.kubernetes.io/component"
COMPONENT: Final = "device-manager"
MANUFACTURER_LABEL: Final = "gpustack.ai/manufacturer"

PORT_NAME: Final = "https"
DEFAULT_PORT: Final = 32443
"""Where a pod names no port ``https``."""

READ_DEADLINE_S: Final = 3.0
CLOSED: Final = (
    "it closed the connection without an answer, as for a certificate of ours that it does not accept; "
    "its log says handshake_refused then"
)

_OLDEST: Final = datetime.min.replace(tzinfo=UTC)

Place: TypeAlias = tuple[str, str]
"""A node, and a manufacturer."""


@dataclass(frozen=True, slots=True)
class DeviceManager:
    """A device manager's pod that can be reached.

    Attributes:
        url: Of its snapshot.
        created_at: During a rollout two may be ready; the newer one answers.
    """

    node: str
    manufacturer: str
    url: URL
    created_at: datetime
    pod: str


@dataclass(frozen=True, slots=True)
class SnapshotRead:
    """A snapshot and what is known of its age."""

    snapshot: PeerSnapshot
    received: Received

    def reading(self, clock: Clock, asked_at_s: float = math.inf) -> SnapshotReading:
        """The snapshot, with its age at this moment.

        Args:
            clock: Gives this moment.
            asked_at_s: When it was asked for, on the monotonic clock; a kept one may have come before. Where it is
                not given, at this moment.
        """
        now_s, came_s = clock.monotonic(), self.received.received_monotonic_s
        age_s = freshness.age_s(
            timestamp=self.snapshot.timestamp,
            now=clock.now(),
            held_s=now_s - came_s,
            age_header_s=self.received.age_s,
            date=self.received.date,
        )
        return SnapshotReading(self.snapshot, age_s, waited_s=max(0.0, now_s - max(came_s, asked_at_s)))


class DeviceManagers:
    """All device managers of one namespace. To be entered before use.

    Args:
        cluster: Where their pods are listed and watched.
        tls: The context to ask with; called for each read, so that a rotated pair is used at once. None where no
            client pair was given: then every read says so.
        clock: For the times of answers.
        namespace: Where the device managers run, and nowhere else is looked.
        server_name: The name their certificates carry; None to verify the address.
    """

    def __init__(
        self,
        cluster: Cluster,
        tls: Callable[[], ssl.SSLContext] | None,
        clock: Clock,
        *,
        namespace: str,
        server_name: str | None = None,
    ) -> None:
        self._tls = tls
        self._http = HttpClient(clock)
        self._decoding = Decoding()
        self._namespace = namespace
        self._server_name = server_name
        self._pods: Reflector[DeviceManager] = Reflector(
            cluster,
            object_path("/api/v1/namespaces", namespace) + "/pods",
            describe,
            params={"labelSelector": f"{COMPONENT_LABEL}={COMPONENT}"},
            name="device-managers",
        )
        self._index: dict[Place, DeviceManager] = {}
        self._indexed = -1

    async def __aenter__(self) -> Self:
        await self._http.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._http.__aexit__(*error)

    async def follow(self) -> NoReturn:
        """Keeps the pods current until cancelled; to be run beside the reads."""
        await self._pods.run()

    async def read(self, place: Place) -> SnapshotRead:
        """The snapshot of one manufacturer from a node's device manager, as of now.

        Raises:
            FetchError: No such pod is ready (``not_served``), or it cannot be asked, or its answer is not usable.
        """
        node, manufacturer = place
        async with within(READ_DEADLINE_S) as ends_s:
            device_manager = await self._located(node, manufacturer)
            try:
                received = await self._http.exchange(self._request(device_manager), ends_s=ends_s)
            except aiohttp.ClientConnectorError:
                raise
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
                # In TLS 1.3 a server verifies our certificate after the handshake. asyncio passes no alert on, and
                # whether its end or its reset comes first is chance.
                raise FetchError(SourceState.UNREACHABLE, CLOSED) from error
        if received.status != 200:
            raise FetchError(_state_of(received.status), f"HTTP {received.status}", status=received.status)
        found = await self._decoding(snapshot.parse, received.body)
        if found.node_name is not None and found.node_name != node:
            raise FetchError(SourceState.INVALID, f"it answers for another node, {excerpt(found.node_name, 64)!r}")
        return SnapshotRead(_only(found, manufacturer), received.without_body())

    async def _located(self, node: str, manufacturer: str) -> DeviceManager:
        if not self._pods.synced:
            await self._pods.settled()
        if not self._pods.synced and self._pods.problem is not None:
            problem = self._pods.problem
            raise FetchError(problem.state, f"the device managers cannot be listed: {problem.message}")
        if self._indexed != self._pods.changes:
            self._index = _newest(self._pods.items.values())
            self._indexed = self._pods.changes
        found = self._index.get((node, manufacturer))
        if found is None:
            raise FetchError(
                SourceState.NOT_SERVED,
                f"no ready device manager for {manufacturer} on this node in namespace {self._namespace}",
            )
        return found

    def _request(self, device_manager: DeviceManager) -> Request:
        if self._tls is None:
            raise FetchError(SourceState.UNAUTHORIZED, "no client certificate was given for asking device managers")
        return Request(
            method="GET",
            url=device_manager.url,
            limit_bytes=snapshot.BODY_LIMIT_BYTES,
            headers={"Accept": "application/json", "Accept-Encoding": "identity"},
            tls=self._tls(),
            server_hostname=self._server_name,
        )


def describe(item: bytes) -> DeviceManager | None:
    """The device manager in a pod; None for a pod that cannot be reached now.

    Raises:
        DocumentError: The bytes are no pod.
    """
    pod = pods.parse(item)
    manufacturer = pod.labels.get(MANUFACTURER_LABEL)
    if not pod.ready or pod.terminating or pod.node_name is None or pod.pod_ip is None or not manufacturer:
        return None
    try:
        address = ipaddress.ip_address(pod.pod_ip)
    except ValueError as error:
        raise DocumentError(f"pod {pod.name} has the address {excerpt(pod.pod_ip, 64)!r}") from error
    port = pod.ports.get(PORT_NAME, DEFAULT_PORT)
    url = URL.build(scheme="https", host=str(address), port=port, path="/monitor/snapshot")
    return DeviceManager(pod.node_name, manufacturer, url, pod.created_at or _OLDEST, pod.name)


def _newest(device_managers: Iterable[DeviceManager]) -> dict[Place, DeviceManager]:
    in_order = sorted(device_managers, key=lambda each: (each.created_at, each.pod))
    return {(each.node, each.manufacturer): each for each in in_order}


def _only(found: PeerSnapshot, manufacturer: str) -> PeerSnapshot:
    """The snapshot without other manufacturers."""
    return replace(
        found,
        cards={name: cards for name, cards in found.cards.items() if name == manufacturer},
        slices=None
        if found.slices is None
        else {name: slices for name, slices in found.slices.items() if name == manufacturer},
        slice_devices={name: devices for name, devices in found.slice_devices.items() if name == manufacturer},
        partitions={name: partitions for name, partitions in found.partitions.items() if name == manufacturer},
    )


def _state_of(status: int) -> SourceState:
    match status:
        case 401:
            return SourceState.UNAUTHORIZED
        case 403:
            return SourceState.FORBIDDEN
        case 404:
            return SourceState.NOT_SERVED
        case _:
            return SourceState.UNREACHABLE if status >= 500 else SourceState.INVALID
