"""Whether samples take longer than the period, so that figures are older than whoever chose it expects."""

from typing import Final

from structlog.typing import FilteringBoundLogger

from devicemanager.clock import Clock
from devicemanager.serving.line_allowance import LineAllowance

TOO_LONG: Final = 2
"""Samples in a row that must outlast the period: the first of a process may wait for a driver to wake its cards."""


class SampleDuration:
    """Compares samples with the period, and logs when they begin to outlast it, and cease to."""

    def __init__(self, period_s: float, clock: Clock, log: FilteringBoundLogger) -> None:
        """Know of no sample yet."""
        self._period_s = period_s
        self._log = log
        self._allowance = LineAllowance(clock)
        self._in_a_row = 0
        self._logged = False

    def detail(self, taken_s: float) -> str | None:
        """What the state says beside it; None if the period is long enough.

        Args:
            taken_s: How long a sample took, without waiting for devices that did not answer or for this program.
        """
        self._in_a_row = self._in_a_row + 1 if taken_s > self._period_s else 0
        too_short = self._in_a_row >= TOO_LONG
        if too_short is not self._logged and (not self._in_a_row or too_short) and self._allowance.take():
            self._logged = too_short
            values = {"taken_s": round(taken_s, 3), "period_s": self._period_s}
            if too_short:
                self._log.warning("period_too_short", **values)
            else:
                self._log.info("period_long_enough", **values)
        if not too_short:
            return None
        return f"a sample takes {taken_s:.1f} s, longer than the period of {self._period_s:g} s: --monitor-period"
