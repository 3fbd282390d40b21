"""Sends a request again that failed for a reason that may have passed, within its deadline and without storms.

Only for requests that change nothing: a peer may have acted on an attempt whose answer was lost.
"""

import asyncio
import random
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection
from typing import Final, TypeAlias

import aiohttp

from devicemanager.rules import retries
from devicemanager.transport.messages import Received, Request

PEERS_REMEMBERED: Final = 4096
"""Peers that failed lately; of more, the one that failed longest ago is forgotten, and may be retried again."""

_MARGIN_S: Final = 0.02
"""Between the end of the last attempt and the deadline, so that the failure is told and not that time ran out."""

Peer: TypeAlias = tuple[str | None, int | None, str | None]
"""Host, port, and who answers behind them; None for the host itself, whoever is behind it."""

Failure: TypeAlias = Received | aiohttp.ClientError | ConnectionError


class Retries:
    """Retries requests, each peer's against a budget of its own, and all of one host's against its host's.

    Args:
        retry_refused: Whether a refused connection is tried again too: not where somebody else can be asked.
        jitter: Gives random numbers from 0..1.
    """

    def __init__(self, *, retry_refused: bool, jitter: Callable[[], float] = random.random) -> None:
        self._retry_refused = retry_refused
        self._jitter = jitter
        self._budgets: OrderedDict[Peer, int] = OrderedDict()  # those that are not full

    async def answer(
        self, request: Request, send: Callable[[Request], Awaitable[Received]], ends_s: float
    ) -> Received:
        """The first answer that is no retryable failure; when there is none in time, the last failure.

        Args:
            request: What is asked.
            send: Makes one attempt.
            ends_s: The deadline, in the loop's time. The caller enforces it for the first attempt.

        Raises:
            aiohttp.ClientError, ConnectionError: What the last attempt raised.
        """
        loop = asyncio.get_running_loop()
        failure = await self._attempt(request, send)
        for failures in range(1, retries.ATTEMPTS):
            retry_after_s = self._retry_after_s(failure, request.retryable)
            if retry_after_s is None or not self._may_retry(request):
                break
            pause_s = retries.pause_s(failures, self._jitter(), retry_after_s)
            if loop.time() + pause_s >= ends_s - _MARGIN_S:
                break
            await asyncio.sleep(pause_s)
            try:
                async with asyncio.timeout_at(ends_s - _MARGIN_S):
                    failure = await self._attempt(request, send)
            except TimeoutError:
                break
        if isinstance(failure, Received):
            return failure
        raise failure

    async def _attempt(self, request: Request, send: Callable[[Request], Awaitable[Received]]) -> Failure:
        """The answer of one attempt, good or bad, or how it failed."""
        outcome: Failure
        try:
            outcome = await send(request)
        except (aiohttp.ClientError, ConnectionError) as error:
            outcome = error
        failed = self._retry_after_s(outcome, request.retryable) is not None
        self._note(_backend(request), failed=failed)
        self._note(_host(request), failed=failed and not isinstance(outcome, Received))
        return outcome

    def _may_retry(self, request: Request) -> bool:
        """Whether neither the backend nor the host in front of it has failed too often."""
        return all(retries.may_retry(self._budget(peer)) for peer in (_backend(request), _host(request)))

    def _retry_after_s(self, failure: Failure, retryable: Collection[int]) -> float | None:
        """Seconds that the peer wants to be left alone for; None for what will not be different in a moment."""
        match failure:
            case Received():
                return (failure.retry_after_s or 0.0) if failure.status in retryable else None
            case aiohttp.ClientSSLError():
                return None
            case aiohttp.ClientConnectorError():
                return 0.0 if self._retry_refused else None
            case aiohttp.ClientConnectionError() | aiohttp.ClientPayloadError() | ConnectionError():
                return 0.0
            case _:
                return None

    def _budget(self, peer: Peer) -> int:
        return self._budgets.get(peer, retries.FULL_BUDGET)

    def _note(self, peer: Peer, *, failed: bool) -> None:
        budget = retries.budget_after(self._budget(peer), failed=failed)
        self._budgets.pop(peer, None)
        if budget < retries.FULL_BUDGET:
            self._budgets[peer] = budget
            if len(self._budgets) > PEERS_REMEMBERED:
                self._budgets.popitem(last=False)


def _backend(request: Request) -> Peer:
    return request.url.host, request.url.port, request.backend


def _host(request: Request) -> Peer:
    """Fails where there is no answer at all: then a hundred nodes behind it need not be tried four times each."""
    return request.url.host, request.url.port, None
