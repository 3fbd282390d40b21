"""A copy of a collection kept current by list and watch, in bounded memory.

The copy holds what ``describe`` makes of an object, not the object. While the API server cannot be reached the last
copy stays, and ``problem`` says since when it is outdated.
"""

import asyncio
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, Generic, NoReturn, TypeVar

import structlog
from structlog.typing import FilteringBoundLogger

from devicemanager.errors import DocumentError, FetchError
from devicemanager.rules import retries
from devicemanager.transport.failures import unreadable
from devicemanager.wire import kubernetes
from devicemanager.worker.cluster import Cluster
from devicemanager.worker.pages import LIST_LIMIT_ITEMS, Lister

T = TypeVar("T")

_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 15.0
_LONGEST_RETRY_AFTER_S: Final = 60.0
"""An API server that asks for more is asked again all the same: what is copied here must not be hours old."""

_GONE: Final = 410

_log: FilteringBoundLogger = structlog.get_logger()


class Reflector(Generic[T]):
    """A current copy of a collection.

    Args:
        cluster: Where it lives.
        path: Of the collection.
        describe: What to remember of an object, from its JSON; None to remember nothing. A DocumentError counts
            as None.
        params: Label and field selectors.
        name: For the log.
        recheck_s: Seconds after which the collection is listed again whatever the watch says; None to trust it.
        changed: Called after each change of ``items``.
        jitter: Gives random numbers from 0..1, so that not all replicas come back at once.
        lister: Of the same API server, shared with others that list; None for an own.
    """

    def __init__(
        self,
        cluster: Cluster,
        path: str,
        describe: Callable[[bytes], T | None],
        *,
        params: Mapping[str, str] | None = None,
        name: str,
        recheck_s: float | None = None,
        changed: Callable[[], None] = lambda: None,
        jitter: Callable[[], float] = random.random,
        lister: Lister | None = None,
    ) -> None:
        self._cluster = cluster
        self._path = path
        self._describe = describe
        self._params = dict(params or {})
        self._name = name
        self._recheck_s = recheck_s
        self._changed = changed
        self._jitter = jitter
        self._opened_s: float | None = None
        self._distrust_s = 0.0
        self._lister = lister or Lister(cluster)
        self._full = False
        self._items: dict[str, T] = {}
        self._recheck_at_s: float | None = None
        self._settled = asyncio.Event()
        self.synced = False
        self.changes = 0
        self.problem: FetchError | None = None

    @property
    def items(self) -> Mapping[str, T]:
        """UID -> description. ``changes`` grows with every change."""
        return self._items

    async def settled(self) -> None:
        """Waits until the first list has come, or has failed; ``synced`` and ``problem`` tell which."""
        await self._settled.wait()

    async def run(self) -> NoReturn:
        """Follows the collection until cancelled."""
        failures, version = 0, ""
        while True:
            # Also after a watch that ended well: a server that ends each at once must not be hammered.
            pause_s = self._pause_s(1)
            try:
                self._opened_s = None
                if not version:
                    version = await self._list()
                version = await self._watch(version)
                failures = 0
            except TimeoutError:  # it is time to list again
                version, pause_s, failures = "", 0, 0
            except FetchError as error:
                if error.status == _GONE:
                    version = ""
                else:
                    failures = 1 if self._lasted else failures + 1
                    pause_s = self._pause_s(failures, error.retry_after_s)
                    self._distrust_s = 0.0 if self._opened_s is None or self._lasted else pause_s
                    self._note(error)
            await asyncio.sleep(pause_s)

    def _pause_s(self, failures: int, retry_after_s: int | None = None) -> float:
        backoff_s = retries.backoff_s(failures, self._jitter(), first_s=_FIRST_PAUSE_S, longest_s=_LONGEST_PAUSE_S)
        return max(backoff_s, min(retry_after_s or 0, _LONGEST_RETRY_AFTER_S))

    @property
    def _lasted(self) -> bool:
        """Whether the watch that has just ended was open for so long that its end is a failure of its own."""
        return self._opened_s is not None and asyncio.get_running_loop().time() - self._opened_s >= _LONGEST_PAUSE_S

    async def _list(self) -> str:
        listing = await self._lister.list(self._path, self._identified, self._params)
        if self._recheck_s is not None:
            self._recheck_at_s = asyncio.get_running_loop().time() + self._recheck_s
        self._items = {uid: value for uid, value in listing.items if uid and value is not None}
        self._full = listing.cut is not None
        self.synced = True
        self._settled.set()
        self._count_change()
        return listing.resource_version

    async def _watch(self, version: str) -> str:
        """The version from which to watch on. Raises TimeoutError when it is time to list again."""
        async with (
            asyncio.timeout_at(self._recheck_at_s),
            self._cluster.watch(self._path, self._params, resource_version=version) as events,
        ):
            with self._recovering():
                async for event in events:
                    try:
                        metadata = kubernetes.parse_metadata(event.object)
                    except DocumentError as error:
                        raise unreadable(error) from error
                    if event.type != "BOOKMARK":
                        self._apply(event.type, metadata.uid, event.object)
                    version = metadata.resource_version or version
        return version

    @contextmanager
    def _recovering(self) -> Iterator[None]:
        """Notes that the watch is open: at once, or after one that was cut off soon only if it lasts longer."""
        loop = asyncio.get_running_loop()
        self._opened_s = loop.time()
        if not self._distrust_s:
            self._trust()
        lasting = loop.call_later(self._distrust_s, self._trust)
        try:
            yield
            self._trust()
        finally:
            lasting.cancel()

    def _trust(self) -> None:
        self._distrust_s = 0.0
        self._note(None)

    def _apply(self, change: str, uid: str, item: bytes) -> None:
        value = None if change == "DELETED" else self._described(item)
        if value is None:
            self._items.pop(uid, None)
        elif uid in self._items or len(self._items) < LIST_LIMIT_ITEMS:
            self._items[uid] = value
        elif not self._full:
            self._full = True
            _log.warning(
                "watched_collection_cut_short",
                collection=self._name,
                reason=f"more than {LIST_LIMIT_ITEMS} objects",
            )
        self._count_change()

    def _count_change(self) -> None:
        self.changes += 1
        self._changed()

    def _identified(self, item: bytes) -> tuple[str, T | None]:
        return kubernetes.parse_metadata(item).uid, self._described(item)

    def _described(self, item: bytes) -> T | None:
        try:
            return self._describe(item)
        except DocumentError as error:
            _log.warning("watched_object_unreadable", collection=self._name, error=str(error))
            return None

    def _note(self, problem: FetchError | None) -> None:
        before, self.problem = self.problem, problem
        if problem is not None:
            self._settled.set()
        if problem is not None and (before is None or before.state != problem.state):
            _log.warning("watch_failed", collection=self._name, state=problem.state, error=str(problem))
        elif problem is None and before is not None:
            _log.info("watch_recovered", collection=self._name)
