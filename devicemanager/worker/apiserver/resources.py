"""Reading the usage of one kind of workload: of one, or of a list of them.

Callers have been authorized. Callers that ask for a workload while it is being read share the read, the
answer and its bytes; nothing is kept after that.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self, TypeVar

from devicemanager.clock import Clock
from devicemanager.errors import FetchError
from devicemanager.model.usage import SourceState, WorkloadUsage
from devicemanager.wire.workload_objects import WorkloadObject
from devicemanager.worker.apiserver import status, warning_headers
from devicemanager.worker.apiserver.attributes import Attributes
from devicemanager.worker.apiserver.in_flight import InFlightLimiter, TooManyInFlightError
from devicemanager.worker.apiserver.negotiation import Form, Shape
from devicemanager.worker.apiserver.paging import Page
from devicemanager.worker.apiserver.parameters import LONGEST_DEADLINE_S, ListParameters, ReadParameters
from devicemanager.worker.apiserver.rendering import Continuation, Renderer
from devicemanager.worker.apiserver.selectors import Selection
from devicemanager.worker.apiserver.status import StatusError
from devicemanager.worker.outcomes import (
    Answer,
    DeadlineExceeded,
    ListOutcome,
    ListResult,
    NotFound,
    Outcome,
    Reader,
    Unavailable,
)
from devicemanager.worker.single_flight import SharedReads
from devicemanager.worker.slices import Slices

Item = TypeVar("Item", WorkloadObject, WorkloadUsage)
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

RENDERED_AT_ONCE: Final = 2
"""Lists that are made into bytes at once: one of 5,000 workloads with 8 cards each has 20 MiB."""

_BUSY: Final = "too many reads are under way; try again in a moment"


@dataclass(frozen=True, slots=True)
class Reply:
    """A good answer, ready to be sent."""

    body: bytes
    warnings: Sequence[str] = ()


@dataclass(slots=True)
class _SharedOutcome:
    """How a read ended, and its answer as an object, made once.

    Attributes:
        object_reply: Encoded once for all who share the read.
    """

    outcome: Outcome
    object_reply: Reply | None = None


@dataclass(frozen=True, slots=True)
class _ListRequest:
    """What a list asks for. Callers with equal requests share a list.

    Attributes:
        namespace: None for all.
        selection: Which objects of it.
        page: Which part of those.
    """

    namespace: str | None
    selection: Selection
    page: Page

    def selects(self, item: WorkloadObject | WorkloadUsage) -> bool:
        """Whether this one is asked for."""
        return self.selection.matches(item.namespace, item.name, item.labels)

    def cut(self, items: Sequence[Item]) -> tuple[list[Item], Continuation]:
        """The part of those selected that is asked for, and what is left behind it."""
        part, following, remaining = self.page.cut(items)
        return part, Continuation() if following is None else Continuation(following.encode(), remaining)


@dataclass(frozen=True, slots=True)
class _SharedList:
    """A list, and what is left behind it."""

    result: ListResult
    continuation: Continuation


class ResourceHandler:
    """Answers for one kind of workload. To be entered before use.

    Args:
        reader: Reads workloads of this kind.
        renderer: Makes the bytes.
        limiter: In front of all reads, of every kind.
        clock: For the ages that tables show.
        observe: Told of each usage read, for the worker's own metrics.
    """

    def __init__(
        self,
        reader: Reader,
        renderer: Renderer,
        limiter: InFlightLimiter,
        clock: Clock,
        observe: Callable[[Iterable[WorkloadUsage]], None] = lambda _: None,
    ) -> None:
        self._reader = reader
        self._renderer = renderer
        self._limiter = limiter
        self._clock = clock
        self._observe = observe
        self._reads: SharedReads[tuple[str, str], _SharedOutcome] = SharedReads(self._read, clock, max_age_s=0)
        self._lists: SharedReads[_ListRequest, _SharedList] = SharedReads(self._list, clock, max_age_s=0)
        self._entered = AsyncExitStack()
        self._slices = Slices(clock)
        self._rendering = asyncio.Semaphore(RENDERED_AT_ONCE)
        self.resource = renderer.workload.resource

    async def __aenter__(self) -> Self:
        await self._entered.enter_async_context(self._reads)
        await self._entered.enter_async_context(self._lists)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._entered.aclose()

    async def get(self, attributes: Attributes, parameters: ReadParameters) -> Reply:
        """One workload.

        Raises:
            StatusError: With what went wrong.
        """
        with self._slot():
            shared = await self._shared(attributes, parameters.deadline_s)
        if not isinstance(shared.outcome, Answer):
            raise _error(attributes, shared.outcome)
        return self._one(shared, shared.outcome.usage, parameters.form)

    async def list_(self, attributes: Attributes, parameters: ListParameters) -> Reply:
        """The workloads of a namespace, or of all.

        Raises:
            StatusError: With what went wrong.
        """
        with self._slot():
            usages, continuation, warnings = await self._selected(attributes, parameters)
        form, now = parameters.form, self._clock.now()
        async with self._rendering:
            items = await self._slices.map(lambda usage: self._renderer.item(usage, form, now), usages)
            body = self._renderer.collection(items, form, continuation)
        return Reply(body, _headers(warnings))

    def _one(self, shared: _SharedOutcome, usage: WorkloadUsage, form: Form) -> Reply:
        if form.shape is Shape.OBJECT and shared.object_reply is not None:
            return shared.object_reply
        body = self._renderer.one(usage, form, self._clock.now())
        reply = Reply(body, _headers(warning_headers.of_usage(usage)))
        if form.shape is Shape.OBJECT:
            shared.object_reply = reply
        return reply

    async def _selected(
        self, attributes: Attributes, parameters: ListParameters
    ) -> tuple[Sequence[WorkloadUsage], Continuation, Sequence[str]]:
        """What a list selects, and what is missing. Only that is read."""
        request = _ListRequest(attributes.namespace or None, parameters.selection, parameters.page)
        if attributes.namespace and attributes.name:
            shared = await self._shared(attributes, parameters.deadline_s)
            match shared.outcome:
                case Answer(usage):
                    usages, continuation = request.cut([usage] if request.selects(usage) else [])
                    return usages, continuation, warning_headers.of_usage(usage)
                case NotFound():
                    return [], Continuation(), []
                case _:
                    pass  # it exists and has no figures: only the list knows how to show that
        listed = await self._together(attributes, self._lists, self._list, request, parameters.deadline_s)
        result = listed.result
        if not isinstance(result, ListOutcome):
            raise _error(attributes, result)
        return result.items, listed.continuation, result.warnings

    async def _shared(self, attributes: Attributes, deadline_s: float | None) -> _SharedOutcome:
        key = (attributes.namespace, attributes.name)
        return await self._together(attributes, self._reads, self._read, key, deadline_s)

    async def _together(
        self,
        attributes: Attributes,
        reads: SharedReads[K, V],
        read: Callable[[K, float | None], Awaitable[V]],
        key: K,
        deadline_s: float | None,
    ) -> V:
        """One read shared by equal requests; a caller with a deadline of its own gets its own.

        Its read must give up slow sources sooner than the others' would.
        """
        if deadline_s is not None:
            return await read(key, deadline_s)
        try:
            return await reads.read(key, deadline_s=LONGEST_DEADLINE_S)
        except FetchError as error:
            # Readers do not fail but by their outcome: what is left is the deadline, and a fault of ours.
            if error.state is SourceState.TIMEOUT:
                raise status.timed_out(attributes, error.message) from error
            raise status.internal_error(error.message) from error

    async def _read(self, key: tuple[str, str], deadline_s: float | None = None) -> _SharedOutcome:
        outcome = await self._reader.read(*key, deadline_s=deadline_s)
        if isinstance(outcome, Answer):
            self._observe([outcome.usage])
        return _SharedOutcome(outcome)

    async def _list(self, request: _ListRequest, deadline_s: float | None = None) -> _SharedList:
        continuation = Continuation()

        def choose(sources: Sequence[WorkloadObject]) -> Sequence[WorkloadObject]:
            nonlocal continuation
            chosen, continuation = request.cut(sources)
            return chosen

        result = await self._reader.list(
            request.namespace, select=request.selects, choose=choose, deadline_s=deadline_s
        )
        return _SharedList(result, continuation)

    @contextmanager
    def _slot(self) -> Iterator[None]:
        try:
            with self._limiter.slot():
                yield
        except TooManyInFlightError as error:
            raise status.too_many_requests(_BUSY) from error


def _error(attributes: Attributes, outcome: NotFound | Unavailable | DeadlineExceeded) -> StatusError:
    match outcome:
        case NotFound():
            return status.not_found(attributes)
        case Unavailable(message):
            return status.service_unavailable(attributes, message)
        case DeadlineExceeded(message):
            return status.timed_out(attributes, message)


def _headers(warnings: Iterable[str]) -> tuple[str, ...]:
    return tuple(warning_headers.warning_header(text) for text in warning_headers.bounded(warnings))
