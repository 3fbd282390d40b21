"""Calls that may block for ever: files of a kernel that has a fault. A call that hangs costs one thread, once.

The threads are daemons, which keep no process from ending, and are not those of the event loop, which every other
part of the program shares.
"""

import asyncio
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Outcome(Generic[T]):
    value: T | None
    error: Exception | None

    def get(self) -> T:
        if self.error is not None:
            raise self.error
        return self.value  # type: ignore[return-value]  # there is one where there is no error


class BlockingCalls:
    """Makes one blocking call at a time. While one hangs, the others fail at once."""

    def __init__(self, what: str) -> None:
        """Start nothing yet.

        Args:
            what: What the calls read, as a message says it.
        """
        self._what = what
        self._under_way = False

    async def run(self, call: Callable[[], T], deadline_s: float) -> T:
        """The result of a call.

        Raises:
            OSError: As the call raises it, or there is no thread to be had.
            TimeoutError: It takes longer than ``deadline_s`` seconds, or one before it still does.
        """
        if self._under_way:
            raise TimeoutError(f"{self._what}: an earlier read does not end")
        loop = asyncio.get_running_loop()
        finished: asyncio.Future[_Outcome[T]] = loop.create_future()

        def settle(outcome: _Outcome[T]) -> None:
            self._under_way = False
            if not finished.done():
                finished.set_result(outcome)

        def work() -> None:
            outcome = _outcome(call)
            try:
                loop.call_soon_threadsafe(settle, outcome)
            except RuntimeError:
                return  # the loop is closed: nobody waits any more

        self._under_way = True
        try:
            _start(work, self._what)
        except OSError:
            self._under_way = False
            raise
        try:
            async with asyncio.timeout(deadline_s):
                return (await finished).get()
        except TimeoutError:
            if finished.done() and not finished.cancelled():
                raise  # the call's own
            raise TimeoutError(f"{self._what}: not read within {deadline_s:g} s") from None


def within(call: Callable[[], T], deadline_s: float, what: str) -> T:
    """The result of a blocking call, for a program whose event loop does not run yet.

    Raises:
        OSError: As the call raises it, or there is no thread to be had.
        TimeoutError: It takes longer than ``deadline_s`` seconds.
    """
    outcomes: queue.SimpleQueue[_Outcome[T]] = queue.SimpleQueue()
    _start(lambda: outcomes.put(_outcome(call)), what)
    try:
        return outcomes.get(timeout=deadline_s).get()
    except queue.Empty:
        raise TimeoutError(f"{what}: not read within {deadline_s:g} s") from None


def _outcome(call: Callable[[], T]) -> _Outcome[T]:
    try:
        return _Outcome(call(), None)
    except Exception as error:  # noqa: BLE001 - raised again where the result is wanted
        return _Outcome(None, error)


def _start(work: Callable[[], None], what: str) -> None:
    try:
        threading.Thread(target=work, name=what, daemon=True).start()
    except RuntimeError as error:  # as Python says that the system has no thread left
        raise OSError(f"{what}: {error}") from error
