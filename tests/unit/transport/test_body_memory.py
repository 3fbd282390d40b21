"""Bodies of all peers together take no more memory than they may, and no bad one keeps others from arriving."""

import asyncio
import random
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from devicemanager.errors import FetchError
from devicemanager.model.usage import SourceState
from devicemanager.transport import body_memory
from devicemanager.transport.body_memory import BodyMemory, Share

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]

LIMIT = 400
"""The API server has 100 of it. The peers have 300, and of these 150 for more than the beginnings of bodies."""

SHORT = 10
LONGEST = SHORT + 75
"""Of one body, but for the one beyond the limit."""


class Read:
    """A task that reads a body, as far as it is told."""

    def __init__(self, share: Share, tasks: asyncio.TaskGroup) -> None:
        self._wanted: asyncio.Queue[int] = asyncio.Queue()
        self.held_bytes = 0
        self.failure: FetchError | None = None
        self.task = tasks.create_task(self._read(share))

    async def _read(self, share: Share) -> None:
        try:
            with share.holding():
                async with body_memory.arriving():
                    while size := await self._wanted.get():
                        await body_memory.take(size)
                        self.held_bytes += size
        except FetchError as error:
            self.failure = error

    async def wants(self, size: int) -> int:
        """What it holds after a while; it waits where that is not more by ``size``. 0 ends it."""
        self._wanted.put_nowait(size)
        for _ in range(5):
            await asyncio.sleep(0)
        return self.held_bytes


class Reads:
    """Reads that share :data:`LIMIT` bytes."""

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        self.memory, self._tasks = BodyMemory(LIMIT), tasks
        self.all: list[Read] = []

    def begin(self, share: Share | None = None) -> Read:
        read = Read(share or self.memory.peers, self._tasks)
        self.all.append(read)
        return read

    async def hostile(self) -> list[Read]:
        """Peers that take all the room for long bodies, and the place beyond."""
        reads = [self.begin() for _ in range(2)]
        for read in reads:
            assert await read.wants(LONGEST) == LONGEST
        assert await reads[0].wants(1000) == LONGEST + 1000
        return reads


@pytest_asyncio.fixture
async def reads(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Reads]:
    monkeypatch.setattr(body_memory, "SHORT_BYTES", SHORT)
    async with asyncio.TaskGroup() as tasks:
        begun = Reads(tasks)
        yield begun
        for read in begun.all:
            read.task.cancel()


async def test_within_the_limit_nobody_waits(reads: Reads) -> None:
    assert await reads.begin().wants(60) == 60
    assert await reads.begin().wants(LONGEST) == LONGEST


async def test_beyond_it_one_body_goes_on_and_the_others_wait_for_its_end(reads: Reads) -> None:
    first, second, third = reads.begin(), reads.begin(), reads.begin()
    assert await first.wants(LONGEST) == LONGEST
    assert await first.wants(1000) == LONGEST + 1000
    assert await second.wants(LONGEST + 1) == 0
    assert await third.wants(LONGEST + 2) == 0

    await first.wants(0)
    assert (second.held_bytes, third.held_bytes) == (LONGEST + 1, 0)
    await second.wants(0)
    assert third.held_bytes == LONGEST + 2


async def test_a_short_body_never_waits_for_long_ones(reads: Reads) -> None:
    await reads.hostile()
    assert await reads.begin().wants(LONGEST) == 0  # a long one does

    for _ in range(10):
        short = reads.begin()
        assert await short.wants(6) == 6
        assert await short.wants(4) == 10


async def test_whatever_peers_send_the_api_servers_own_bodies_arrive(reads: Reads) -> None:
    await reads.hostile()
    for _ in range(20):  # short ones too
        await reads.begin().wants(SHORT)

    for _ in range(3):
        assert await reads.begin(reads.memory.api_server).wants(20) == 20


async def test_all_of_it_is_below_the_limit_and_one_body_and_free_again_at_the_end(reads: Reads) -> None:
    chance = random.Random(7)
    longest = 500
    for number in range(300):
        share = reads.memory.api_server if number % 5 == 0 else reads.memory.peers
        read = reads.begin(share)
        left = chance.randrange(1, longest)
        while left > 0:
            size = min(left, chance.randrange(1, 90))
            left -= size
            await read.wants(size)
            assert reads.memory.held_bytes <= LIMIT + longest
        chance.choice(reads.all).task.cancel()
        await chance.choice(reads.all).wants(0)
    for read in reads.all:
        read.task.cancel()
    await asyncio.sleep(0.01)

    assert reads.memory.held_bytes == 0
    assert await reads.begin().wants(LONGEST) == LONGEST


async def test_one_that_gives_up_waiting_does_not_hold_up_the_next(reads: Reads) -> None:
    hostile = await reads.hostile()
    impatient, patient = reads.begin(), reads.begin()
    assert await impatient.wants(50) == await patient.wants(60) == 0
    impatient.task.cancel()
    await hostile[1].wants(0)

    assert patient.held_bytes == 60
    assert await patient.wants(20) == 80


async def test_while_others_wait_the_largest_that_has_stalled_is_given_up(reads: Reads) -> None:
    largest, *others = await reads.hostile()
    waiting = reads.begin()
    assert await waiting.wants(LONGEST) == 0
    for _ in range(8):  # it has stalled, and these have not
        await asyncio.sleep(0.2)
        for other in others:
            await other.wants(1)

    assert largest.failure is not None
    assert (largest.failure.state, largest.failure.by_peer) == (SourceState.TIMEOUT, True)
    assert waiting.held_bytes == LONGEST
    assert [other.failure for other in others] == [None]


async def test_nobody_is_given_up_while_nobody_waits(reads: Reads) -> None:
    hostile = await reads.hostile()
    await asyncio.sleep(60)

    assert [read.failure for read in hostile] == [None] * 2


async def test_what_waits_for_us_has_not_stalled(reads: Reads) -> None:
    """Only the body that may go on, and does not."""
    beyond, waits = await reads.hostile()
    another = reads.begin()
    assert (await waits.wants(1), await another.wants(LONGEST)) == (LONGEST, 0)
    for _ in range(4):
        await asyncio.sleep(0.5)
        await beyond.wants(110)
    assert (beyond.failure, waits.failure) == (None, None)

    await beyond.wants(0)
    assert waits.held_bytes == LONGEST + 1
    assert await reads.begin().wants(LONGEST) == 0
    await asyncio.sleep(0.5)  # it has got its room only now
    assert waits.failure is None


async def test_the_api_server_goes_beyond_before_peers_that_came_first(reads: Reads) -> None:
    beyond, *_ = await reads.hostile()
    peer, page = reads.begin(), reads.begin(reads.memory.api_server)
    assert (await peer.wants(LONGEST + 1), await page.wants(200)) == (0, 0)
    await beyond.wants(0)

    assert (peer.held_bytes, page.held_bytes) == (0, 200)


async def test_a_peer_does_not_keep_the_api_server_from_the_place_beyond(reads: Reads) -> None:
    beyond, *_ = await reads.hostile()
    page = reads.begin(reads.memory.api_server)
    assert await page.wants(200) == 0
    for _ in range(8):
        await asyncio.sleep(0.2)
        await beyond.wants(200)  # it does not stall

    assert page.held_bytes == 200
    assert beyond.failure is not None
    assert not beyond.failure.by_peer


async def test_what_a_read_has_begun_takes_nothing_once_the_read_has_ended(reads: Reads) -> None:
    peers = reads.memory.peers
    begun = asyncio.Event()

    async def late() -> None:
        await begun.wait()
        for _ in range(50):
            await body_memory.take(LIMIT)

    with peers.holding():
        task = asyncio.create_task(late())
        await asyncio.sleep(0)
    begun.set()
    await task

    assert reads.memory.held_bytes == 0
    assert await reads.begin().wants(1000) == 1000  # nobody else is beyond


async def test_what_waits_for_room_when_its_read_ends_takes_nothing_either(reads: Reads) -> None:
    await reads.hostile()
    held_bytes = reads.memory.held_bytes
    with reads.memory.peers.holding():
        task = asyncio.create_task(body_memory.take(LIMIT))
        await asyncio.sleep(0)
    await task

    assert reads.memory.held_bytes == held_bytes


async def test_outside_of_a_read_nothing_is_counted() -> None:
    async with body_memory.arriving():
        await body_memory.take(1 << 40)
