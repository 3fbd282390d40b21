"""When a period is too short for the hardware, and how that is said."""

import structlog
from structlog.testing import LogCapture

from devicemanager.node.sample_duration import SampleDuration
from devicemanager.serving.line_allowance import BURST
from tests.timing import FakeClock

PERIOD_S = 5.0


class Samples:
    """Samples one after the other, a minute apart."""

    def __init__(self, apart_s: float = 60.0) -> None:
        self.clock = FakeClock()
        self.capture = LogCapture()
        log = structlog.wrap_logger(None, processors=[self.capture])
        self.duration = SampleDuration(PERIOD_S, self.clock, log)
        self._apart_s = apart_s

    def take(self, *taken_s: float) -> list[str | None]:
        said = []
        for one in taken_s:
            self.clock.advance(self._apart_s)
            said.append(self.duration.detail(one))
        return said

    @property
    def logged(self) -> list[str]:
        return [entry["event"] for entry in self.capture.entries]


def test_samples_within_the_period_say_nothing() -> None:
    samples = Samples()
    assert samples.take(0.1, 4.9, 5.0) == [None] * 3
    assert samples.logged == []


def test_the_second_sample_in_a_row_that_outlasts_the_period_says_so_and_the_first_that_does_not_ends_it() -> None:
    """Sixteen cards of 0.8 s each."""
    samples = Samples()
    too_short = "a sample takes 12.8 s, longer than the period of 5 s: --monitor-period"
    assert samples.take(12.8, 12.8, 12.8, 4.0) == [None, too_short, too_short, None]
    assert samples.logged == ["period_too_short", "period_long_enough"]
    warning = samples.capture.entries[0]
    assert (warning["log_level"], warning["taken_s"], warning["period_s"]) == ("warning", 12.8, 5.0)


def test_one_long_sample_is_none_of_the_periods_doing() -> None:
    """A driver wakes its cards once."""
    samples = Samples()
    assert samples.take(12.8, 1.0, 12.8, 1.0) == [None] * 4
    assert samples.logged == []


def test_what_changes_at_every_sample_is_not_logged_at_every_sample() -> None:
    samples = Samples(apart_s=0.001)
    samples.take(*([9.0, 9.0, 1.0] * 50))
    assert len(samples.logged) == BURST
    samples.clock.advance(60.0)
    samples.take(9.0, 9.0)
    assert samples.logged[-1] == "period_too_short"
