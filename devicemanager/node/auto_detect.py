"""For a node without a card yet: reads the PCI bus until there is one, then supervises its manufacturer."""

import asyncio
from collections.abc import Callable
from typing import Final, NoReturn

import structlog
from structlog.typing import FilteringBoundLogger

from devicemanager.clock import Clock
from devicemanager.errors import SettingsError
from devicemanager.model.accelerator import CollectorState
from devicemanager.node.blocking import BlockingCalls
from devicemanager.node.snapshot_store import SnapshotStore
from devicemanager.node.status import StatusTracker
from devicemanager.node.supervisor import Supervisor
from devicemanager.rules.duration import format_duration

DETECT_EVERY_S: Final = 30.0
"""Cards appear with a driver, a reboot or a hot plug, so minutes count little."""

_BUS_DEADLINE_S: Final = 5.0


class AutoDetectSupervisor:
    """Supervises the first manufacturer that has a card on the bus."""

    def __init__(
        self,
        find: Callable[[], str | None],
        supervise: Callable[[str], Supervisor],
        store: SnapshotStore,
        clock: Clock,
        log: FilteringBoundLogger | None = None,
        *,
        every_s: float = DETECT_EVERY_S,
        nothing_found: str = "nothing is found",
    ) -> None:
        """Prepare; the bus is not read before :meth:`run`.

        Args:
            find: The manufacturer on the bus, None for none. Blocks; raises SettingsError where it cannot choose.
            supervise: Makes the supervisor of one manufacturer, for the same store.
            store: Where the manufacturer and the state are put.
            clock: For the time of a state.
            log: For changes of the state.
            every_s: Between two readings of the bus.
            nothing_found: What to say while there is none.
        """
        self._find = find
        self._supervise = supervise
        self._store = store
        self._clock = clock
        self._tracker = StatusTracker(store, clock, log or structlog.get_logger())
        self._every_s = every_s
        self._nothing_found = nothing_found
        self._bus = BlockingCalls("the PCI bus")
        self._due_s = clock.monotonic()
        self._supervisor: Supervisor | None = None

    @property
    def last_progress_monotonic_s(self) -> float:
        """As of :class:`Supervisor`."""
        if self._supervisor is not None:
            return self._supervisor.last_progress_monotonic_s
        return min(self._clock.monotonic(), self._due_s)

    async def run(self) -> NoReturn:
        """Read the bus until there is a card, then supervise for ever."""
        found = await self._first_found()
        self._store.rename(found)
        self._supervisor = self._supervise(found)
        await self._supervisor.run()

    async def _first_found(self) -> str:
        while True:
            self._due_s = self._clock.monotonic() + _BUS_DEADLINE_S + self._every_s
            try:
                found = await self._bus.run(self._find, _BUS_DEADLINE_S)
            except (SettingsError, OSError) as error:  # TimeoutError is an OSError
                self._report(CollectorState.FAILED, str(error))
            else:
                if found is not None:
                    return found
                self._report(CollectorState.NO_DEVICES, self._nothing_found)
            await asyncio.sleep(self._every_s)

    def _report(self, state: CollectorState, why: str) -> None:
        self._tracker.update(state, f"{why}; looked at again every {format_duration(self._every_s)}")
