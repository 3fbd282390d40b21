"""How a collector process is started: for which devices, within which deadlines, and how many may be stuck.

A process that is stuck in the kernel outlives SIGKILL, so killed ones are counted: past a limit, none is started.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from devicemanager.node.child import Child
from devicemanager.node.deadlines import Deadlines
from devicemanager.rules.selection import Selection

STUCK_LIMIT: Final = 8
"""Killed processes that have not ended. Each holds about 12 MiB; with eight of them the driver is beyond help."""

_PARTING_S: Final = 0.3
"""What killed processes get to end in when this program ends; a stuck one would take any time."""


class Launcher:
    """Starts collector processes of one manufacturer and remembers them until they end."""

    def __init__(self, manufacturer: str, command: Sequence[str], deadlines: Deadlines) -> None:
        """Start nothing yet.

        Args:
            manufacturer: The only one that a process may speak for.
            command: Program and arguments; which cards to read, how often and whereto is added.
            deadlines: How long each line may take.
        """
        self.manufacturer = manufacturer
        self.deadlines = deadlines
        self._command = (*command, "--period", str(deadlines.period_s))
        self._alive: set[Child] = set()
        self._killed: set[Child] = set()

    @property
    def exhausted(self) -> bool:
        """Whether so many killed processes live on that no more may be started."""
        return len(self._killed) >= STUCK_LIMIT

    async def start(self, selection: Selection) -> Child:
        """Start a process that reads these devices.

        Raises:
            OSError: It could not be started.
        """
        async with asyncio.timeout(self.deadlines.open_s):  # TimeoutError is an OSError
            child = await Child.start([*self._command, *selection.arguments], self._forget)
        if not child.exited:
            self._alive.add(child)
        return child

    def kill(self, child: Child) -> None:
        """Kill one, if it lives. Does not wait."""
        if child in self._alive:
            self._alive.discard(child)
            self._killed.add(child)
        child.kill()

    async def end(self) -> None:
        """Kill all and let go of them, in well below a second."""
        for child in tuple(self._alive):
            self.kill(child)
        leaving = tuple(self._killed)
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + _PARTING_S
        for child in leaving:
            await child.wait(deadline_s - loop.time())
        for child in leaving:
            child.abandon()
        self._killed.clear()

    def _forget(self, child: Child) -> None:
        self._alive.discard(child)
        self._killed.discard(child)
