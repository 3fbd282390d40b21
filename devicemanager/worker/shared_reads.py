"""One read in flight per peer, shared by all who want it, and kept for as long as its owner calls it fresh.

The flight belongs to nobody who waits: a waiter that leaves, or is cancelled, leaves the others their answer.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Generic, Self, TypeVar

import structlog
from structlog.typing import FilteringBoundLogger

from devicemanager.clock import Clock
from devicemanager.errors import FetchError
from devicemanager.model.usage import SourceState

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

KEEP_AT_MOST: Final = 4096

FLIGHTS_AT_MOST: Final = 4096
"""Under way at once. Flights outlive those who began them, so callers who leave at once could begin any number."""

_log: FilteringBoundLogger = structlog.get_logger()


@dataclass(slots=True)
class Statistics:
    """Counts since the start, for the worker's own metrics.

    Attributes:
        started: Reads sent to a peer.
        joined: Callers who waited for a read that was under way.
        reused: Callers who got a kept answer, or a kept failure.
        failed: Reads that ended without an answer.
    """

    started: int = 0
    joined: int = 0
    reused: int = 0
    failed: int = 0


class Pending(Generic[V]):
    """One caller's view of a read: its answer, or the flight that will bring it, and how long this caller waits.

    Failures are values: they are many callers' at once, and nobody's to handle by surprise.
    """

    __slots__ = ("_deadline_s", "_ends_s", "_loop", "_source")

    def __init__(self, source: "asyncio.Task[V | FetchError] | V | FetchError", deadline_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._source = source
        self._deadline_s = deadline_s
        self._ends_s = self._loop.time() + deadline_s

    async def settled(self, within_s: float) -> bool:
        """Waits for the end of the read, at most ``within_s`` seconds and never past the deadline."""
        if not isinstance(self._source, asyncio.Task) or self._source.done():
            return True
        await asyncio.wait({self._source}, timeout=max(0.0, min(within_s, self._ends_s - self._loop.time())))
        return self._source.done()

    async def outcome(self) -> V | FetchError:
        """Waits for the answer until the deadline."""
        if not isinstance(self._source, asyncio.Task):
            return self._source
        if not await self.settled(self._deadline_s):
            return FetchError(SourceState.TIMEOUT, f"no complete answer within {self._deadline_s:.3g} s")
        if self._source.cancelled():
            return FetchError(SourceState.UNREACHABLE, "we are shutting down")
        return self._source.result()


class SharedReads(Generic[K, V]):
    """Reads by key. To be entered before use; leaving it ends all flights.

    Args:
        fetch: Reads one peer, within a deadline of its own. Raises FetchError.
        clock: Only its monotonic side is used.
        max_age_s: Seconds for which an answer is given to others, counted from the start of its read; an answer
            exactly that old is no longer given. 0 keeps nothing: callers then only share what is in flight.
        keep_at_most: Answers kept at once; the one kept longest goes first.
        flights_at_most: Reads under way at once; one more is refused.
    """

    def __init__(
        self,
        fetch: Callable[[K], Awaitable[V]],
        clock: Clock,
        *,
        max_age_s: float,
        keep_at_most: int = KEEP_AT_MOST,
        flights_at_most: int = FLIGHTS_AT_MOST,
    ) -> None:
        self._fetch = fetch
        self._clock = clock
        self._max_age_s = max_age_s
        self._keep_at_most = keep_at_most
        self._flights_at_most = flights_at_most
        self._tasks = asyncio.TaskGroup()
        self._flights: dict[K, asyncio.Task[V | FetchError]] = {}
        self._kept: dict[K, tuple[float, V | FetchError]] = {}
        self._sweeper: asyncio.TimerHandle | None = None
        self.statistics = Statistics()

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
        for flight in self._flights.values():
            flight.cancel()
        await self._tasks.__aexit__(kind, error, trace)

    def __len__(self) -> int:
        """How many answers are kept."""
        return len(self._kept)

    def begin(self, key: K, *, deadline_s: float) -> "Pending[V]":
        """A kept answer that is fresh, or the flight under way, or a new one. Costs no task of the caller's.

        Args:
            key: Which peer.
            deadline_s: Seconds from now that this caller waits. With none left no flight is begun.
        """
        kept = self._kept.get(key)
        if kept is not None and self._clock.monotonic() - kept[0] < self._max_age_s:
            self.statistics.reused += 1
            return Pending(kept[1], deadline_s)
        if deadline_s <= 0:
            return Pending(FetchError(SourceState.TIMEOUT, "no time was left to ask"), deadline_s)
        flight = self._flights.get(key)
        if flight is None:
            if len(self._flights) >= self._flights_at_most:
                return Pending(FetchError(SourceState.UNREACHABLE, "too many reads are under way"), deadline_s)
            self.statistics.started += 1
            flight = self._flights[key] = self._tasks.create_task(self._fly(key))
        else:
            self.statistics.joined += 1
        return Pending(flight, deadline_s)

    async def read(self, key: K, *, deadline_s: float) -> V:
        """The answer.

        Raises:
            FetchError: The read failed, or this caller's time is over (``timeout``). A failure is kept for nobody,
                unless it is a lasting one.
        """
        outcome = await self.begin(key, deadline_s=deadline_s).outcome()
        if isinstance(outcome, FetchError):
            # Each waiter raises its own: one exception object raised in many tasks collects all their tracebacks.
            raise FetchError(
                outcome.state,
                outcome.message,
                status=outcome.status,
                reason=outcome.reason,
                object_name=outcome.object_name,
                lasting=outcome.lasting,
            ) from outcome
        return outcome

    def forget(self, key: K) -> None:
        """Keeps an answer no longer, so that the next caller reads anew; a read under way goes on."""
        self._kept.pop(key, None)

    async def _fly(self, key: K) -> V | FetchError:
        started_s = self._clock.monotonic()
        try:
            value = await self._fetch(key)
        except FetchError as error:
            self.statistics.failed += 1
            if error.lasting:
                self._keep(key, started_s, error)
            return error
        except Exception:  # noqa: BLE001 - the boundary of one source: our fault in reading one must not end all
            self.statistics.failed += 1
            _log.exception("shared_read_broke", key=str(key))
            return FetchError(SourceState.INVALID, "the read failed for a reason of our own; see the log")
        else:
            self._keep(key, started_s, value)
            return value
        finally:
            del self._flights[key]

    def _keep(self, key: K, started_s: float, value: V | FetchError) -> None:
        if self._max_age_s <= 0:
            return
        self._kept.pop(key, None)
        self._kept[key] = (started_s, value)
        if len(self._kept) > self._keep_at_most:
            del self._kept[next(iter(self._kept))]
        if self._sweeper is None:
            self._sweep_in(self._max_age_s)

    def _sweep_in(self, delay_s: float) -> None:
        self._sweeper = asyncio.get_running_loop().call_later(delay_s, self._sweep)

    def _sweep(self) -> None:
        expired_s = self._clock.monotonic() - self._max_age_s
        for key in [key for key, (started_s, _) in self._kept.items() if started_s <= expired_s]:
            del self._kept[key]
        self._sweeper = None
        if self._kept:
            self._sweep_in(self._max_age_s)
