"""Every request the stand-in cluster received, so that tests can count them and wait for them."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from devicemanager.demo.cluster.request_info import RequestInfo

_WAIT_DEADLINE_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Request:
    """One request.

    Attributes:
        verb: As authorization sees it: ``get``, ``list``, ``watch``, ``create``.
        path: Decoded, without the query.
        target: The resource as rules spell it; empty for paths that name none.
        user: Who sent it; empty when the credential was invalid.
        query: The first value of each parameter.
        asked: What authorization was asked to allow.
    """

    verb: str
    path: str
    target: str
    user: str
    query: Mapping[str, str]
    asked: RequestInfo


class RequestLog:
    """Requests in order of arrival."""

    def __init__(self) -> None:
        self.entries: list[Request] = []
        self._arrived = asyncio.Event()

    def record(self, request: Request) -> None:
        """Add a request and wake :meth:`wait_for`."""
        self.entries.append(request)
        self._arrived.set()
        self._arrived = asyncio.Event()

    def clear(self) -> None:
        """Forget all requests."""
        self.entries.clear()

    def matching(
        self,
        target: str | None = None,
        *,
        verb: str | None = None,
        user: str | None = None,
        path: str | None = None,
    ) -> list[Request]:
        """The requests that match everything that is given."""
        return [
            entry
            for entry in self.entries
            if target in {None, entry.target}
            and verb in {None, entry.verb}
            and user in {None, entry.user}
            and path in {None, entry.path}
        ]

    async def wait_for(
        self, count: int, target: str | None = None, *, verb: str | None = None, user: str | None = None
    ) -> list[Request]:
        """Wait until that many requests match.

        Raises:
            TimeoutError: Fewer did within 10 s.
        """
        async with asyncio.timeout(_WAIT_DEADLINE_S):
            while len(found := self.matching(target, verb=verb, user=user)) < count:
                await self._arrived.wait()
        return found
