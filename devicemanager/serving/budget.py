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

ARRIVING_COST: Final = 2
"""A body in times of its length: it is put together of its pieces, which are still there then."""

KEPT_COST: Final = 1.5
"""A document that is kept, in times of its JSON: a summary is kept as it came, and a snapshot of 1,024 cards with
all slices takes 1.5; measured with tracemalloc."""

DECODING_BYTES: Final = 24 * MIB
"""What the one long document takes that is being decoded: a snapshot took up to 20 MiB (4 MiB of text
beyond the Basic Multilingual Plane, or all cards and slices that one may have), measured with tracemalloc."""

BODY_BYTES: Final = 16 * MIB
"""The longest body that is read of any peer."""

ONE_DOCUMENT_BYTES: Final = ARRIVING_COST * BODY_BYTES + DECODING_BYTES
"""What one document may take beyond all limits, however small the budget is."""

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
class DocumentLimits:
    """Memory for the documents of a program's own peers.

    Attributes:
        arriving_bytes: Bodies that are being read or decoded, all together. One more may be beyond that, so that
            there is always one that comes to its end.
        summaries_bytes: The JSON of kubelets' summaries that are kept for later readers.
        snapshots_bytes: The JSON of device managers' snapshots that are kept.
    """

    arriving_bytes: int
    summaries_bytes: int
    snapshots_bytes: int


@dataclass(frozen=True, slots=True)
class Program:
    """What a program was designed to admit, and the memory that it needs for that.

    Attributes:
        designed_bytes: The memory limit that the chart sets by default.
        at_rest_bytes: Resident before the first connection, collector processes included.
        limits: Of its listener.
        documents: None for a program that reads none.
    """

    designed_bytes: int
    at_rest_bytes: int
    limits: Limits
    documents: DocumentLimits | None = None


@dataclass(frozen=True, slots=True)
class Budget:
    """What a program may take.

    Attributes:
        memory_bytes: All of it.
        limits: Of its listener.
        documents: None for a program that reads none.
    """

    memory_bytes: int
    limits: Limits
    documents: DocumentLimits | None


DEVICE_MANAGER: Final = Program(
    designed_bytes=192 * MIB,
    at_rest_bytes=63 * MIB,  # measured
    # Unverified peers ask for no more than a probe; readers with a certificate are few, and send little.
    limits=Limits(verified=VerifiedLimits(connections=64, head_bytes=16 * KIB, headers=128, heads_cost=1 * MIB)),
)

WORKER_DOCUMENTS: Final = DocumentLimits(
    arriving_bytes=16 * MIB,
    summaries_bytes=28 * MIB,  # of 140 nodes with 110 pods each
    snapshots_bytes=8 * MIB,  # of 1,000 nodes with 16 cards each
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
            connections=768,  # a few API servers, each with a connection for every request under way
            head_bytes=1 * MIB,  # what Go allows: each group of a user is a header of its own
            headers=8192,
            heads_cost=16 * MIB,
        ),
    ),
    documents=WORKER_DOCUMENTS,
)


def split(program: Program, memory_bytes: int) -> Budget:
    """What a program may take of so much memory.

    Raises:
        BudgetError: It is too little for serving at all.
    """
    fixed = program.at_rest_bytes + (0 if program.documents is None else ONE_DOCUMENT_BYTES)
    free, designed = (size * (1 - UNALLOCATED) - fixed for size in (memory_bytes, program.designed_bytes))
    share = min(free / designed, LARGEST)
    if share < SMALLEST:
        smallest_mib = math.ceil((fixed + SMALLEST * designed) / (1 - UNALLOCATED) / MIB)
        raise BudgetError(memory_bytes, smallest_mib * MIB)
    return Budget(memory_bytes, _limits(program.limits, share), _documents(program.documents, share))


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

    A peer with a verified certificate is counted with its connection, its heads and its answers; one without, with
    everything that it can make us and the kernel hold.
    """
    kernel = KERNEL_DOUBLES * (limits.receive_buffer + limits.send_buffer)
    one_read = KERNEL_DOUBLES * limits.receive_buffer
    held = one_read + (READ_BUFFER_BYTES + one_read) + one_read  # encrypted, queued for decryption, decrypted
    under_way = head_cost(limits.head_bytes, limits.headers)
    total = limits.connections * (CONNECTION_BYTES + kernel + held + under_way)
    total += limits.heads_cost + COPIES_OF_AN_ANSWER * limits.undelivered_bytes
    if limits.verified is not None:
        total += limits.verified.connections * CONNECTION_BYTES + limits.verified.heads_cost
    return total


def documents_bytes(documents: DocumentLimits | None) -> int:
    """What documents of peers take at most."""
    if documents is None:
        return 0
    kept = documents.summaries_bytes + documents.snapshots_bytes
    return int(ONE_DOCUMENT_BYTES + ARRIVING_COST * documents.arriving_bytes + KEPT_COST * kept)
