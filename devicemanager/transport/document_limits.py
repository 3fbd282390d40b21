"""Limits on the documents that a program reads of its own peers, and what they cost of memory. Pure.

The costs are measured with tracemalloc, and a test measures them again with the worst documents that the bounds let
through.
"""

from dataclasses import dataclass
from typing import Final

MIB: Final = 1024 * 1024

BODY_BYTES: Final = 16 * MIB
"""The longest body that is read of any peer."""

ARRIVING_COST: Final = 2
"""A body in times of its length: it is put together of its pieces, which are still there then."""

LONG_DOCUMENT_BYTES: Final = 24 * MIB
"""What the one long document takes that is being decoded, beyond its body: a snapshot of 4 MiB of text beyond the
Basic Multilingual Plane takes 20, as does the copy of a summary's pods."""

SHORT_DOCUMENT_BYTES: Final = 8 * MIB
"""What the one short document takes that may be decoded meanwhile."""

API_OBJECT_BYTES: Final = 17 * MIB
"""What one object of the API server takes, which is read in one step between those of the others: 2 MiB of
such text."""

DECODING_BYTES: Final = LONG_DOCUMENT_BYTES + SHORT_DOCUMENT_BYTES + API_OBJECT_BYTES
"""What is being decoded takes, all together."""

ONE_DOCUMENT_BYTES: Final = ARRIVING_COST * BODY_BYTES + DECODING_BYTES
"""What one document may take beyond all limits, however small the budget is."""


@dataclass(frozen=True, slots=True)
class DocumentLimits:
    """Memory for the documents of a program's own peers.

    Attributes:
        arriving_bytes: Bodies that are being read or decoded, all together. One more may be beyond that, so that
            there is always one that comes to its end.
        summaries_bytes: What kubelets' summaries take that are kept for later readers.
        snapshots_bytes: What device managers' snapshots take that are kept.
    """

    arriving_bytes: int
    summaries_bytes: int
    snapshots_bytes: int


WORKER_DOCUMENTS: Final = DocumentLimits(
    arriving_bytes=16 * MIB,
    summaries_bytes=28 * MIB,  # of 110 nodes with 110 pods each
    snapshots_bytes=10 * MIB,  # of 700 nodes with 16 cards each
)


def documents_bytes(documents: DocumentLimits | None) -> int:
    """What documents of peers take at most."""
    if documents is None:
        return 0
    kept = documents.summaries_bytes + documents.snapshots_bytes
    return ONE_DOCUMENT_BYTES + ARRIVING_COST * documents.arriving_bytes + kept
