"""Whether a request that failed is sent again, and after how long."""

from typing import Final

from devicemanager.model.usage import SourceState

ATTEMPTS: Final = 4
"""Of one request, the first one included. Their pauses take 0.7 s on average: a fallback must not wait long."""

STATUSES: Final = frozenset({429, 500, 502, 503, 504})
"""Answers that may be different in a moment."""

FIRST_S: Final = 0.1
LONGEST_S: Final = 5.0
_LATER: Final = 0.25
"""Of a ``Retry-After``: by how much of it we come later, so that not all who were sent away return at once."""

FULL_BUDGET: Final = 10
"""Failures that a peer may still cost: without a budget, all who ask a dead peer would ask it four times."""


_FIRST_BACKOFF_S: Final = 1.0
_LONGEST_BACKOFF_S: Final = {SourceState.INVALID: 200.0, SourceState.TIMEOUT: 20.0}
"""Before half of it more or less."""


def pause_s(failures: int, jitter: float, retry_after_s: float | None = None) -> float:
    """Seconds until the next attempt.

    Args:
        failures: Attempts that have failed so far, at least 1.
        jitter: Chosen at random from 0..1.
        retry_after_s: What the peer asked for; None where it asked for nothing.

    Returns:
        0.1 s, doubled with each further failure, half of it more or less; never less than the peer asked for.
    """
    backoff = backoff_s(failures, jitter, first_s=FIRST_S, longest_s=LONGEST_S)
    return max(backoff, (retry_after_s or 0.0) * (1.0 + _LATER * jitter))


def backoff_s(failures: int, jitter: float, *, first_s: float, longest_s: float) -> float:
    """Seconds of an exponential back-off, half of it more or less.

    Args:
        failures: In a row, at least 1.
        jitter: Chosen at random from 0..1.
        first_s: After the first failure; doubled with each further one.
        longest_s: No longer than this, before it is made more or less.
    """
    return float(min(first_s * 2.0 ** min(failures - 1, 64), longest_s) * (0.5 + jitter))


def backoff_after_s(state: SourceState, failures: int, jitter: float) -> float:
    """Seconds for which a peer that misbehaved is not asked again; 0 where a failure says nothing of the kind.

    Args:
        state: How asking it ended, by its own fault.
        failures: Of the kind in a row, at least 1.
        jitter: Chosen at random from 0..1.

    Returns:
        1 s, doubled with each further failure, half of it more or less: up to 5 minutes after documents that cannot
        be used, which cost us, and up to 30 s after timeouts, which cost those who wait.
    """
    longest_s = _LONGEST_BACKOFF_S.get(state)
    if longest_s is None:
        return 0.0
    return backoff_s(failures, jitter, first_s=_FIRST_BACKOFF_S, longest_s=longest_s)


def may_retry(budget: int) -> bool:
    """Whether a failed attempt may be followed by another: with half of the budget gone nothing is retried."""
    return budget > FULL_BUDGET // 2


def budget_after(budget: int, *, failed: bool) -> int:
    """What an attempt leaves of a budget: a failure takes one, an answer gives one back."""
    return max(0, budget - 1) if failed else min(FULL_BUDGET, budget + 1)
