"""The open connections of a listener, and the limits on all of them together.

Acts on the decisions of :mod:`devicemanager.serving.admission` and :mod:`devicemanager.serving.heads`.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from devicemanager.errors import excerpt
from devicemanager.serving import memory
from devicemanager.serving.admission import admit, admit_verified, eviction_candidate
from devicemanager.serving.connection import Connection
from devicemanager.serving.heads import UnfinishedHeads
from devicemanager.serving.limits import Limits
from devicemanager.serving.log_rate import RateLimitedLog
from devicemanager.serving.peer_certificates import PeerCertificates

PeerCertificate: TypeAlias = Mapping[str, object]
"""What the ssl module says of a certificate that it verified."""

_LINES_BESIDE_HEADERS: Final = 2
"""The request line, and the empty one at the end."""

_TRIM_AFTER: Final = 64
"""Connections closed since the last trim: they may have left some 4 MiB."""

_EVICT_BATCH: Final = 16
"""Connections evicted at once when descriptors run out: as many new ones may be waiting in the kernel."""

_UNLIMITED: Final = 1 << 62


class ConnectionTable:
    """The owner of one listener's connections.

    Attributes:
        limits: What peers may take up.
        connections: Accepted and not closed yet, in order of acceptance; used as an ordered set.
        emptied: Set while there are none.
    """

    def __init__(
        self,
        limits: Limits,
        certificates: PeerCertificates,
        verified: Callable[[PeerCertificate], bool],
        rated: RateLimitedLog,
    ) -> None:
        """Args: ``verified`` says whether a certificate is one for which slots are reserved."""
        self.limits = limits
        self.connections: dict[Connection, None] = {}
        self._closed_since_trim = 0
        self.emptied = asyncio.Event()
        self._certificates = certificates
        self._verified = verified
        self._rated = rated
        self._heads: UnfinishedHeads[Connection] = UnfinishedHeads(limits)
        self._undelivered_bytes = 0

    def admit(self, peer: str) -> bool:
        """Whether a new connection is admitted; another may have been evicted for it."""
        admission = admit(self.connections, peer, self.limits)
        self._evict(admission.evicted, admission.limit)
        if not admission.admitted:
            self._rated.write(logging.WARNING, "connection_refused", cause=str(admission.limit), peer=peer)
        return admission.admitted

    def add(self, connection: Connection) -> None:
        """Add an admitted connection."""
        self.connections[connection] = None
        self.emptied.clear()

    def evict_some(self, cause: str) -> None:
        """Evict some of the longest waiting connections, for want of something that is not counted here."""
        for _ in range(_EVICT_BATCH):
            self._evict(eviction_candidate(self.connections), cause)

    def drop(self, connection: Connection) -> None:
        """Remove a connection, and close it."""
        self.remove(connection)
        connection.abort()

    async def empty_within(self, timeout_s: float) -> bool:
        """Whether all connections are closed, after waiting up to ``timeout_s`` for it."""
        if self.connections:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, timeout_s)):
                    await self.emptied.wait()
        return not self.connections

    def enforce_deadlines(self, now: float) -> None:
        """Close what is late at ``now``, on the loop's clock, or has an expired certificate.

        A peer whose certificate is no longer one for which slots are reserved no longer counts as verified.
        """
        for connection in list(self.connections):
            late = connection.overdue(now)
            if late is not None:
                self._rated.write(logging.INFO, "connection_timed_out", cause=late, peer=connection.peer)
                self.drop(connection)
                continue
            if connection.verified and not self._is_verified(connection):
                connection.verified = False
            if self._certificates.expired(connection):
                self._rated.write(
                    logging.INFO, "client_certificate_expired", cause="its validity is over", peer=connection.peer
                )
                connection.close_after_response()
        if self._closed_since_trim >= _TRIM_AFTER:
            self._closed_since_trim = 0
            memory.trim_malloc()

    # What a connection reports to its owner.

    def handshake_done(self, connection: Connection) -> None:
        """Keep a connection whose handshake succeeded, unless its certificate is no longer trusted."""
        if not self._certificates.trusted(connection):
            connection.force_close()
        elif self.limits.verified is not None and self._is_verified(connection):
            admission = admit_verified(self.connections, self.limits)
            self._evict(admission.evicted, admission.limit)
            connection.verified = admission.admitted

    def remove(self, connection: Connection) -> None:
        """Remove a connection; without effect when it was removed before."""
        if connection in self.connections:
            del self.connections[connection]
            self._heads.set(connection, 0, connection.peer, verified=connection.verified)
            self._closed_since_trim += 1
        if not self.connections:
            self.emptied.set()

    def head_limits(self, connection: Connection) -> tuple[int, int]:
        """Bytes and lines that a request head may have; where aiohttp counts the lines, any number."""
        limits, verified = self.limits, self.limits.verified
        if verified is not None and connection.verified:
            return verified.head_bytes, _UNLIMITED
        counted = limits.headers < limits.most_headers
        return limits.head_bytes, limits.headers + _LINES_BESIDE_HEADERS if counted else _UNLIMITED

    def head_grew(self, connection: Connection) -> None:
        """Count what is unfinished; beyond a budget, evict the longest waiting of those that share it."""
        self._heads.set(connection, connection.head.cost, connection.peer, verified=connection.verified)
        while (exceeded := self._heads.exceeded(connection)) is not None:
            cause, sharing = exceeded
            longest = min(sharing, key=lambda one: one.since)
            self._evict(longest, cause)

    def answer_ready(self, connection: Connection, size: int) -> None:
        """Count a response; when peers have not taken too much of them, evict the longest waiting of the others."""
        self._undelivered_bytes += size  # an upper bound; counted anew when it seems too much
        if self._undelivered_bytes <= self.limits.undelivered_bytes:
            return
        others = [one for one in self.connections if one is not connection and one.evictable and one.undelivered]
        others_bytes = sum(one.answer_bytes for one in others)
        while others and others_bytes + size > self.limits.undelivered_bytes:
            longest = eviction_candidate(others)
            assert longest is not None  # noqa: S101 - all may be evicted
            others.remove(longest)
            others_bytes -= longest.answer_bytes
            self._evict(longest, "too many answers not taken")
        self._undelivered_bytes = others_bytes + size

    def request_refused(self, peer: str, reason: str) -> None:
        """Log that a peer sent no valid request, too large a one, or one too many."""
        self._rated.write(logging.INFO, "request_refused", cause=reason, peer=peer)

    def request_failed(self, message: str, error: BaseException | None) -> None:
        """Log that answering failed, with the traceback."""
        cause = message if error is None else f"{type(error).__name__}: {excerpt(str(error))}"
        self._rated.write(logging.ERROR, "request_failed", cause=cause, exc_info=error)

    def _is_verified(self, connection: Connection) -> bool:
        transport = connection.transport
        certificate: PeerCertificate = transport.get_extra_info("peercert") or {} if transport is not None else {}
        return bool(certificate) and self._verified(certificate)

    def _evict(self, connection: Connection | None, limit: str | None) -> None:
        if connection is not None:
            self._rated.write(logging.INFO, "connection_evicted", cause=str(limit), peer=connection.peer)
            self.drop(connection)
