"""Request heads that are not complete yet: the memory of each, and the budget for all of them.

A slow peer can keep a head unfinished until its deadline, so the memory of unfinished heads is limited: in all, for
each address, and apart from these for peers with a verified certificate.
"""

from collections import Counter
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

from devicemanager.serving.budget import head_cost
from devicemanager.serving.limits import Limits

HEAD_END: Final = b"\r\n\r\n"

PIECE_BYTES: Final = 16 * 1024
"""How much is parsed at once: what a parser makes of small headers is many times their size."""

PER_PEER: Final = "too many unfinished request heads from one peer"
IN_ALL: Final = "too many unfinished request heads"

_VERIFIED: Final = "\n"
"""Stands for all peers with a verified certificate among the addresses; it is none."""

_Connection = TypeVar("_Connection", bound=Hashable)


class Head:
    """What came on one connection since its last complete head.

    Attributes:
        size: Bytes that were parsed.
        lines: Line ends among them.
    """

    __slots__ = ("_last", "lines", "size")

    def __init__(self) -> None:
        self.size = 0
        self.lines = 0
        self._last = b""

    def next_piece(self, received: bytes | bytearray, limit: int) -> bytes:
        """What to parse next of ``received``: to the end of the request head, if that is there, and never more.

        So no request is parsed before the one ahead of it is answered, and no head beyond its ``limit`` in bytes.
        """
        most = min(max(0, limit - self.size), PIECE_BYTES)
        end = (self._last + received[:most]).find(HEAD_END)
        return bytes(received[: most if end < 0 else end + len(HEAD_END) - len(self._last)])

    def grow(self, piece: bytes) -> None:
        """Count what is about to be parsed."""
        self.size += len(piece)
        self.lines += piece.count(b"\n")
        self._last = (self._last + piece)[1 - len(HEAD_END) :]

    def clear(self) -> None:
        """The head is complete."""
        self.size = self.lines = 0
        self._last = b""

    @property
    def cost(self) -> int:
        """Bytes of memory that it takes."""
        return head_cost(self.size, self.lines)


class UnfinishedHeads(Generic[_Connection]):
    """The budget of all unfinished heads."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._costs: dict[_Connection, tuple[str, int]] = {}
        self._by_owner: Counter[str] = Counter()

    def set(self, connection: _Connection, cost: int, peer: str, *, verified: bool) -> None:
        """Replace what one connection's head takes; 0 for none."""
        owner, before = self._costs.pop(connection, ("", 0))
        if before:
            self._by_owner[owner] -= before
            if not self._by_owner[owner]:
                del self._by_owner[owner]
        if cost:
            owner = _VERIFIED if verified else peer
            self._costs[connection] = (owner, cost)
            self._by_owner[owner] += cost

    def exceeded(self, connection: _Connection) -> tuple[str, list[_Connection]] | None:
        """Which budget the head of one connection exceeds, and the connections that share it; None for none."""
        owner = self._costs[connection][0] if connection in self._costs else None
        if owner is None:
            return None
        verified = self._limits.verified
        if owner == _VERIFIED:
            within = verified is None or self._by_owner[_VERIFIED] <= verified.heads_cost
            return None if within else (IN_ALL, self._of(owner))
        if self._by_owner[owner] > self._limits.heads_cost_per_peer:
            return PER_PEER, self._of(owner)
        if self._by_owner.total() - self._by_owner[_VERIFIED] > self._limits.heads_cost:
            return IN_ALL, [one for one, (theirs, _) in self._costs.items() if theirs != _VERIFIED]
        return None

    def _of(self, owner: str) -> list[_Connection]:
        return [one for one, (theirs, _) in self._costs.items() if theirs == owner]
