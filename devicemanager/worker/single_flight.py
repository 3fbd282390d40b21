"""A cache with one call in flight per key, shared by all callers; its answer is kept for a time.

A flight does not end with a caller that leaves or is cancelled. Answers and flights are bounded in number, and
answers in bytes. A peer that misbehaves may be in back-off for a while; its callers get its failure meanwhile.

Longer than 300 lines: what is under way, kept and in back-off is one state, in which one step decides on all three.
"""

import asyncio
import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Set
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Final, Generic, Self, TypeVar

import structlog
from structlog.typing import FilteringBoundLogger

from devicemanager.clock import Clock
from devicemanager.errors import DocumentError, FetchError
from devicemanager.model.usage import SourceState
from devicemanager.transport.failures import unreadable

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

KEEP_AT_MOST: Final = 4096

FLIGHTS_AT_MOST: Final = 4096
"""Under way at once. Flights outlive those who began them, so callers who leave at once could begin any number."""

NOT_ASKED: Final = "; it is not asked again for a while"
"""What callers are told beside the failure of a peer in back-off."""

TOO_LARGE: Final = "its last answer is too large to be kept for others"

LARGEST_PART: Final = 8
"""No answer takes more than one part in so many of what all kept ones may: none empties the cache of the others."""

_SWEEP_S: Final = 1.0
"""How often what is kept is looked through, at most."""

_log: FilteringBoundLogger = structlog.get_logger()


class OverloadedError(FetchError):
    """Too many calls are in flight, or the program is shutting down: nothing was called."""


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


@dataclass(frozen=True, slots=True)
class Keeping(Generic[K, V]):
    """What decides on kept outcomes beside their age and number.

    Attributes:
        most_bytes: Of all kept answers; expired ones go first, then those used longest ago. One that takes more
            than an eighth of it is not kept at all.
        size: What an answer takes, in bytes.
        longer_s: For how long an answer is kept at least, in seconds from when it was asked for. Where it is too
            large for that, its peer is not asked for as long.
        backoff_s: Seconds for which a peer is not asked again after a failure, 0 for not at all; its callers get
            the failure at once. It is given how many failures of the kind there were in a row.
        answering: Who answers for a key, as far as is known. A back-off ends once somebody is there who was not
            when it began.
    """

    most_bytes: float = math.inf
    size: Callable[[V], int] = lambda _: 0
    longer_s: Callable[[V], float] = lambda _: 0.0
    backoff_s: Callable[[K, FetchError, int], float] = lambda *_: 0.0
    answering: Callable[[K], Set[Hashable]] = lambda _: frozenset()


@dataclass(frozen=True, slots=True)
class _Kept(Generic[V]):
    until_s: float
    outcome: V | FetchError
    size: int = 0
    by: Set[Hashable] = frozenset()
    """Who had failed, where it is a failure."""


@dataclass(frozen=True, slots=True)
class _Failed:
    """Failures in a row after which a peer is not asked for a while.

    Attributes:
        by: Who answered, the last time.
    """

    number: int
    by: Set[Hashable]


class Pending(Generic[V]):
    """One caller's view of a call: its answer, or the flight, and how long this caller waits.

    Failures are values, because many callers share one.
    """

    __slots__ = ("_deadline_s", "_ends_s", "_loop", "_source")

    def __init__(self, source: "asyncio.Task[V | FetchError] | V | FetchError", deadline_s: float | None) -> None:
        self._loop = asyncio.get_running_loop()
        self._source = source
        self._deadline_s = deadline_s
        self._ends_s = None if deadline_s is None else self._loop.time() + deadline_s

    async def settled(self, within_s: float | None = None) -> bool:
        """Waits for the end of the flight, at most ``within_s`` seconds and never past the deadline."""
        if not isinstance(self._source, asyncio.Task) or self._source.done():
            return True
        left_s = None if self._ends_s is None else self._ends_s - self._loop.time()
        limits_s = [limit_s for limit_s in (within_s, left_s) if limit_s is not None]
        await asyncio.wait({self._source}, timeout=max(0.0, min(limits_s)) if limits_s else None)
        return self._source.done()

    async def outcome(self) -> V | FetchError:
        """Waits for the answer until the deadline."""
        if not isinstance(self._source, asyncio.Task):
            return self._source
        if not await self.settled():
            return FetchError(SourceState.TIMEOUT, f"no complete answer within {self._deadline_s:.3g} s")
        if self._source.cancelled():
            return OverloadedError(SourceState.UNREACHABLE, "we are shutting down")
        return self._source.result()


class SingleFlightCache(Generic[K, V]):
    """Answers by key. To be entered before use; leaving it ends all flights.

    Args:
        clock: Only its monotonic side is used.
        max_age_s: Seconds for which an answer is given to others, counted from when it was asked for; an answer
            exactly that old is no longer given. 0 keeps nothing: callers then only share what is in flight.
        keep_at_most: Answers kept at once; the one used longest ago goes first.
        flights_at_most: Questions under way at once; one more is refused.
        keeping: What else decides on what is kept.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        max_age_s: float,
        keep_at_most: int = KEEP_AT_MOST,
        flights_at_most: int = FLIGHTS_AT_MOST,
        keeping: Keeping[K, V] | None = None,
    ) -> None:
        self._clock = clock
        self._max_age_s = max_age_s
        self._keep_at_most = keep_at_most
        self._flights_at_most = flights_at_most
        self._keeping: Keeping[K, V] = keeping or Keeping()
        self._kept_bytes = 0
        self._failures: OrderedDict[K, _Failed] = OrderedDict()
        self._tasks = asyncio.TaskGroup()
        self._flights: dict[K, asyncio.Task[V | FetchError]] = {}
        self._kept: dict[K, _Kept[V]] = {}
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
        # No flight fails, so an error of the block is its own, and must not come out in a group of errors.
        await self._tasks.__aexit__(None, None, None)

    def __len__(self) -> int:
        """How many answers are kept."""
        return len(self._kept)

    def known(self, key: K) -> V | FetchError | None:
        """The kept answer that is still good, or the kept failure; None without one."""
        kept = self._good(key)
        if kept is None:
            return None
        self._kept[key] = self._kept.pop(key)  # to the end: dictionaries keep order, and the first goes first
        self.statistics.reused += 1
        return kept.outcome

    def peek(self, key: K) -> V | FetchError | None:
        """What is kept, as for :meth:`known`, without counting as its use."""
        kept = self._good(key)
        return None if kept is None else kept.outcome

    def settled_or_under_way(self, key: K) -> bool:
        """Whether :meth:`join` would begin no flight."""
        return key in self._flights or self._good(key) is not None

    def join(
        self, key: K, fetch: Callable[[], Awaitable[V]], *, deadline_s: float | None = None, keep: bool = True
    ) -> Pending[V]:
        """A fresh kept answer, the flight under way, or a new one. Needs no task of the caller's.

        Args:
            key: What is read.
            fetch: Called, with a deadline of its own, if no call for the key is in flight. Raises FetchError or
                DocumentError.
            deadline_s: Seconds from now that this caller waits; None for as long as it takes. With none left no
                flight is begun.
            keep: Whether the answer of a flight that this call begins may be given to those who ask later.
        """
        known = self.known(key)
        if known is not None:
            return Pending(known, deadline_s)
        if deadline_s is not None and deadline_s <= 0:
            return Pending(FetchError(SourceState.TIMEOUT, "no time was left to ask"), deadline_s)
        flight = self._flights.get(key)
        if flight is None:
            if len(self._flights) >= self._flights_at_most:
                refused = OverloadedError(SourceState.UNREACHABLE, "too many reads are under way")
                return Pending(refused, deadline_s)
            self.statistics.started += 1
            flight = self._flights[key] = self._tasks.create_task(
                # What its first caller counts, as its memory, must not be what a flight of many counts too.
                self._fly(key, fetch, keep=keep),
                context=Context(),
            )
        else:
            self.statistics.joined += 1
        return Pending(flight, deadline_s)

    async def get(
        self, key: K, fetch: Callable[[], Awaitable[V]], *, deadline_s: float | None = None, keep: bool = True
    ) -> V:
        """The answer, as for :meth:`join`.

        Raises:
            OverloadedError: Too many other questions are under way, or we are shutting down.
            FetchError: Asking failed, or this caller's time is over (``timeout``). A failure is kept for nobody,
                unless it is a lasting one.
        """
        outcome = await self.join(key, fetch, deadline_s=deadline_s, keep=keep).outcome()
        if isinstance(outcome, FetchError):
            raise outcome.again() from outcome
        return outcome

    def forget(self, key: K) -> None:
        """Drops a kept answer, so that the next caller gets a new one; a flight under way goes on."""
        kept = self._kept.pop(key, None)
        self._kept_bytes -= 0 if kept is None else kept.size

    def forget_if(self, key: K, outdated: Callable[[V], bool]) -> None:
        """Drops a kept answer, not a kept failure, of which this is true."""
        kept = self._kept.get(key)
        if kept is not None and not isinstance(kept.outcome, FetchError) and outdated(kept.outcome):
            self.forget(key)

    def _good(self, key: K) -> "_Kept[V] | None":
        kept = self._kept.get(key)
        if kept is None or self._clock.monotonic() >= kept.until_s:
            return None
        if isinstance(kept.outcome, FetchError) and not self._keeping.answering(key) <= kept.by:
            self._failures.pop(key, None)
            self.forget(key)
            return None
        return kept

    async def _fly(self, key: K, fetch: Callable[[], Awaitable[V]], *, keep: bool) -> V | FetchError:
        started_s = self._clock.monotonic()
        try:
            outcome = await self._outcome(key, fetch)
        finally:
            del self._flights[key]
        if isinstance(outcome, FetchError):
            self.statistics.failed += 1
            if keep:
                self._keep_failure(key, outcome)
            return outcome
        self._failures.pop(key, None)
        if keep:
            self._keep_answer(key, outcome, started_s)
        return outcome

    def _keep_answer(self, key: K, answer: V, started_s: float) -> None:
        longer_s, size = self._keeping.longer_s(answer), self._keeping.size(answer)
        age_s = max(self._max_age_s, longer_s)
        if size <= self._keeping.most_bytes / LARGEST_PART:
            if age_s > 0:
                self._keep(key, _Kept(started_s + age_s, answer, size))
            return
        self.forget(key)
        if longer_s > 0:  # to read it again for each caller would cost everybody time
            refused = FetchError(SourceState.INVALID, TOO_LARGE + NOT_ASKED)
            self._keep(key, _Kept(started_s + longer_s, refused, by=self._keeping.answering(key)))

    def _keep_failure(self, key: K, failure: FetchError) -> None:
        """Keep a failure after which its peer is not asked for a while, or that is a lasting one."""
        before, by = self._failures.get(key), self._keeping.answering(key)
        number = 1 if before is None or not by <= before.by else before.number + 1
        backoff_s = self._keeping.backoff_s(key, failure, number)
        if backoff_s > 0:
            self._failures[key] = _Failed(number, by)
            self._failures.move_to_end(key)
            if len(self._failures) > KEEP_AT_MOST:
                self._failures.popitem(last=False)
        kept_s = max(backoff_s, self._max_age_s if failure.lasting else 0.0)
        if kept_s > 0:
            kept = failure.again(NOT_ASKED) if backoff_s > 0 else failure
            self._keep(key, _Kept(self._clock.monotonic() + kept_s, kept, by=by))

    async def _outcome(self, key: K, fetch: Callable[[], Awaitable[V]]) -> V | FetchError:
        try:
            return await fetch()
        except FetchError as error:
            return error
        except DocumentError as error:
            return unreadable(error)
        except Exception:  # noqa: BLE001 - the boundary of one question: our fault in one must not end all
            _log.exception("shared_read_failed", key=str(key))
            return FetchError(SourceState.INVALID, "the read failed for a reason of our own; see the log")

    def _keep(self, key: K, kept: "_Kept[V]") -> None:
        self.forget(key)
        self._kept[key] = kept
        self._kept_bytes += kept.size
        if self._is_over:
            self._drop_expired()
        while self._is_over:
            self.forget(next(iter(self._kept)))
        if self._sweeper is None and self._kept:
            self._sweep_in(max(self._max_age_s, _SWEEP_S))

    def _sweep_in(self, delay_s: float) -> None:
        self._sweeper = asyncio.get_running_loop().call_later(delay_s, self._sweep)

    @property
    def _is_over(self) -> bool:
        return len(self._kept) > self._keep_at_most or self._kept_bytes > self._keeping.most_bytes

    def _drop_expired(self) -> None:
        now_s = self._clock.monotonic()
        for key in [key for key, kept in self._kept.items() if kept.until_s <= now_s]:
            self.forget(key)

    def _sweep(self) -> None:
        self._drop_expired()
        self._sweeper = None
        if self._kept:
            self._sweep_in(max(self._max_age_s, _SWEEP_S))


class SharedReads(SingleFlightCache[K, V]):
    """The cache of what one function reads.

    Args:
        fetch: Reads one peer, within a deadline of its own. Raises FetchError.
        clock: As for :class:`SingleFlightCache`, and so all that follow.
    """

    def __init__(
        self,
        fetch: Callable[[K], Awaitable[V]],
        clock: Clock,
        *,
        max_age_s: float,
        keep_at_most: int = KEEP_AT_MOST,
        flights_at_most: int = FLIGHTS_AT_MOST,
        keeping: Keeping[K, V] | None = None,
    ) -> None:
        super().__init__(
            clock,
            max_age_s=max_age_s,
            keep_at_most=keep_at_most,
            flights_at_most=flights_at_most,
            keeping=keeping,
        )
        self._fetch = fetch

    def begin(self, key: K, *, deadline_s: float) -> Pending[V]:
        """As :meth:`SingleFlightCache.join`."""
        return self.join(key, partial(self._fetch, key), deadline_s=deadline_s)

    async def read(self, key: K, *, deadline_s: float) -> V:
        """As :meth:`SingleFlightCache.get`."""
        return await self.get(key, partial(self._fetch, key), deadline_s=deadline_s)
