"""Connection limits of the worker: high for API servers, low for unknown peers."""

from typing import Final

from devicemanager.serving.limits import KIB, MIB, Limits, VerifiedLimits

LIMITS: Final = Limits(
    connections=448,  # more than the reads that may be under way: then it is those that are refused, with 429
    connections_per_peer=384,  # an API server is unknown until its handshake ends, and begins many at once
    keepalive_s=120.0,  # the aggregator gives an idle connection up after 90 s, and should be the one to do so
    response_s=60.0,
    line_bytes=64 * KIB,
    answers_bytes=24 * MIB,
    verified=VerifiedLimits(
        connections=768,  # a few API servers, each with a connection for every request under way
        head_bytes=1 * MIB,  # what Go allows: each group of a user is a header of its own
        headers=8192,
        heads_cost=16 * MIB,
    ),
)

DESCRIPTORS_RESERVED: Final = 3200
"""For three pools of 1,024 connections to peers, and files that are read."""
