"""Who gets a place, and who gives way for it. Decisions only; :mod:`devicemanager.serving.listener` acts on them.

A connection either waits for its peer (in the handshake, for a request, for its answer to be taken) or has a
request under way, which is work of ours. Who waits gives way; work under way is finished. A request that has not
come to its handler is no such work yet: hundreds may come in one turn of the loop. So that work under way never
takes the last places, some are kept for requests that are answered at once: those of probes.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from devicemanager.serving.limits import Limits

PER_PEER: Final = "too many connections from one peer"
IN_ALL: Final = "too many connections"
VERIFIED: Final = "too many connections with a verified certificate"


class Occupant(Protocol):
    """A connection that takes up a place."""

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
        """Whether it takes up one of the places for peers with a verified certificate."""
        ...

    @property
    def waiting(self) -> bool:
        """Whether it waits for its peer, or for its handler."""
        ...


_Occupant = TypeVar("_Occupant", bound=Occupant)


@dataclass(frozen=True, slots=True)
class Admission(Generic[_Occupant]):
    """What becomes of one who wants a place.

    Attributes:
        admitted: Whether there is one.
        gives_way: Who loses its own for it; None when a place was free, or nobody could give way.
        limit: Which limit was reached; None for none.
    """

    admitted: bool
    gives_way: _Occupant | None = None
    limit: str | None = None


def admit(occupants: Iterable[_Occupant], peer: str, limits: Limits) -> Admission[_Occupant]:
    """A place for a newcomer, of whom no more than the address is known."""
    strangers = [one for one in occupants if not one.verified]
    from_peer = [one for one in strangers if one.peer == peer]
    if len(from_peer) >= limits.connections_per_peer:
        return _in_place_of(longest_waiting(from_peer), PER_PEER)
    if len(strangers) >= limits.connections:
        return _in_place_of(longest_waiting(strangers), IN_ALL)
    return Admission(admitted=True)


def admit_verified(occupants: Iterable[_Occupant], limits: Limits) -> Admission[_Occupant]:
    """A place among those with a verified certificate, for one whose handshake has shown it."""
    if limits.verified is None:
        return Admission(admitted=False)
    others = [one for one in occupants if one.verified]
    if len(others) >= limits.verified.connections:
        return _in_place_of(longest_waiting(others), VERIFIED)
    return Admission(admitted=True)


def longest_waiting(occupants: Iterable[_Occupant]) -> _Occupant | None:
    """Who gives way first; None when nobody waits for its peer.

    Peers with a verified certificate are the last to, and the address with the most connections is the first: a
    newcomer from another address is safe, however fast one address comes back.
    """
    occupants = list(occupants)
    held = Counter(one.peer for one in occupants)
    waiting = [one for one in occupants if one.waiting]
    return min(waiting, key=lambda one: (one.verified, -held[one.peer], one.since), default=None)


def _in_place_of(occupant: _Occupant | None, limit: str) -> Admission[_Occupant]:
    return Admission(admitted=occupant is not None, gives_way=occupant, limit=limit)


class UnderWay:
    """Counts requests of strangers that are being answered, so that some places stay free for probes."""

    def __init__(self, limits: Limits) -> None:
        self._in_all = max(1, limits.connections - limits.kept_for_probes)
        self._per_peer = max(1, limits.connections_per_peer - limits.kept_for_probes)
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
