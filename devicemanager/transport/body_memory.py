"""The memory that bodies of peers take together while they arrive and are decoded.

Beyond the limit a body waits for room before more of it is read: its peer waits too, and then the read's deadline
ends it. One body may go beyond, whichever has waited longest, so that there is always one that comes to its end.
"""

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_holder: ContextVar["BodyHolder | None"] = ContextVar("body_holder", default=None)


class BodyMemory:
    """Counts what bodies take.

    Args:
        limit_bytes: Of all together, but for the rest of the one that may go beyond.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._free = limit_bytes
        self._beyond: BodyHolder | None = None
        self._waiting: deque[tuple[BodyHolder, int, asyncio.Future[None]]] = deque()

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Count what is read in this block, until its end: what is made of the bodies belongs into it too."""
        holder = BodyHolder(self)
        token = _holder.set(holder)
        try:
            yield
        finally:
            _holder.reset(token)
            self._free += holder.held_bytes
            if self._beyond is holder:
                self._beyond = None
            self._grant()

    async def take(self, holder: "BodyHolder", size: int) -> None:
        """Wait for room."""
        if self._beyond is holder or (size <= self._free and not self._waiting):
            self._give(holder, size)
            return
        granted = asyncio.get_running_loop().create_future()
        waiting = (holder, size, granted)
        self._waiting.append(waiting)
        try:
            self._grant()
            await granted
        except BaseException:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
            raise

    def _grant(self) -> None:
        while self._waiting:
            holder, size, granted = self._waiting[0]
            if size > self._free:
                if self._beyond is not None:
                    return
                self._beyond = holder
            self._waiting.popleft()
            self._give(holder, size)
            if not granted.done():
                granted.set_result(None)

    def _give(self, holder: "BodyHolder", size: int) -> None:
        self._free -= size
        holder.held_bytes += size


class BodyHolder:
    """What one read holds."""

    def __init__(self, memory: BodyMemory) -> None:
        self._memory = memory
        self.held_bytes = 0

    async def take(self, size: int) -> None:
        """Wait for room for so much more."""
        await self._memory.take(self, size)


async def take(size: int) -> None:
    """Wait for room for so much more of a body, where bodies are counted at all."""
    holder = _holder.get()
    if holder is not None:
        await holder.take(size)
