"""Long work on the event loop in short slices, so that nothing else waits for more than one of them.

A thread would not help: all of it is Python code or holds the interpreter's lock, and threads only add the wait for
that lock.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from devicemanager.clock import Clock, SystemClock
from devicemanager.wire.steps import Steps

SLICE_S: Final = 0.005
"""After which others get their turn; a step that is under way is finished first."""

T = TypeVar("T")
R = TypeVar("R")


class Slices:
    """Does many small steps, giving way between them. All who share one take turns: their slices do not add up.

    Args:
        clock: Only its monotonic side is used.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._turn = asyncio.Lock()
        self._ends_s = float("-inf")

    async def map(self, step: Callable[[T], R], items: Iterable[T]) -> list[R]:
        """What ``step`` makes of each item, in their order.

        Args:
            step: Must be short: it is the least that others wait for.
            items: Taken one by one, so that the work of an iterator counts too.
        """
        return await self.run(_each(step, items))

    async def run(self, steps: Steps[R]) -> R:
        """The result of work in steps, each of which must be short."""
        try:
            while True:
                async with self._turn:
                    if self._clock.monotonic() >= self._ends_s:
                        await asyncio.sleep(0)  # with the turn, so that nobody else begins another slice
                        self._ends_s = self._clock.monotonic() + SLICE_S
                    while True:
                        next(steps)
                        if self._clock.monotonic() >= self._ends_s:
                            break
        except StopIteration as ended:
            result: R = ended.value
            return result


def _each(step: Callable[[T], R], items: Iterable[T]) -> Steps[list[R]]:
    done: list[R] = []
    for item in items:
        done.append(step(item))
        yield
    return done
