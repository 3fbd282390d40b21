"""Reading what was asked for: one Instance, or a list of them.

Whoever comes here has been authorized. Readers of one Instance who come while a read of it is under way share that
read, its answer and its bytes; nothing is kept once the last of them has it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self, TypeVar

from devicemanager.clock import Clock
from devicemanager.errors import FetchError
from devicemanager.model.usage import InstanceUsage, SourceState
from devicemanager.wire.instances import Instance
from devicemanager.worker.apiserver import status, warning_headers
from devicemanager.worker.apiserver.attributes import Attributes
from devicemanager.worker.apiserver.concurrency import AtCapacityError, Cap
from devicemanager.worker.apiserver.paging import Page
from devicemanager.worker.apiserver.parameters import LONGEST_DEADLINE_S, ListParameters, ReadParameters
from devicemanager.worker.apiserver.rendering import Continuation, Form, Renderer
from devicemanager.worker.apiserver.selectors import Selection
from devicemanager.worker.apiserver.status import Failure, Refusal
from devicemanager.worker.outcomes import (
    Answer,
    DeadlineExceeded,
    ListResult,
    NotFound,
    Outcome,
    Reader,
    Unavailable,
)
from devicemanager.worker.single_flight import SharedReads

Item = TypeVar("Item", Instance, InstanceUsage)

_BUSY: Final = "too many reads are under way; try again in a moment"


@dataclass(frozen=True, slots=True)
class Reply:
    """A good answer, ready to be sent."""

    body: bytes
    content_type: str
    warnings: Sequence[str] = ()


@dataclass(slots=True)
class _Shared:
    """An answer and, once somebody asked for it, its plain form.

    Attributes:
        plain: Body and warnings, encoded once for all who share the answer.
    """

    outcome: Outcome
    plain: Reply | None = field(default=None)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A list that callers may share.

    Attributes:
        namespace: None for all.
        selection: Which objects of it.
        page: Which part of those.
    """

    namespace: str | None
    selection: Selection
    page: Page

    def part(self, items: Iterable[Item]) -> tuple[list[Item], Continuation]:
        """What is wanted of these, and what is left behind it."""
        selected = [item for item in items if self.selection.matches(item.namespace, item.name, item.labels)]
        part, following, remaining = self.page.cut(selected)
        return part, Continuation() if following is None else Continuation(following.encode(), remaining)


@dataclass(frozen=True, slots=True)
class _Listed:
    """A list, and what is left behind it."""

    result: ListResult
    continuation: Continuation


class Resources:
    """The resources of the API group. To be entered before use.

    Args:
        reader: The use case.
        renderer: Makes the bytes.
        cap: In front of all reads.
        clock: For the ages that tables show.
        observe: Told of each usage read, for the worker's own metrics.
    """

    def __init__(
        self,
        reader: Reader,
        renderer: Renderer,
        cap: Cap,
        clock: Clock,
        observe: Callable[[Iterable[InstanceUsage]], None] = lambda _: None,
    ) -> None:
        self._reader = reader
        self._renderer = renderer
        self._cap = cap
        self._clock = clock
        self._observe = observe
        self._reads: SharedReads[tuple[str, str], _Shared] = SharedReads(self._read, clock, max_age_s=0)
        self._lists: SharedReads[_Wanted, _Listed] = SharedReads(self._list, clock, max_age_s=0)
        self._entered = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._entered.enter_async_context(self._reads)
        await self._entered.enter_async_context(self._lists)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._entered.aclose()

    async def get(self, attributes: Attributes, parameters: ReadParameters) -> Reply:
        """One Instance.

        Raises:
            Refusal: With what went wrong.
        """
        with self._slot():
            shared = await self._shared(attributes, parameters.deadline_s)
        match shared.outcome:
            case Answer(usage):
                return self._one(shared, usage, parameters.form)
            case NotFound():
                raise Refusal(status.not_found(attributes))
            case Unavailable(message):
                raise Refusal(status.service_unavailable(attributes, message))
            case DeadlineExceeded(message):
                raise Refusal(status.timed_out(attributes, message))

    async def list_(self, attributes: Attributes, parameters: ListParameters) -> Reply:
        """The Instances of a namespace, or of all.

        Raises:
            Refusal: With what went wrong.
        """
        with self._slot():
            usages, continuation, warnings = await self._selected(attributes, parameters)
        body = self._renderer.many(usages, parameters.form, self._clock.now(), continuation)
        return Reply(body, parameters.form.representation.encoding, _headers(warnings))

    def _one(self, shared: _Shared, usage: InstanceUsage, form: Form) -> Reply:
        if form.is_plain and shared.plain is not None:
            return shared.plain
        body = self._renderer.one(usage, form, self._clock.now())
        reply = Reply(body, form.representation.encoding, _headers(warning_headers.of_usage(usage)))
        if form.is_plain:
            shared.plain = reply
        return reply

    async def _selected(
        self, attributes: Attributes, parameters: ListParameters
    ) -> tuple[Sequence[InstanceUsage], Continuation, Sequence[str]]:
        """What a list selects, and what it lacks. Nothing is read of what it does not select."""
        wanted = _Wanted(attributes.namespace or None, parameters.selection, parameters.page)
        if attributes.namespace and attributes.name:
            shared = await self._shared(attributes, parameters.deadline_s)
            match shared.outcome:
                case Answer(usage):
                    usages, continuation = wanted.part([usage])
                    return usages, continuation, warning_headers.of_usage(usage)
                case NotFound():
                    return [], Continuation(), []
                case _:
                    pass  # it exists and has no figures: only the list knows how to show that
        listed = await self._listed(attributes, wanted, parameters.deadline_s)
        match listed.result:
            case Unavailable(message):
                raise Refusal(status.service_unavailable(attributes, message))
            case DeadlineExceeded(message):
                raise Refusal(status.timed_out(attributes, message))
            case outcome:
                return outcome.items, listed.continuation, outcome.warnings

    async def _shared(self, attributes: Attributes, deadline_s: float | None) -> _Shared:
        """A caller in more of a hurry than we are reads alone: its read must give up the slow sources sooner."""
        if deadline_s is not None:
            outcome = await self._reader.read(attributes.namespace, attributes.name, deadline_s=deadline_s)
            self._observe_outcome(outcome)
            return _Shared(outcome)
        try:
            return await self._reads.read((attributes.namespace, attributes.name), deadline_s=LONGEST_DEADLINE_S)
        except FetchError as error:
            raise Refusal(_failure(attributes, error)) from error

    async def _listed(self, attributes: Attributes, wanted: _Wanted, deadline_s: float | None) -> _Listed:
        if deadline_s is not None:
            return await self._list(wanted, deadline_s)
        try:
            return await self._lists.read(wanted, deadline_s=LONGEST_DEADLINE_S)
        except FetchError as error:
            raise Refusal(_failure(attributes, error)) from error

    async def _read(self, key: tuple[str, str]) -> _Shared:
        outcome = await self._reader.read(*key)
        self._observe_outcome(outcome)
        return _Shared(outcome)

    async def _list(self, wanted: _Wanted, deadline_s: float | None = None) -> _Listed:
        continuation = Continuation()

        def choose(instances: Sequence[Instance]) -> Sequence[Instance]:
            nonlocal continuation
            chosen, continuation = wanted.part(instances)
            return chosen

        result = await self._reader.list(wanted.namespace, choose=choose, deadline_s=deadline_s)
        return _Listed(result, continuation)

    def _observe_outcome(self, outcome: Outcome) -> None:
        if isinstance(outcome, Answer):
            self._observe([outcome.usage])

    @contextmanager
    def _slot(self) -> Iterator[None]:
        try:
            with self._cap.slot():
                yield
        except AtCapacityError as error:
            raise Refusal(status.too_many_requests(_BUSY)) from error


def _failure(attributes: Attributes, error: FetchError) -> Failure:
    """Readers do not fail but by their outcome: what is left is the deadline, and a fault of ours."""
    if error.state is SourceState.TIMEOUT:
        return status.timed_out(attributes, error.message)
    return status.internal_error(error.message)


def _headers(warnings: Iterable[str]) -> tuple[str, ...]:
    return tuple(warning_headers.warning_header(text) for text in warning_headers.bounded(warnings))
