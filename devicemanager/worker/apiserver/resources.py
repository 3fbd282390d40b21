"""Reading what was asked for: one Instance, or a list of them.

Whoever comes here has been authorized. Readers of one Instance who come while a read of it is under way share that
read, its answer and its bytes; nothing is kept once the last of them has it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

from devicemanager.clock import Clock
from devicemanager.errors import FetchError
from devicemanager.model.usage import InstanceUsage, SourceState
from devicemanager.worker.apiserver import status, warning_headers
from devicemanager.worker.apiserver.attributes import Attributes
from devicemanager.worker.apiserver.concurrency import AtCapacityError, Cap
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
from devicemanager.worker.shared_reads import SharedReads

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
        self._lists: SharedReads[str | None, ListResult] = SharedReads(self._list, clock, max_age_s=0)
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
            usages, warnings = await self._selected(attributes, parameters)
        page, next_page, remaining = parameters.page.cut(usages)
        continuation = Continuation(next_page.encode(), remaining) if next_page is not None else Continuation()
        body = self._renderer.many(page, parameters.form, self._clock.now(), continuation)
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
    ) -> tuple[Sequence[InstanceUsage], Sequence[str]]:
        """What a list selects, and what it lacks. A list of one named Instance reads nothing of the others."""
        if attributes.namespace and attributes.name:
            shared = await self._shared(attributes, parameters.deadline_s)
            match shared.outcome:
                case Answer(usage):
                    return _matching([usage], parameters.selection), warning_headers.of_usage(usage)
                case NotFound():
                    return [], []
                case _:
                    pass  # it exists and has no figures: only the list knows how to show that
        result = await self._listed(attributes, parameters.deadline_s)
        match result:
            case Unavailable(message):
                raise Refusal(status.service_unavailable(attributes, message))
            case DeadlineExceeded(message):
                raise Refusal(status.timed_out(attributes, message))
            case outcome:
                return _matching(outcome.items, parameters.selection), outcome.warnings

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

    async def _listed(self, attributes: Attributes, deadline_s: float | None) -> ListResult:
        namespace = attributes.namespace or None
        if deadline_s is not None:
            return await self._reader.list(namespace, deadline_s=deadline_s)
        try:
            return await self._lists.read(namespace, deadline_s=LONGEST_DEADLINE_S)
        except FetchError as error:
            raise Refusal(_failure(attributes, error)) from error

    async def _read(self, key: tuple[str, str]) -> _Shared:
        outcome = await self._reader.read(*key)
        self._observe_outcome(outcome)
        return _Shared(outcome)

    async def _list(self, namespace: str | None) -> ListResult:
        return await self._reader.list(namespace)

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


def _matching(usages: Iterable[InstanceUsage], selection: Selection) -> list[InstanceUsage]:
    return [usage for usage in usages if selection.matches(usage.namespace, usage.name, usage.labels)]


def _headers(warnings: Iterable[str]) -> tuple[str, ...]:
    return tuple(warning_headers.warning_header(text) for text in warning_headers.bounded(warnings))
