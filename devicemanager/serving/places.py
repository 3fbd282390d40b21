"""The connections that there are, and what they may take up together.

Acts on the decisions of :mod:`devicemanager.serving.admission` and :mod:`devicemanager.serving.heads`: gives
places, and takes them back from whoever has waited longest for its peer.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from devicemanager.errors import excerpt
from devicemanager.serving import memory
from devicemanager.serving.admission import Admission, admit, admit_verified, longest_waiting
from devicemanager.serving.connection import Connection
from devicemanager.serving.heads import UnfinishedHeads
from devicemanager.serving.limits import Limits
from devicemanager.serving.log_rate import RateLimitedLog
from devicemanager.serving.peer_certificates import PeerCertificates

PeerCertificate: TypeAlias = Mapping[str, object]
"""What the ssl module says of a certificate that it verified."""

_LINES_BESIDE_HEADERS: Final = 2
"""The request line, and the empty one at the end."""

_GIVE_BACK_AFTER: Final = 64
"""Connections that have gone since memory was last given back: they may have left some 4 MiB."""

_ROOM: Final = 16
"""Connections that give way at once when the kernel has no room: as many newcomers may be waiting there."""

_ANY_NUMBER: Final = 1 << 62


class Places:
    """Keeps the connections of one listener.

    Attributes:
        limits: What peers may take up.
        connections: Those accepted and not gone yet, in the order of their acceptance.
        emptied: Set while there is none.
    """

    def __init__(
        self,
        limits: Limits,
        certificates: PeerCertificates,
        verified: Callable[[PeerCertificate], bool],
        rated: RateLimitedLog,
    ) -> None:
        """Prepare.

        Args:
            limits: What peers may take up.
            certificates: Says whether what a peer has shown is still good.
            verified: Whether a certificate is one of those that places are kept for.
            rated: Where it is said who gave way, and why.
        """
        self.limits = limits
        self.connections: dict[Connection, None] = {}
        self._gone = 0
        self.emptied = asyncio.Event()
        self._certificates = certificates
        self._verified = verified
        self._rated = rated
        self._heads: UnfinishedHeads[Connection] = UnfinishedHeads(limits)
        self._untaken_bytes = 0

    def admit(self, peer: str) -> bool:
        """Whether a newcomer gets a place; somebody may have lost it."""
        admission = admit(self.connections, peer, self.limits)
        self._carry_out(admission)
        if not admission.admitted:
            self._rated.write(logging.WARNING, "connection_refused", cause=str(admission.limit), peer=peer)
        return admission.admitted

    def enter(self, connection: Connection) -> None:
        """Give an admitted connection its place."""
        self.connections[connection] = None
        self.emptied.clear()

    def make_room(self, cause: str) -> None:
        """Have some of the longest waiting connections give way, for want of something that is not counted here."""
        for _ in range(_ROOM):
            self._carry_out(Admission(admitted=True, gives_way=longest_waiting(self.connections), limit=cause))

    def give_up(self, connection: Connection) -> None:
        """Take the place of a connection, and close it."""
        self.forget(connection)
        connection.abort()

    def look_after(self, now: float) -> None:
        """Close whatever is late at ``now``, on the loop's clock, or rests on a certificate that has ended.

        A peer whose certificate is no longer one of those that places are kept for loses that place.
        """
        for connection in list(self.connections):
            late = connection.overdue(now)
            if late is not None:
                self._rated.write(logging.INFO, "connection_overdue", cause=late, peer=connection.peer)
                self.give_up(connection)
                continue
            if connection.verified and not self._is_verified(connection):
                connection.verified = False
            if self._certificates.ended(connection):
                self._rated.write(
                    logging.INFO, "client_certificate_ended", cause="its validity is over", peer=connection.peer
                )
                connection.retire()
        if self._gone >= _GIVE_BACK_AFTER:
            self._gone = 0
            memory.give_back()

    # What a connection tells its keeper.

    def opened(self, connection: Connection) -> None:
        """Take a connection whose handshake succeeded, unless its certificate is no longer believed."""
        if not self._certificates.believed(connection):
            connection.force_close()
        elif self.limits.verified is not None and self._is_verified(connection):
            admission = admit_verified(self.connections, self.limits)
            self._carry_out(admission)
            connection.verified = admission.admitted

    def forget(self, connection: Connection) -> None:
        """Free the place of a connection that is gone. Harmless when it was free."""
        if connection in self.connections:
            del self.connections[connection]
            self._heads.set(connection, 0, connection.peer, verified=connection.verified)
            self._gone += 1
        if not self.connections:
            self.emptied.set()

    def head_limits(self, connection: Connection) -> tuple[int, int]:
        """Bytes and lines that a request head may have; where aiohttp counts the lines, any number."""
        limits, verified = self.limits, self.limits.verified
        if verified is not None and connection.verified:
            return verified.head_bytes, _ANY_NUMBER
        counted = limits.headers < limits.most_headers
        return limits.head_bytes, limits.headers + _LINES_BESIDE_HEADERS if counted else _ANY_NUMBER

    def head_grew(self, connection: Connection) -> None:
        """Count what is unfinished; beyond a budget, the longest waiting of those who share it give way."""
        self._heads.set(connection, connection.head.cost, connection.peer, verified=connection.verified)
        while (exceeded := self._heads.exceeded(connection)) is not None:
            cause, sharing = exceeded
            longest = min(sharing, key=lambda one: one.since)
            self._carry_out(Admission(admitted=True, gives_way=longest, limit=cause))

    def answer_ready(self, connection: Connection, size: int) -> None:
        """Count an answer; when too much is not taken by peers, the longest waiting of the others give way."""
        self._untaken_bytes += size  # never less than what is untaken; counted anew only when that seems too much
        if self._untaken_bytes <= self.limits.answers_bytes:
            return
        untaken = [one for one in self.connections if one is not connection and one.waiting and one.untaken]
        others_bytes = sum(one.answer_bytes for one in untaken)
        while untaken and others_bytes + size > self.limits.answers_bytes:
            longest = longest_waiting(untaken)
            assert longest is not None  # noqa: S101 - all of them wait
            untaken.remove(longest)
            others_bytes -= longest.answer_bytes
            self._carry_out(Admission(admitted=True, gives_way=longest, limit="too many answers not taken"))
        self._untaken_bytes = others_bytes + size

    def request_refused(self, peer: str, reason: str) -> None:
        """Say that a peer sent no request, or too large a one, or one too many."""
        self._rated.write(logging.INFO, "request_refused", cause=reason, peer=peer)

    def request_failed(self, message: str, error: BaseException | None) -> None:
        """Say that answering failed, with the traceback."""
        cause = message if error is None else f"{type(error).__name__}: {excerpt(str(error))}"
        self._rated.write(logging.ERROR, "request_failed", cause=cause, exc_info=error)

    def _is_verified(self, connection: Connection) -> bool:
        transport = connection.transport
        certificate: PeerCertificate = transport.get_extra_info("peercert") or {} if transport is not None else {}
        return bool(certificate) and self._verified(certificate)

    def _carry_out(self, admission: Admission[Connection]) -> None:
        longest = admission.gives_way
        if longest is not None:
            self._rated.write(logging.INFO, "connection_given_up", cause=str(admission.limit), peer=longest.peer)
            self.give_up(longest)
