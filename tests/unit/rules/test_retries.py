"""When a request is sent again, and when no more."""

import pytest

from devicemanager.model.usage import SourceState
from devicemanager.rules.retries import (
    ATTEMPTS,
    FULL_BUDGET,
    STATUSES,
    backoff_after_s,
    budget_after,
    may_retry,
    pause_s,
)


@pytest.mark.parametrize(
    ("failures", "jitter", "expected"),
    [(1, 0.0, 0.05), (1, 0.5, 0.1), (1, 1.0, 0.15), (2, 0.5, 0.2), (3, 0.5, 0.4)],
)
def test_each_pause_is_twice_the_last_more_or_less(failures: int, jitter: float, expected: float) -> None:
    assert pause_s(failures, jitter) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("retry_after_s", "jitter", "expected"),
    [(1, 0.0, 1.0), (1, 1.0, 1.25), (0, 0.5, 0.1), (None, 0.5, 0.1), (3600, 0.0, 3600.0)],
)
def test_no_retry_comes_sooner_than_the_peer_asked_for(
    retry_after_s: float | None, jitter: float, expected: float
) -> None:
    assert pause_s(1, jitter, retry_after_s) == pytest.approx(expected)


def test_a_pause_is_finite_after_any_number_of_failures() -> None:
    assert pause_s(10_000, 1.0) < 100_000


def test_statuses_that_may_pass_are_those_of_busy_and_restarting_servers() -> None:
    assert {429, 500, 502, 503, 504} == STATUSES
    assert ATTEMPTS == 4


def after(budget: int, attempts: int, *, failed: bool) -> int:
    for _ in range(attempts):
        budget = budget_after(budget, failed=failed)
    return budget


def test_a_peer_that_keeps_failing_is_soon_asked_only_once_each_time() -> None:
    allowed = [may_retry(after(FULL_BUDGET, failures, failed=True)) for failures in range(1, 21)]
    assert allowed == [True] * 4 + [False] * 16


def test_answers_earn_retries_back() -> None:
    spent = after(FULL_BUDGET, 20, failed=True)
    assert not may_retry(after(spent, 5, failed=False))
    assert may_retry(after(spent, 6, failed=False))
    assert after(spent, 9, failed=False) < FULL_BUDGET
    assert after(spent, 30, failed=False) == FULL_BUDGET


@pytest.mark.parametrize(("failures", "expected"), [(1, 1.0), (2, 2.0), (5, 16.0), (9, 200.0), (1000, 200.0)])
def test_a_peer_whose_documents_cannot_be_used_is_left_alone_for_twice_as_long_each_time(
    failures: int, expected: float
) -> None:
    assert backoff_after_s(SourceState.INVALID, failures, 0.5) == expected
    assert backoff_after_s(SourceState.INVALID, failures, 0.0) == 0.5 * expected
    assert backoff_after_s(SourceState.INVALID, failures, 1.0) == 1.5 * expected


def test_a_peer_that_is_too_slow_is_left_alone_for_half_a_minute_at_most() -> None:
    assert backoff_after_s(SourceState.TIMEOUT, 1, 0.5) == 1.0
    assert backoff_after_s(SourceState.TIMEOUT, 1000, 1.0) == 30.0


@pytest.mark.parametrize("state", sorted(set(SourceState) - {SourceState.INVALID, SourceState.TIMEOUT}))
def test_any_other_failure_leaves_no_peer_alone(state: SourceState) -> None:
    """One that is gone costs nothing, and one that refuses us says so at once."""
    assert backoff_after_s(state, 5, 0.5) == 0.0
