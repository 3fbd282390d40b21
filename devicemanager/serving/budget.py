"""How a program's memory is split between what grows with what others send. Pure.

What each thing costs was measured; where is said beside it. The limits that a program was designed with fit into
the memory limit that the chart sets by default; with more memory, or less, they grow and shrink with it. A test
multiplies every limit, for many budgets, and compares the sum with the budget; ``docs/threat-model.md`` shows it.
"""

import math
from dataclasses import dataclass, replace
from typing import Final

from devicemanager.errors import DeviceManagerError
from devicemanager.rules.quantity import format_bytes
from devicemanager.serving.limits import KIB, MIB, READ_BUFFER_BYTES, Limits, VerifiedLimits
from devicemanager.transport.document_limits import ONE_DOCUMENT_BYTES, WORKER_DOCUMENTS, DocumentLimits

CONNECTION_BYTES: Final = 58 * KIB
"""One TLS connection on which little is sent: measured on uvloop, OpenSSL 3."""

HEAD_BYTE_COST: Final = 2
"""Each byte of a parsed head is held twice, as it came and as text."""

HEAD_LINE_COST: Final = 160
"""What one header line takes beside its bytes: measured."""

COPIES_OF_AN_ANSWER: Final = 2
"""Its body, and its encryption."""

KERNEL_DOUBLES: Final = 2
"""Linux takes twice the size that is asked for a socket buffer (socket(7)), and counts it against the container."""

UNALLOCATED: Final = 1 / 32
"""Of a budget: for what the allocator cannot give back, and for nothing else."""

SMALLEST: Final = 1 / 4
"""Of what a program was designed to admit: with less an address had no place beside those kept for probes."""

LARGEST: Final = 4
"""The same: every new connection is compared with all there are, so ten thousand would cost time instead."""


class BudgetError(DeviceManagerError):
    """A program cannot serve with so little memory.

    Attributes:
        smallest_bytes: With which it can.
    """

    def __init__(self, memory_bytes: int, smallest_bytes: int) -> None:
        super().__init__(
            f"{format_bytes(memory_bytes)} of memory is too little to serve with; "
            f"the smallest limit that works is {format_bytes(smallest_bytes)}"
        )
        self.smallest_bytes = smallest_bytes


@dataclass(frozen=True, slots=True)
class Program:
    """What a program was designed to admit, and the memory that it needs for that.

    Attributes:
        designed_bytes: The memory limit that the chart sets by default.
        at_rest_bytes: Resident before the first connection, without its children.
        limits: Of its listener.
        documents: None for a program that reads none.
        children_bytes: What its children may grow to by default, all together.
        children_at_rest_bytes: What they take at least: so much is kept for them however small the limit is.
    """

    designed_bytes: int
    at_rest_bytes: int
    limits: Limits
    documents: DocumentLimits | None = None
    children_bytes: int = 0
    children_at_rest_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Budget:
    """What a program may take.

    Attributes:
        memory_bytes: All of it.
        limits: Of its listener.
        documents: None for a program that reads none.
        children_bytes: What is left for its children: less than they may grow to where the limit is small.
    """

    memory_bytes: int
    limits: Limits
    documents: DocumentLimits | None
    children_bytes: int


DEVICE_MANAGER: Final = Program(
    designed_bytes=480 * MIB,
    at_rest_bytes=47 * MIB,  # measured
    children_bytes=296 * MIB,  # node/launcher.py has what they may grow to; a test compares
    children_at_rest_bytes=16 * MIB,  # one collector process, measured
    # Unverified peers ask for no more than a probe; readers with a certificate are few, and send little.
    limits=Limits(verified=VerifiedLimits(connections=64, head_bytes=16 * KIB, headers=128, heads_cost=1 * MIB)),
)

WORKER: Final = Program(
    designed_bytes=512 * MIB,
    at_rest_bytes=70 * MIB,  # measured
    limits=Limits(
        connections=448,  # more than the reads that may be under way: then it is those that are refused, with 429
        connections_per_peer=384,  # an API server is unverified until its handshake ends, and begins many at once
        keepalive_s=120.0,  # the aggregator gives an idle connection up after 90 s, and should be the one to do so
        response_s=60.0,
        line_bytes=64 * KIB,
        undelivered_bytes=24 * MIB,
        verified=VerifiedLimits(
            connections=448,  # a few API servers, each with a connection for every request under way
            head_bytes=1 * MIB,  # what Go allows: each group of a user is a header of its own
            headers=8192,
            heads_cost=16 * MIB,
        ),
    ),
    documents=WORKER_DOCUMENTS,
)


def split(program: Program, memory_bytes: int, children_bytes: int | None = None) -> Budget:
    """What a program may take of so much memory.

    Where that is not enough for everything, its children get less than they may grow to, before it serves less than
    it was designed for.

    Args:
        program: Which one.
        memory_bytes: All there is.
        children_bytes: What its children may grow to; None for what they do by default.

    Raises:
        BudgetError: It is too little for serving at all.
    """
    wanted = program.children_bytes if children_bytes is None else children_bytes
    own = program.at_rest_bytes + (0 if program.documents is None else ONE_DOCUMENT_BYTES)
    designed = program.designed_bytes * (1 - UNALLOCATED) - own - program.children_bytes
    left = memory_bytes * (1 - UNALLOCATED) - own
    children = min(wanted, int(max(program.children_at_rest_bytes, left - designed)))
    share = min((left - children) / designed, LARGEST)
    if share < SMALLEST:
        fixed = own + program.children_at_rest_bytes
        smallest_mib = math.ceil((fixed + SMALLEST * designed) / (1 - UNALLOCATED) / MIB)
        raise BudgetError(memory_bytes, smallest_mib * MIB)
    return Budget(memory_bytes, _limits(program.limits, share), _documents(program.documents, share), children)


def _limits(designed: Limits, share: float) -> Limits:
    verified = designed.verified
    return replace(
        designed,
        connections=int(designed.connections * share),
        connections_per_peer=max(int(designed.connections_per_peer * share), 2 * designed.reserved_for_probes),
        heads_cost=int(designed.heads_cost * share),
        heads_cost_per_peer=int(designed.heads_cost_per_peer * share),
        undelivered_bytes=int(designed.undelivered_bytes * share),
        verified=verified
        and replace(
            verified,
            connections=int(verified.connections * share),
            heads_cost=int(verified.heads_cost * share),
        ),
    )


def _documents(designed: DocumentLimits | None, share: float) -> DocumentLimits | None:
    return designed and DocumentLimits(
        arriving_bytes=int(designed.arriving_bytes * share),
        summaries_bytes=int(designed.summaries_bytes * share),
        snapshots_bytes=int(designed.snapshots_bytes * share),
    )


def head_cost(size: int, lines: int) -> int:
    """Bytes of memory that a request head of ``size`` bytes in ``lines`` lines takes."""
    return HEAD_BYTE_COST * size + HEAD_LINE_COST * lines


def listener_bytes(limits: Limits) -> int:
    """What serving takes at most when every limit is reached at once, beyond what the program takes at rest.

    A peer with a verified certificate is counted with its connection, the kernel's buffers, its heads and its
    answers; one without, with everything that it can make us and the kernel hold.
    """
    kernel = KERNEL_DOUBLES * (limits.receive_buffer + limits.send_buffer)
    one_read = KERNEL_DOUBLES * limits.receive_buffer
    held = one_read + (READ_BUFFER_BYTES + one_read) + one_read  # encrypted, queued for decryption, decrypted
    under_way = head_cost(limits.head_bytes, limits.headers)
    total = limits.connections * (CONNECTION_BYTES + kernel + held + under_way)
    total += limits.heads_cost + COPIES_OF_AN_ANSWER * limits.undelivered_bytes
    if limits.verified is not None:
        total += limits.verified.connections * (CONNECTION_BYTES + kernel) + limits.verified.heads_cost
    return total
