"""Answers about callers, remembered for seconds: who a token is, who may do what.

Bounded in entries and in questions under way; one question per key at a time, whoever asks. A question is not tied
to the request that asked first: that one may go away, the others still get an answer. Failures are not remembered.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Generic, Self, TypeVar

from devicemanager.clock import Clock

DEFAULT_TTL_S: Final = 10.0
"""What generic API servers use, for yes and for no."""

DEFAULT_CAPACITY: Final = 8192
DEFAULT_IN_FLIGHT: Final = 256

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class OverloadedError(Exception):
    """Too many questions are under way, or we are shutting down; there is no answer."""


@dataclass(frozen=True, slots=True)
class _Failed:
    """A question that ended in an error, carried as a value: nobody may be left to take an exception."""

    error: Exception


class Verdicts(Generic[Key, Value]):
    """A cache that asks. To be entered before use; leaving it ends all questions.

    Args:
        clock: Time for the entries' age.
        ttl_s: Seconds that an answer is good for, from the moment it arrived.
        capacity: Answers kept; the one used longest ago goes first.
        in_flight: Questions under way at most.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        ttl_s: float = DEFAULT_TTL_S,
        capacity: int = DEFAULT_CAPACITY,
        in_flight: int = DEFAULT_IN_FLIGHT,
    ) -> None:
        self._tasks = asyncio.TaskGroup()
        self._clock = clock
        self._ttl_s = ttl_s
        self._capacity = capacity
        self._in_flight = in_flight
        self._answers: dict[Key, tuple[float, Value]] = {}
        self._flights: dict[Key, asyncio.Task[Value | _Failed]] = {}

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for flight in self._flights.values():
            flight.cancel()
        # None of these tasks fails, so an error of the block is its own: it must not come out as a group of errors.
        await self._tasks.__aexit__(None, None, None)

    def __len__(self) -> int:
        return len(self._answers)

    def known(self, key: Key) -> Value | None:
        """The remembered answer, if it is still good."""
        found = self._answers.pop(key, None)
        if found is None or self._clock.monotonic() >= found[0]:
            return None
        self._answers[key] = found  # to the end: dictionaries keep order, and the first is dropped first
        return found[1]

    async def get(self, key: Key, ask: Callable[[], Awaitable[Value]], *, remember: bool = True) -> Value:
        """The remembered answer, or the one that asking gives.

        Raises:
            OverloadedError: Too many other questions are under way, or we are shutting down.
            Exception: Whatever ``ask`` raised.
        """
        known = self.known(key)
        if known is not None:
            return known
        flight = self._flights.get(key)
        if flight is None:
            if len(self._flights) >= self._in_flight:
                raise OverloadedError
            flight = self._flights[key] = self._tasks.create_task(self._ask(key, ask, remember=remember))
        await asyncio.wait({flight})
        if flight.cancelled():
            raise OverloadedError
        answer = flight.result()
        if isinstance(answer, _Failed):
            raise answer.error
        return answer

    async def _ask(self, key: Key, ask: Callable[[], Awaitable[Value]], *, remember: bool) -> Value | _Failed:
        try:
            answer = await ask()
        except Exception as error:  # noqa: BLE001 - handed to those who wait; it must not end the task group
            return _Failed(error)
        else:
            if remember:
                self._remember(key, answer)
            return answer
        finally:
            del self._flights[key]

    def _remember(self, key: Key, answer: Value) -> None:
        while len(self._answers) >= self._capacity:
            del self._answers[next(iter(self._answers))]
        self._answers[key] = (self._clock.monotonic() + self._ttl_s, answer)
