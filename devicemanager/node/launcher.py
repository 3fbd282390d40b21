"""Starts collector processes, and limits how many may be stuck.

A process that is stuck in the kernel outlives SIGKILL, so killed ones are counted: past a limit, none is started.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from devicemanager.node.child import Child, Event, TimedOut
from devicemanager.node.deadlines import Deadlines
from devicemanager.node.leftovers import Leftovers
from devicemanager.node.process_usage import UsageLimits, excess, memory_bytes, most_allowed_bytes
from devicemanager.rules.selection import Selection

STUCK_LIMIT: Final = 8
"""Killed processes that have not ended."""

STUCK_BYTES: Final = 12 * 1024 * 1024
"""What one of these holds: measured, of one that hangs and has not grown."""

AT_ONCE: Final = 2
"""Processes that work: the one that reads all cards, and one that tries a card in quarantine."""

_EXIT_WAIT_S: Final = 0.3
"""How long this program waits at its end for killed processes; a stuck one never ends."""

_LEFTOVERS_WAIT_S: Final = 0.2
"""And for finding what they have left behind."""

_LOOK_EVERY_S: Final = 0.25
"""How often the memory of a process is looked at while its next line is waited for."""

_LOOK_AT_REST_EVERY_S: Final = 1.0
"""The same between samples, when nothing is asked of the library."""


def most_bytes(limit_bytes: int) -> int:
    """Memory that all collector processes may hold together, with a ``--collector-memory-limit``."""
    return AT_ONCE * most_allowed_bytes(limit_bytes) + STUCK_LIMIT * STUCK_BYTES


@dataclass(frozen=True, slots=True)
class MemoryExceeded:
    """The process holds more memory than it may, before its next line.

    Attributes:
        detail: How much, and how much it may.
        grown: Whether much of that came while the line was waited for, so that what is being read takes it.
    """

    detail: str
    grown: bool


class Launcher:
    """Starts collector processes of one manufacturer and remembers them until they end."""

    def __init__(
        self,
        manufacturer: str,
        command: Sequence[str],
        deadlines: Deadlines,
        usage: UsageLimits,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start nothing yet.

        Args:
            manufacturer: The only one that a process may report.
            command: Program and arguments; which cards to read, how often and whereto is added.
            deadlines: How long each line may take.
            usage: How much a process may hold.
            environment: Of the processes, in which they are marked to find what they leave behind; None passes on
                this process's own, and leaves that alone.
        """
        self.manufacturer = manufacturer
        self.deadlines = deadlines
        self._usage = usage
        self._command = (*command, "--period", str(deadlines.period_s))
        self._leftovers = None if environment is None else Leftovers(environment, self._pids)
        self._starting = 0
        self._alive: set[Child] = set()
        self._killed: set[Child] = set()

    @property
    def exhausted(self) -> bool:
        """Whether too many killed processes are still running to start another."""
        return len(self._killed) >= STUCK_LIMIT

    async def start(self, selection: Selection) -> Child:
        """Start a process that reads these devices.

        Raises:
            OSError: It could not be started.
        """
        run, environment = (None, None) if self._leftovers is None else self._leftovers.begin()

        def over(child: Child) -> None:
            self._alive.discard(child)
            self._killed.discard(child)
            self._end_run(run)

        self._starting += 1
        try:
            async with asyncio.timeout(self.deadlines.open_s):  # TimeoutError is an OSError
                child = await Child.start([*self._command, *selection.arguments], over, environment)
        except BaseException:
            self._end_run(run)
            raise
        finally:
            self._starting -= 1
        if not child.exited:
            self._alive.add(child)
        return child

    async def next(self, child: Child, deadline_s: float, *, resting: bool = False) -> Event | MemoryExceeded:
        """The next line of a process, or why there is none within ``deadline_s`` seconds.

        Args:
            child: The process.
            deadline_s: How long the line may take.
            resting: Whether the process is between two samples.
        """
        before_bytes = None if resting else memory_bytes(child.pid)
        every_s = _LOOK_AT_REST_EVERY_S if resting else _LOOK_EVERY_S
        exceeded: MemoryExceeded | None = None
        timer: asyncio.TimerHandle
        loop = asyncio.get_running_loop()

        def look() -> None:
            nonlocal exceeded, timer
            held = excess(child.pid, self._usage)
            if held is None:
                timer = loop.call_later(every_s, look)
                return
            came_bytes = 0 if before_bytes is None else (memory_bytes(child.pid) or 0) - before_bytes
            exceeded = MemoryExceeded(held, grown=came_bytes > self._usage.memory_bytes // 4)
            child.stop_waiting()

        timer = loop.call_later(every_s, look)
        try:
            event = await child.next(deadline_s)
        finally:
            timer.cancel()
        return exceeded if exceeded is not None and isinstance(event, TimedOut) else event

    def _end_run(self, run: str | None) -> None:
        if self._leftovers is not None and run is not None:
            self._leftovers.end(run)

    def _pids(self) -> set[int] | None:
        """Ids of the processes that the event loop waits for; None while one is being started."""
        return None if self._starting else {child.pid for child in self._alive | self._killed}

    async def end_leftovers(self) -> None:
        """Look for ever after what ended processes leave behind."""
        if self._leftovers is not None:
            await self._leftovers.watch()

    def kill(self, child: Child) -> None:
        """Kill one, if it lives. Does not wait."""
        if child in self._alive:
            self._alive.discard(child)
            self._killed.add(child)
        child.kill()

    async def end(self) -> None:
        """Kill all processes and release them, in well below a second."""
        for child in tuple(self._alive):
            self.kill(child)
        leaving = tuple(self._killed)
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + _EXIT_WAIT_S
        for child in leaving:
            await child.wait(deadline_s - loop.time())
        for child in leaving:
            child.abandon()
        self._killed.clear()
        if self._leftovers is not None:
            await self._leftovers.end_all(_LEFTOVERS_WAIT_S)
