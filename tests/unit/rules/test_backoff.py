"""How long to wait after so many failures."""

import pytest

from devicemanager.rules.backoff import delay_s


@pytest.mark.parametrize(
    ("failures", "expected"), [(1, 1.0), (2, 2.0), (3, 4.0), (6, 32.0), (7, 60.0), (8, 60.0), (10**6, 60.0)]
)
def test_it_doubles_up_to_a_minute_while_nothing_can_be_read(failures: int, expected: float) -> None:
    assert delay_s(failures, 15.0, readable=False) == expected


@pytest.mark.parametrize("failures", [1, 5, 50, 5000])
def test_it_stays_below_two_periods_while_any_card_can_be_read(failures: int) -> None:
    assert 0 < delay_s(failures, 15.0, readable=True) < 30.0
    assert delay_s(failures, 3600.0, readable=True) <= 60.0


def test_it_begins_with_the_period_where_that_is_short() -> None:
    assert delay_s(1, 0.25, readable=False) == 0.25
