"""Where the bus has cards that the library must count. Looked at rarely: it is hundreds of files."""

from collections.abc import Callable, Sequence
from typing import Final

from devicemanager.clock import Clock
from devicemanager.node.blocking import BlockingCalls

LOOK_EVERY_S: Final = 300.0
"""And whenever the library counts another number of cards."""


class BusWatch:
    """Remembers what the bus had, as long as nothing suggests that it has changed."""

    def __init__(self, read: Callable[[], Sequence[str]], calls: BlockingCalls, clock: Clock) -> None:
        """Look at nothing yet.

        Args:
            read: Reads the bus; may hang.
            calls: Makes that call.
            clock: For how long it is remembered.
        """
        self._read = read
        self._calls = calls
        self._clock = clock
        self._count: int | None = None
        self._until_s = 0.0
        self._addresses: Sequence[str] = ()

    def due(self, count: int) -> bool:
        """Whether the bus is to be looked at, for so many cards that the library counts."""
        return count != self._count or self._clock.monotonic() >= self._until_s

    async def addresses(self, count: int, deadline_s: float) -> Sequence[str]:
        """The addresses; none while the bus cannot be read within ``deadline_s`` seconds."""
        if self.due(count):
            self._count, self._until_s = count, self._clock.monotonic() + LOOK_EVERY_S
            try:
                self._addresses = await self._calls.run(self._read, deadline_s)
            except OSError:  # TimeoutError is one
                self._addresses = ()
        return self._addresses
