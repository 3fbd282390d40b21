"""A whole collection, listed in pages, in bounded memory and with a bounded number of requests."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import msgspec
import structlog

from devicemanager.clock import Clock, SystemClock
from devicemanager.errors import DocumentError, FetchError
from devicemanager.model.usage import SourceState
from devicemanager.serving.log_rate import RateLimitedLog
from devicemanager.transport.body_memory import BodyMemory
from devicemanager.transport.document_limits import BODY_BYTES
from devicemanager.transport.failures import unreadable
from devicemanager.wire import kubernetes
from devicemanager.worker.cluster import Cluster
from devicemanager.worker.slices import Slices

T = TypeVar("T")

PAGE_ITEMS: Final = 250
"""Objects per page: a pod with its managed fields is 5 to 30 KiB."""

PAGE_LIMIT_BYTES: Final = BODY_BYTES

LIST_LIMIT_ITEMS: Final = 50_000
"""Objects in one list: five times the nodes of the largest cluster that Kubernetes supports."""

PAGES_LIMIT: Final = 2 * LIST_LIMIT_ITEMS // PAGE_ITEMS
"""Pages of one list: an API server may fill them by half."""


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """A collection as it was read, and the version from which a watch may go on.

    Attributes:
        cut: Why the rest of it is missing, one line; None when it is whole.
    """

    items: tuple[T, ...]
    resource_version: str
    cut: str | None = None


class Lister:
    """Lists collections of one API server.

    Args:
        cluster: Where they live.
        clock: Limits the lines in the log.
        slices: In which pages are read; None for own ones.
        bodies: Counts what pages take; None for an own one.
    """

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock | None = None,
        slices: Slices | None = None,
        bodies: BodyMemory | None = None,
    ) -> None:
        self._cluster = cluster
        self._slices = slices or Slices(clock)
        self._bodies = bodies or BodyMemory(PAGE_LIMIT_BYTES)
        self._rated = RateLimitedLog(structlog.get_logger().bind(), (clock or SystemClock()).monotonic)

    async def list(
        self,
        path: str,
        read: Callable[[bytes], T],
        params: Mapping[str, str] | None = None,
        *,
        deadline_s: float = 30.0,
    ) -> Listing[T]:
        """All objects of a collection, page by page, so that no more than one page is held as JSON.

        A list that is too long, or does not end, is cut short, and says so.

        Args:
            path: Of the collection.
            read: Makes something of an object's JSON; one for which it raises a DocumentError is logged and left
                out.
            params: Label and field selectors.
            deadline_s: For all pages together.

        Raises:
            FetchError: As :meth:`~devicemanager.worker.cluster.ClusterClient.fetch` does.
        """
        items: list[T] = []
        pages: set[str] = set()
        query = {**(params or {}), "limit": str(PAGE_ITEMS)}

        def add(item: msgspec.Raw) -> None:
            try:
                items.append(read(bytes(item)))
            except DocumentError as error:
                self._rated.write(logging.WARNING, "listed_object_unreadable", cause=str(error))

        try:
            async with asyncio.timeout(deadline_s):
                while True:
                    with self._bodies.api_server.holding():
                        body = await self._cluster.get(
                            path, query, deadline_s=deadline_s, limit_bytes=PAGE_LIMIT_BYTES
                        )
                        page = await self._slices.run(kubernetes.parse_list_page_in_steps(body))
                        await self._slices.map(add, page.items or ())
                    following = page.metadata.continue_
                    cut = _cut(len(items), following, pages)
                    if cut is not None:
                        self._rated.write(logging.WARNING, "list_cut_short", cause=cut, path=path)
                    if cut is not None or not following:
                        return Listing(tuple(items[:LIST_LIMIT_ITEMS]), page.metadata.resource_version, cut)
                    pages.add(following)
                    query["continue"] = following
        except TimeoutError as error:
            raise FetchError(SourceState.TIMEOUT, f"no complete list within {deadline_s:.3g} s") from error
        except DocumentError as error:
            raise unreadable(error) from error


def _cut(items: int, following: str, pages: set[str]) -> str | None:
    """Why a list ends here although it goes on; None where it may go on, or is at its end."""
    if items > LIST_LIMIT_ITEMS or (following and items == LIST_LIMIT_ITEMS):
        return f"more than {LIST_LIMIT_ITEMS} objects"
    if following in pages:
        return "it goes on with a page that was read before"
    if following and len(pages) + 1 >= PAGES_LIMIT:
        return f"more than {PAGES_LIMIT} pages"
    return None
