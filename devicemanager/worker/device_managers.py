"""Finds the device manager of a node and manufacturer, and reads its snapshot.

Pods are kept by one watch, so finding one costs no request. A snapshot comes over HTTPS from the pod's own address,
verified under a name given separately, because certificates name the device managers and not today's address.
"""

import math
import ssl
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, replace
from typing import Final, NoReturn, Self

import aiohttp
import structlog
from structlog.typing import FilteringBoundLogger
from yarl import URL

from devicemanager.clock import Clock
from devicemanager.errors import FetchError, excerpt
from devicemanager.model.usage import PeerSnapshot, SnapshotReading, SourceState
from devicemanager.rules import freshness
from devicemanager.transport.client import HttpClient
from devicemanager.transport.failures import attempt, within
from devicemanager.transport.messages import Received, Request
from devicemanager.wire import snapshot
from devicemanager.wire.memory_of import size_in_steps
from devicemanager.wire.steps import Steps
from devicemanager.worker.cluster import Cluster, object_path
from devicemanager.worker.deadlines import Countdown
from devicemanager.worker.decoding import Decoding
from devicemanager.worker.device_manager_pods import (
    COMPONENT,
    COMPONENT_LABEL,
    DeviceManager,
    Place,
    describe,
    newest_first,
)
from devicemanager.worker.pages import Lister
from devicemanager.worker.reflector import Reflector

READ_DEADLINE_S: Final = 3.0

CANDIDATES_AT_MOST: Final = 3
"""Pods asked for one snapshot, each of which gets its share of the time."""

SET_ASIDE_S: Final = 30.0
"""How long a pod that failed is asked after the others; a rolled one takes less to start or to go."""

CLOSED: Final = (
    "it closed the connection without an answer, as for a certificate of ours that it does not accept; "
    "its log says handshake_refused then"
)

_log: FilteringBoundLogger = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class SnapshotRead:
    """A snapshot and what is known of its age.

    Attributes:
        held_bytes: Memory that the snapshot takes while it is kept.
    """

    snapshot: PeerSnapshot
    received: Received
    held_bytes: int

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
        decoding: Shared with others that decode; None for an own.
        lister: Lists their pods; None for an own.
    """

    def __init__(
        self,
        cluster: Cluster,
        tls: Callable[[], ssl.SSLContext] | None,
        clock: Clock,
        *,
        namespace: str,
        server_name: str | None = None,
        decoding: Decoding | None = None,
        lister: Lister | None = None,
    ) -> None:
        self._tls = tls
        self._http = HttpClient(clock)
        self._decoding = decoding or Decoding()
        self._namespace = namespace
        self._server_name = server_name
        self._pods: Reflector[DeviceManager] = Reflector(
            cluster,
            object_path("/api/v1/namespaces", namespace) + "/pods",
            describe,
            params={"labelSelector": f"{COMPONENT_LABEL}={COMPONENT}"},
            name="device-managers",
            lister=lister,
        )
        self._clock = clock
        self._failed: dict[DeviceManager, float] = {}
        self._index: dict[Place, Sequence[DeviceManager]] = {}
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

        Of several pods the newest is asked first, and the next one where it fails or has no sample yet.

        Raises:
            FetchError: No such pod is ready (``not_served``), or none can be asked, or no answer is usable: then as
                the first one failed.
        """
        node, manufacturer = place
        left = Countdown(READ_DEADLINE_S)
        async with within(READ_DEADLINE_S):
            candidates = await self._candidates(node, manufacturer)
        failures: list[FetchError] = []
        without_sample: SnapshotRead | None = None
        for number, device_manager in enumerate(candidates):
            share_s = left.left_s / (len(candidates) - number)
            outcome = await attempt(self._ask(device_manager, share_s, alone=len(candidates) == 1))
            if isinstance(outcome, FetchError):
                failures.append(outcome)
                if len(candidates) > 1:
                    self._note_failure(device_manager, outcome)
                continue
            self._failed.pop(device_manager, None)
            if outcome.snapshot.timestamp is not None:
                return outcome
            without_sample = without_sample or outcome
        if without_sample is not None:
            return without_sample
        raise _first_of(failures)

    def answering(self, place: Place) -> Set[DeviceManager]:
        """The pods that answer for a node and manufacturer now."""
        self._index_pods()
        return frozenset(self._index.get(place, ()))

    def _index_pods(self) -> None:
        if self._indexed != self._pods.changes:
            self._index = newest_first(self._pods.items.values())
            self._indexed = self._pods.changes
            self._failed = {each: self._failed[each] for each in self._failed.keys() & self._pods.items.values()}

    async def _candidates(self, node: str, manufacturer: str) -> Sequence[DeviceManager]:
        """The pods to ask, the best first: those that failed last time wait behind the others."""
        if not self._pods.synced:
            await self._pods.settled()
        if not self._pods.synced and self._pods.problem is not None:
            problem = self._pods.problem
            raise FetchError(
                problem.state, f"the device managers cannot be listed: {problem.message}", detail=problem.detail
            )
        self._index_pods()
        found = self._index.get((node, manufacturer), ())
        if not found:
            raise FetchError(
                SourceState.NOT_SERVED,
                f"no ready device manager for {manufacturer} on this node in namespace {self._namespace}",
            )
        return sorted(found, key=self._is_set_aside)[:CANDIDATES_AT_MOST]

    def _is_set_aside(self, device_manager: DeviceManager) -> bool:
        failed_at_s = self._failed.get(device_manager)
        return failed_at_s is not None and self._clock.monotonic() - failed_at_s < SET_ASIDE_S

    def _note_failure(self, device_manager: DeviceManager, failure: FetchError) -> None:
        if not self._is_set_aside(device_manager):
            self._failed[device_manager] = self._clock.monotonic()
            _log.warning(
                "device_manager_set_aside",
                pod=device_manager.pod,
                node=device_manager.node,
                manufacturer=device_manager.manufacturer,
                state=failure.state,
                error=str(failure),
            )

    async def _ask(self, device_manager: DeviceManager, deadline_s: float, *, alone: bool) -> SnapshotRead:
        """The snapshot of one pod, at its first address that answers. A retry is for one that is alone."""
        left = Countdown(deadline_s)
        failures: list[FetchError] = []
        for number, url in enumerate(device_manager.urls):
            retried = alone and len(device_manager.urls) == 1
            share_s = left.left_s / (len(device_manager.urls) - number)
            outcome = await attempt(self._exchange(url, share_s, retried=retried))
            if not isinstance(outcome, FetchError):
                return await self._read(device_manager, outcome)
            failures.append(outcome)
        raise _first_of(failures)

    async def _exchange(self, url: URL, deadline_s: float, *, retried: bool) -> Received:
        async with within(deadline_s) as ends_s:
            try:
                return await self._http.exchange(self._request(url), ends_s=ends_s if retried else None)
            except aiohttp.ClientConnectorError:
                raise
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
                # In TLS 1.3 a server verifies our certificate after the handshake. asyncio passes no alert on, and
                # whether its end or its reset comes first is chance.
                raise FetchError(SourceState.UNREACHABLE, CLOSED) from error

    async def _read(self, device_manager: DeviceManager, received: Received) -> SnapshotRead:
        if received.status != 200:
            raise FetchError(
                _state_of(received.status), f"HTTP {received.status}", status=received.status, by_peer=True
            )
        found, held_bytes = await self._decoding(_measured_in_steps, received.body)
        if found.node_name is not None and found.node_name != device_manager.node:
            named = repr(excerpt(found.node_name, 64))
            raise FetchError(SourceState.INVALID, "it answers for another node", detail=named, by_peer=True)
        return SnapshotRead(_only(found, device_manager.manufacturer), received.without_body(), held_bytes)

    def _request(self, url: URL) -> Request:
        if self._tls is None:
            raise FetchError(SourceState.UNAUTHORIZED, "no client certificate was given for asking device managers")
        return Request(
            method="GET",
            url=url,
            limit_bytes=snapshot.BODY_LIMIT_BYTES,
            headers={"Accept": "application/json", "Accept-Encoding": "identity"},
            tls=self._tls(),
            server_hostname=self._server_name,
        )


def _measured_in_steps(body: bytes) -> Steps[tuple[PeerSnapshot, int]]:
    """A snapshot, and the memory that it takes."""
    found = yield from snapshot.parse_in_steps(body)
    return found, (yield from size_in_steps(found))


def _first_of(failures: Sequence[FetchError]) -> FetchError:
    """How it failed first; by the fault of the peer, where that shows only later in the time that it had in all."""
    return failures[0].again(by_peer=any(failure.by_peer for failure in failures))


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
