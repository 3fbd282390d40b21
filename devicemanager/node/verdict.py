"""The verdict on a collector over time: since when it holds, and what of its changes is worth a line in the log."""

from dataclasses import dataclass
from typing import Final

from structlog.typing import FilteringBoundLogger

from devicemanager.clock import Clock
from devicemanager.model.accelerator import CollectorState, CollectorStatus

QUIET_S: Final = 60.0
"""A collector that fails and recovers on every tick says so once a minute, not twice a tick."""


@dataclass(frozen=True, slots=True)
class _Told:
    at_s: float
    unsaid: int = 0


class Verdict:
    """The latest verdict, and its log."""

    def __init__(self, clock: Clock, log: FilteringBoundLogger) -> None:
        """Begin with ``starting``."""
        self._clock = clock
        self._log = log
        self._told: dict[CollectorState, _Told] = {}
        self.status = CollectorStatus(CollectorState.STARTING, clock.now())
        self.consecutive_failures = 0
        self.restarts = 0

    def give(self, state: CollectorState, detail: str | None = None) -> CollectorStatus:
        """The verdict with the counts as they are now. A change of state is logged."""
        changed = state is not self.status.state
        if changed:
            self._tell(state, detail)
        since = self._clock.now() if changed else self.status.since
        self.status = CollectorStatus(state, since, detail, self.consecutive_failures, self.restarts)
        return self.status

    def _tell(self, state: CollectorState, detail: str | None) -> None:
        now_s = self._clock.monotonic()
        told = self._told.get(state)
        if told is not None and now_s - told.at_s < QUIET_S:
            self._told[state] = _Told(told.at_s, told.unsaid + 1)
            return
        self._told[state] = _Told(now_s)
        say = self._log.info if state in (CollectorState.OK, CollectorState.NO_DEVICES) else self._log.warning
        say(
            "collector_state_changed",
            state=state.value,
            previous=self.status.state.value,
            detail=detail,
            repeats_not_logged=0 if told is None else told.unsaid,
        )
