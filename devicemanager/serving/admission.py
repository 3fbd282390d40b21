"""Which connection is admitted, and which is evicted for it. Decisions only, on which
:mod:`devicemanager.serving.connection_table` acts.

A connection may be evicted while it waits for its peer (in the handshake, for a request, for its response to be
taken) or has a request that has not reached its handler; hundreds of those may come in one turn of the event loop.
A request whose handler has started is finished. Some slots are reserved for probes, so that requests in flight
never take the last ones.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from devicemanager.serving.limits import Limits

PER_PEER: Final = "too many connections from one peer"
IN_ALL: Final = "too many connections"
VERIFIED: Final = "too many connections with a verified certificate"


class CountedConnection(Protocol):
    """A connection that counts against the limits."""

    @property
    def peer(self) -> str:
        """The peer's address."""
        ...

    @property
    def since(self) -> float:
        """When what it now does or waits for began."""
        ...

    @property
    def verified(self) -> bool:
        """Whether it counts as one with a verified client certificate."""
        ...

    @property
    def evictable(self) -> bool:
        """Whether it waits for its peer, or for its handler, and may be evicted."""
        ...


_Counted = TypeVar("_Counted", bound=CountedConnection)


@dataclass(frozen=True, slots=True)
class Admission(Generic[_Counted]):
    """Whether a new connection is admitted.

    Attributes:
        admitted: Whether it is.
        evicted: The connection to close for it; None when none is needed, or none may be evicted.
        limit: The limit that was reached; None for none.
    """

    admitted: bool
    evicted: _Counted | None = None
    limit: str | None = None


def admit(connections: Iterable[_Counted], peer: str, limits: Limits) -> Admission[_Counted]:
    """Admit a new connection, of which only the address is known."""
    unverified = [one for one in connections if not one.verified]
    from_peer = [one for one in unverified if one.peer == peer]
    if len(from_peer) >= limits.connections_per_peer:
        return _evicting(eviction_candidate(from_peer), PER_PEER)
    if len(unverified) >= limits.connections:
        return _evicting(eviction_candidate(unverified), IN_ALL)
    return Admission(admitted=True)


def admit_verified(connections: Iterable[_Counted], limits: Limits) -> Admission[_Counted]:
    """Admit a connection, after its handshake, as one with a verified client certificate."""
    if limits.verified is None:
        return Admission(admitted=False)
    others = [one for one in connections if one.verified]
    if len(others) >= limits.verified.connections:
        return _evicting(eviction_candidate(others), VERIFIED)
    return Admission(admitted=True)


def eviction_candidate(connections: Iterable[_Counted]) -> _Counted | None:
    """The connection to evict first; None when none may be.

    Those with a verified certificate come last, and the address with the most connections comes first: a new
    connection from another address is safe, however fast one address reconnects.
    """
    connections = list(connections)
    held = Counter(one.peer for one in connections)
    candidates = [one for one in connections if one.evictable]
    return min(candidates, key=lambda one: (one.verified, -held[one.peer], one.since), default=None)


def _evicting(connection: _Counted | None, limit: str) -> Admission[_Counted]:
    return Admission(admitted=connection is not None, evicted=connection, limit=limit)


class InFlightRequests:
    """Limits requests in flight without a verified certificate, so that some slots stay free for probes."""

    def __init__(self, limits: Limits) -> None:
        self._in_all = max(1, limits.connections - limits.reserved_for_probes)
        self._per_peer = max(1, limits.connections_per_peer - limits.reserved_for_probes)
        self._counts: Counter[str] = Counter()

    def begin(self, peer: str) -> bool:
        """Count one more; False, and not counted, when there are too many."""
        if self._counts.total() >= self._in_all or self._counts[peer] >= self._per_peer:
            return False
        self._counts[peer] += 1
        return True

    def end(self, peer: str) -> None:
        """Count one less."""
        self._counts[peer] -= 1
        if not self._counts[peer]:
            del self._counts[peer]
