"""The memory that bodies of peers take together while they arrive and are decoded.

A part of it is the API server's own, so that objects are read whatever kubelets and device managers send. In either
part the beginning of a body has room that the rest of longer ones may not take: no short body waits for a long one.

A body without room waits before more of it is read: its peer waits too, and then the read's deadline ends it. One
body of all may go beyond the limit, so that there is always one that comes to its end. While bodies wait, those are
given up whose peers hold room and hardly send anything.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final

from devicemanager.errors import FetchError
from devicemanager.model.usage import SourceState
from devicemanager.transport import peer_time

SHORT_BYTES: Final = 256 * 1024
"""So much of each body counts as its beginning. A summary of 110 pods has 200 KiB, a snapshot of 16 cards 8."""

API_SERVER: Final = 4
"""One part in so many is the API server's own."""

LONG: Final = 2
"""One part in so many of a share is for what comes after the beginnings of bodies."""

ONE_BODY: Final = 4
"""One part in so many of a share is the most that one body takes after its beginning, but for the one beyond."""

STALLED_S: Final = 1.0
PROGRESS: Final = 16
"""A body has stalled that has not grown by one part in so many within that time, and has not waited for us."""

_LOOKED_AFTER_S: Final = 0.25
"""How often bodies that stalled are looked for while others wait."""

_holder: ContextVar["BodyHolder | None"] = ContextVar("body_holder", default=None)


class BodyMemory:
    """Counts what bodies take: never more than the limit, and one body.

    Args:
        limit_bytes: Of all together, but for the rest of the one that may go beyond.

    Attributes:
        api_server: For bodies that are the API server's own. They are never given up, and go beyond first.
        peers: For bodies of kubelets, device managers and whatever else answers behind the API server.
    """

    def __init__(self, limit_bytes: int) -> None:
        own_bytes = limit_bytes // API_SERVER
        self.api_server = Share(self, own_bytes)
        self.peers = Share(self, limit_bytes - own_bytes)
        self._beyond: BodyHolder | None = None
        self._waiting: list[_Waiting] = []
        self._arriving: set[BodyHolder] = set()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def held_bytes(self) -> int:
        """What all bodies take now."""
        beyond = 0 if self._beyond is None else self._beyond.beyond_bytes
        return self.api_server.held_bytes + self.peers.held_bytes + beyond

    async def take(self, holder: "BodyHolder", size: int) -> None:
        """Wait for room."""
        if not self._waiting and self._give(holder, size):
            return
        waiting = _Waiting(holder, size)
        self._waiting.append(waiting)
        try:
            self.grant()
            with peer_time.not_counted():
                await waiting.granted
        finally:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
            holder.note_progress()

    def release(self, holder: "BodyHolder") -> None:
        """Take back all that a holder has."""
        holder.share.held_bytes -= holder.held_bytes
        holder.share.long_bytes -= holder.long_bytes
        if self._beyond is holder:
            self._beyond = None
        self.grant()

    def grant(self) -> None:
        """Let those go on for whom there is room, in the order in which they came."""
        self._waiting = [each for each in self._waiting if not self._goes_on(each)]
        if self._waiting and self._beyond is None:
            first = next((each for each in self._waiting if each.holder.share is self.api_server), self._waiting[0])
            self._beyond = first.holder
            self._waiting = [each for each in self._waiting if not self._goes_on(each)]
        if self._waiting and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_LOOKED_AFTER_S, self._relieve)

    def _goes_on(self, waiting: "_Waiting") -> bool:
        if not waiting.granted.done():
            if not self._give(waiting.holder, waiting.size):
                return False
            waiting.granted.set_result(None)
        return True

    def _give(self, holder: "BodyHolder", size: int) -> bool:
        if holder.ended:
            return True
        if self._beyond is holder:
            holder.beyond_bytes += size
            return True
        share = holder.share
        long = size - min(size, max(0, SHORT_BYTES - holder.held_bytes))
        if share.held_bytes + size > share.limit_bytes:
            return False
        if long and not (
            share.long_bytes + long <= share.limit_bytes // LONG
            and holder.long_bytes + long <= share.limit_bytes // ONE_BODY
        ):
            return False
        holder.held_bytes += size
        holder.long_bytes += long
        share.held_bytes += size
        share.long_bytes += long
        return True

    def follow(self, holder: "BodyHolder", *, arrives: bool) -> None:
        """Note that a body arrives, or does so no longer: only while it does it can be given up."""
        if arrives and holder.share is self.peers:
            self._arriving.add(holder)
        else:
            self._arriving.discard(holder)

    def _relieve(self) -> None:
        """Give up bodies that stalled, the largest first, until there will be room for the peers that wait.

        And the one that is beyond, where the API server has waited for that place for long.
        """
        self._timer = None
        now_s = asyncio.get_running_loop().time()
        wanted = sum(each.size for each in self._waiting if each.holder.share is self.peers)
        waits = {each.holder for each in self._waiting}
        stalled = [each for each in self._arriving - waits if each.has_stalled(now_s)]
        for holder in sorted(stalled, key=lambda each: each.all_bytes, reverse=True):
            if wanted > 0:
                wanted -= holder.all_bytes
                holder.give_up(by_peer=True)
        beyond = self._beyond
        late = any(
            each.holder.share is self.api_server and now_s - each.since_s >= STALLED_S for each in self._waiting
        )
        if late and beyond is not None and beyond in self._arriving:
            beyond.give_up(by_peer=beyond.has_stalled(now_s))
        if self._waiting:
            self._timer = asyncio.get_running_loop().call_later(_LOOKED_AFTER_S, self._relieve)


class Share:
    """A part of the memory, for bodies of one kind.

    Attributes:
        held_bytes: What all bodies of the kind take of it.
        long_bytes: What of that came after their beginnings.
    """

    def __init__(self, memory: BodyMemory, limit_bytes: int) -> None:
        self._memory = memory
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self.long_bytes = 0

    @contextmanager
    def holding(self) -> Iterator[None]:
        """Count what is read in this block, until its end: what is made of the bodies belongs into it too."""
        holder = BodyHolder(self._memory, self)
        token = _holder.set(holder)
        try:
            yield
        finally:
            _holder.reset(token)
            holder.ended = True
            self._memory.release(holder)


class BodyHolder:
    """What one read holds.

    Attributes:
        held_bytes: Of its share.
        long_bytes: What of that came after the beginning.
        beyond_bytes: Beyond the limit.
        ended: It takes nothing any longer; a task that it began may still try to.
    """

    def __init__(self, memory: BodyMemory, share: Share) -> None:
        self._memory = memory
        self._patience: asyncio.Timeout | None = None
        self._given_up_by_peer: bool | None = None
        self._progress_bytes = 0
        self._progress_s = 0.0
        self.share = share
        self.held_bytes = 0
        self.long_bytes = 0
        self.beyond_bytes = 0
        self.ended = False

    @property
    def all_bytes(self) -> int:
        """Within the limit and beyond."""
        return self.held_bytes + self.beyond_bytes

    async def take(self, size: int) -> None:
        """Wait for room for so much more."""
        await self._memory.take(self, size)
        if self.all_bytes * PROGRESS >= self._progress_bytes * (PROGRESS + 1):
            self.note_progress()

    def note_progress(self) -> None:
        """The peer has done its part until now."""
        self._progress_bytes, self._progress_s = self.all_bytes, asyncio.get_running_loop().time()

    def has_stalled(self, now_s: float) -> bool:
        """Whether its peer sends hardly anything."""
        return now_s - self._progress_s >= STALLED_S

    def give_up(self, *, by_peer: bool) -> None:
        """End the read of the body that arrives."""
        if self._patience is not None and self._given_up_by_peer is None:
            self._given_up_by_peer = by_peer
            self._patience.reschedule(asyncio.get_running_loop().time())

    @asynccontextmanager
    async def arriving(self) -> AsyncIterator[None]:
        """As :func:`arriving`."""
        self.note_progress()
        self._memory.follow(self, arrives=True)
        try:
            async with asyncio.timeout(None) as self._patience:
                yield
        except TimeoutError as error:
            if self._given_up_by_peer is None:
                raise
            said = "its answer came too slowly while others waited for memory"
            raise FetchError(SourceState.TIMEOUT, said, by_peer=self._given_up_by_peer) from error
        finally:
            self._patience = None
            self._memory.follow(self, arrives=False)


@dataclass(eq=False, slots=True)
class _Waiting:
    holder: BodyHolder
    size: int
    since_s: float = field(default_factory=lambda: asyncio.get_running_loop().time())
    granted: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


@asynccontextmanager
async def arriving() -> AsyncIterator[None]:
    """A block in which one body arrives.

    Raises:
        FetchError: ``timeout``, where its peer holds room for others and hardly sends anything.
    """
    holder = _holder.get()
    if holder is None:
        yield
        return
    async with holder.arriving():
        yield


async def take(size: int) -> None:
    """Wait for room for so much more of a body, where bodies are counted at all."""
    holder = _holder.get()
    if holder is not None:
        await holder.take(size)
