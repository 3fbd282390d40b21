"""When a request is sent again, and when no more."""

import pytest

from devicemanager.rules.retries import ATTEMPTS, STATUSES, Budget, pause_s


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


def test_a_peer_that_keeps_failing_is_soon_asked_only_once_each_time() -> None:
    budget = Budget()
    allowed = []
    for _ in range(20):
        budget.note(failed=True)
        allowed.append(budget.allows_retry)
    assert allowed == [True] * 4 + [False] * 16


def test_answers_earn_retries_back() -> None:
    budget = Budget()
    for _ in range(20):
        budget.note(failed=True)
    for _ in range(5):
        budget.note(failed=False)
    assert not budget.allows_retry
    budget.note(failed=False)
    assert budget.allows_retry
    assert not budget.is_full
    for _ in range(20):
        budget.note(failed=False)
    assert budget.is_full
