"""Tracks the state of a collector: since when it holds, and which of its changes are logged."""

from collections import Counter

from structlog.typing import FilteringBoundLogger

from devicemanager.clock import Clock
from devicemanager.model.accelerator import CollectorState, CollectorStatus, RestartReason, Sample, Versions
from devicemanager.node.snapshot_store import SnapshotStore
from devicemanager.serving.line_allowance import LineAllowance


class StatusTracker:
    """Keeps the status in a store up to date, and logs its changes."""

    def __init__(self, store: SnapshotStore, clock: Clock, log: FilteringBoundLogger) -> None:
        """Begin with the status that the store holds."""
        self._store = store
        self._clock = clock
        self._log = log
        self._logged = self.status.state
        self._not_logged = 0
        self._allowance = LineAllowance(clock)
        self.consecutive_failures = 0
        self.restarts: Counter[RestartReason] = Counter()
        self.versions = Versions()

    @property
    def status(self) -> CollectorStatus:
        """As it is in the store."""
        return self._store.snapshot.collector

    def update(self, state: CollectorState, detail: str | None = None, sample: Sample | None = None) -> None:
        """Put the status into the store, with the counts as they are now; called at every tick.

        A change of state is logged. One that comes too soon after others is logged later, if it still holds when a
        line may be written again.
        """
        changed = state is not self.status.state
        since = self._clock.now() if changed else self.status.since
        status = CollectorStatus(
            state, since, detail, self.consecutive_failures, dict(self.restarts), self.versions
        )
        self._store.update(status, sample)
        if state is not self._logged and self._allowance.take():
            self._write()
        elif changed:
            self._not_logged += 1

    def _write(self) -> None:
        state, detail = self.status.state, self.status.detail
        more: dict[str, object] = {} if detail is None else {"detail": detail}
        if self._not_logged:
            more["changes_not_logged"] = self._not_logged
        write = self._log.info if state in (CollectorState.OK, CollectorState.NO_DEVICES) else self._log.warning
        write("collector_state_changed", state=state.value, previous=self._logged.value, **more)
        self._logged, self._not_logged = state, 0
