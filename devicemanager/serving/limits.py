"""Limits on connections. :mod:`devicemanager.serving.budget` has what they cost, and how memory decides on them."""

from dataclasses import dataclass, replace
from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB

READ_BUFFER_BYTES: Final = 16 * KIB
"""What TLS may hold undecrypted before it stops reading from the socket."""

WRITE_HIGH_BYTES: Final = 16 * KIB
"""What may be unsent before whoever writes an answer waits."""

LINGERING_S: Final = 1.0
"""How long a request body that nobody reads may keep its connection."""


@dataclass(frozen=True, slots=True)
class VerifiedLimits:
    """For peers whose client certificate is verified and allowed: a front proxy, or a reader of a device manager.

    They are few and known, so slots are reserved for them, which nobody else can use.

    Attributes:
        connections: In all, from whichever addresses.
        head_bytes: Request line and all headers together.
        headers: Number of header lines.
        heads_cost: Memory that all their unfinished request heads may take.
    """

    connections: int
    head_bytes: int
    headers: int
    heads_cost: int


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one listener. Times in seconds, sizes in bytes.

    Attributes:
        connections: In all, of peers without a verified certificate, handshakes included. When full, the longest
            waiting connection is evicted for a new one.
        connections_per_peer: Of these, from one address.
        reserved_for_probes: Slots of either number that only requests of probes may use.
        handshake_s: From the accepted connection to the end of the TLS handshake.
        head_s: From the end of the handshake, or the first byte of a later request, to the end of its head.
        response_s: From a complete head to its answer.
        delivery_s: From the response until the peer has taken all of it.
        keepalive_s: Between a response and the next request.
        head_bytes: Request line and all headers together.
        line_bytes: The request line, and any one header.
        headers: Number of header lines.
        heads_cost: Memory that all unfinished request heads of these peers may take.
        heads_cost_per_peer: Of this, for one address.
        undelivered_bytes: Responses in all that peers have not taken yet; one more may be on its way.
        receive_buffer: Of the kernel, for one connection; what one read gives is bounded by it.
        send_buffer: Of the kernel, for one connection.
        backlog: Connections that the kernel holds until they are accepted.
        verified: For peers with a verified certificate; None treats them like all others.
    """

    connections: int = 256
    connections_per_peer: int = 32
    reserved_for_probes: int = 8
    handshake_s: float = 5.0
    head_s: float = 5.0
    response_s: float = 30.0
    delivery_s: float = 30.0
    keepalive_s: float = 75.0
    head_bytes: int = 16 * KIB
    line_bytes: int = 8190
    headers: int = 128
    heads_cost: int = 4 * MIB
    heads_cost_per_peer: int = 512 * KIB
    undelivered_bytes: int = 8 * MIB
    receive_buffer: int = 16 * KIB
    send_buffer: int = 32 * KIB
    backlog: int = 1024
    verified: VerifiedLimits | None = None

    @property
    def total_connections(self) -> int:
        """Connections of everybody."""
        return self.connections + (0 if self.verified is None else self.verified.connections)

    @property
    def most_headers(self) -> int:
        """Header lines that anybody may send."""
        return self.headers if self.verified is None else max(self.headers, self.verified.headers)


def within_descriptors(limits: Limits, descriptors: int, reserve: int) -> Limits:
    """The same limits with no more connections than there are descriptors for.

    Args:
        limits: What is wanted.
        descriptors: How many this process may have open.
        reserve: Of these, for everything that is no accepted connection; never more than half of them.
    """
    spare = max(2, descriptors - min(reserve, descriptors // 2))
    if spare >= limits.total_connections:
        return limits
    connections = max(1, limits.connections * spare // limits.total_connections)
    verified = limits.verified
    if verified is not None:
        verified = replace(verified, connections=max(1, spare - connections))
    return replace(
        limits,
        connections=connections,
        connections_per_peer=min(limits.connections_per_peer, connections),
        verified=verified,
    )
