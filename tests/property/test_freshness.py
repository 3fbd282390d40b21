"""Ages, whatever the clocks say."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from devicemanager.rules import freshness

moments = st.datetimes(datetime(1990, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - hypothesis adds the zone
seconds = st.floats(0, 10**6)
skews = st.timedeltas(timedelta(days=-3650), timedelta(days=3650))


@given(timestamp=moments, now=moments, other=moments, held=seconds, header=seconds)
def test_with_the_senders_age_no_clock_matters(
    timestamp: datetime, now: datetime, other: datetime, held: float, header: float
) -> None:
    one = freshness.age_s(timestamp=timestamp, now=now, held_s=held, age_header_s=header)
    two = freshness.age_s(timestamp=other, now=other, held_s=held, age_header_s=header, date=now)
    assert one == two == header + held


@given(timestamp=moments, date=moments, now=moments, held=seconds, skew=skews)
def test_with_the_senders_date_its_skew_does_not_matter(
    timestamp: datetime, date: datetime, now: datetime, held: float, skew: timedelta
) -> None:
    one = freshness.age_s(timestamp=timestamp, date=date, now=now, held_s=held)
    two = freshness.age_s(timestamp=timestamp + skew, date=date + skew, now=now, held_s=held)
    assert one == two
    assert one is not None
    assert one >= 0


@given(age=st.none() | seconds, period=st.none() | st.integers(-(10**19), 10**19))
def test_nothing_is_fresh_for_longer_than_three_hours(age: float | None, period: int | None) -> None:
    assert 1 <= freshness.effective_period_s(period) <= 3600
    if age is None or age > 3 * 3600:
        assert freshness.is_stale(age, period)
    elif age <= 3:
        assert not freshness.is_stale(age, period)
