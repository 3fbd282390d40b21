"""How many lines about one thing may be logged."""

from devicemanager.serving.line_allowance import BURST, LINE_EVERY_S, LineAllowance
from tests.timing import FakeClock


def taken(clock: FakeClock, allowance: LineAllowance, steps: int, step_s: float) -> list[int]:
    """At which of these steps a line was allowed."""
    found = []
    for step in range(steps):
        if allowance.take():
            found.append(step)
        clock.advance(step_s)
    return found


def test_a_burst_at_once_and_then_one_a_minute() -> None:
    clock = FakeClock()
    assert taken(clock, LineAllowance(clock), 40, 15.0) == [0, 1, 2, 3, 4, 8, 12, 16, 20, 24, 28, 32, 36]
    assert (BURST, LINE_EVERY_S) == (4, 60.0)


def test_after_a_quiet_time_there_is_a_burst_again_and_no_more() -> None:
    clock = FakeClock()
    allowance = LineAllowance(clock)
    taken(clock, allowance, 20, 1.0)
    clock.advance(86_400.0)
    assert taken(clock, allowance, 20, 1.0) == [0, 1, 2, 3]


def test_both_numbers_can_be_others() -> None:
    clock = FakeClock()
    assert taken(clock, LineAllowance(clock, burst=1, every_s=10.0), 12, 2.5) == [0, 4, 8]
