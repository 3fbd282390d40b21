"""Ages that no clock skew can bend (case G06), and when an age is too old."""

from datetime import UTC, datetime, timedelta

import pytest

from devicemanager.rules import freshness

NOW = datetime(2026, 1, 1, 10, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize("skew", [timedelta(minutes=-5), timedelta(0), timedelta(minutes=5)])
def test_the_senders_own_age_beats_every_clock(skew: timedelta) -> None:
    age = freshness.age_s(timestamp=NOW + skew, now=NOW, held_s=2.5, age_header_s=1, date=NOW)
    assert age == 3.5


@pytest.mark.parametrize("skew", [timedelta(minutes=-5), timedelta(0), timedelta(minutes=5)])
def test_without_an_age_the_senders_clock_is_compared_with_itself(skew: timedelta) -> None:
    senders_now = NOW + skew
    age = freshness.age_s(timestamp=senders_now - timedelta(seconds=7), now=NOW, held_s=2, date=senders_now)
    assert age == 9


def test_with_nothing_else_the_readers_clock_has_to_do() -> None:
    assert freshness.age_s(timestamp=NOW - timedelta(seconds=12), now=NOW, held_s=99) == 12


@pytest.mark.parametrize("date", [None, NOW])
def test_an_age_is_never_negative(date: datetime | None) -> None:
    assert freshness.age_s(timestamp=NOW + timedelta(hours=1), now=NOW, date=date) == 0
    assert freshness.age_s(timestamp=NOW, now=NOW, age_header_s=-3) == 0


def test_a_zero_timestamp_has_no_age_and_is_never_fresh() -> None:
    age = freshness.age_s(timestamp=None, now=NOW, age_header_s=0, date=NOW)
    assert age is None
    assert freshness.is_stale(age, 15)


@pytest.mark.parametrize(
    ("offset_minutes", "age_header_s", "stale"),
    [(-5, 0.8, False), (5, 0.8, False), (5, 95.0, True)],
    ids=["behind", "ahead", "stale"],
)
def test_the_age_header_counts_however_far_the_clocks_are_apart(
    offset_minutes: int, age_header_s: float, stale: bool
) -> None:
    collected_at = NOW + timedelta(minutes=offset_minutes)
    age = freshness.age_s(timestamp=collected_at, now=NOW, age_header_s=age_header_s)
    assert freshness.is_stale(age, 20) is stale


@pytest.mark.parametrize(
    ("age", "period", "stale"),
    [
        (45.0, 15, False),
        (45.001, 15, True),
        (6.0, 2, False),
        (6.1, 2, True),
        (10_800.0, 3600, False),
        (10_801.0, 3600, True),
        (45.0, 3601, False),
        (45.1, 3601, True),
        (45.1, 10**18, True),
        (45.0, 0, False),
        (45.1, 0, True),
        (45.1, -1, True),
        (45.0, None, False),
        (45.1, None, True),
    ],
)
def test_stale_is_older_than_three_periods(age: float, period: int | None, stale: bool) -> None:
    assert freshness.is_stale(age, period) is stale
