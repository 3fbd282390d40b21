"""Bodies of all peers together take no more memory than they may, and one of them always comes to its end."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from devicemanager.transport import body_memory
from devicemanager.transport.body_memory import BodyMemory

pytestmark = pytest.mark.asyncio


class Read:
    """A task that reads a body, as far as it is told."""

    def __init__(self, memory: BodyMemory, tasks: asyncio.TaskGroup) -> None:
        self._wanted: asyncio.Queue[int] = asyncio.Queue()
        self.held_bytes = 0
        self.task = tasks.create_task(self._read(memory))

    async def _read(self, memory: BodyMemory) -> None:
        with memory.holding():
            while size := await self._wanted.get():
                await body_memory.take(size)
                self.held_bytes += size

    async def wants(self, size: int) -> int:
        """What it holds after a while; it waits where that is not more by ``size``. 0 ends it."""
        self._wanted.put_nowait(size)
        for _ in range(5):
            await asyncio.sleep(0)
        return self.held_bytes


class Reads:
    """Reads that share 100 bytes."""

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        self._memory, self._tasks = BodyMemory(100), tasks
        self.all: list[Read] = []

    def begin(self) -> Read:
        read = Read(self._memory, self._tasks)
        self.all.append(read)
        return read


@pytest_asyncio.fixture
async def reads() -> AsyncIterator[Reads]:
    async with asyncio.TaskGroup() as tasks:
        begun = Reads(tasks)
        yield begun
        for read in begun.all:
            read.task.cancel()


async def test_within_the_limit_nobody_waits(reads: Reads) -> None:
    assert await reads.begin().wants(60) == 60
    assert await reads.begin().wants(40) == 40


async def test_beyond_it_one_body_goes_on_and_the_others_wait_for_its_end(reads: Reads) -> None:
    first, second, third = reads.begin(), reads.begin(), reads.begin()
    await first.wants(90)
    assert await second.wants(50) == 50
    assert await second.wants(70) == 120
    assert await third.wants(20) == 0
    assert await first.wants(1) == 90

    await second.wants(0)
    assert (third.held_bytes, first.held_bytes) == (20, 90)
    assert await third.wants(30) == 50
    await third.wants(0)
    assert await first.wants(5) == 96


async def test_what_a_read_holds_is_free_again_when_it_ends_fails_or_is_cancelled(reads: Reads) -> None:
    first, second = reads.begin(), reads.begin()
    await first.wants(100)
    await second.wants(100)
    first.task.cancel()
    second.task.cancel()
    await asyncio.sleep(0)
    for _ in range(3):
        again = reads.begin()
        assert await again.wants(100) == 100
        await again.wants(0)


async def test_one_that_gives_up_waiting_does_not_hold_up_the_next(reads: Reads) -> None:
    first, beyond, impatient, patient = (reads.begin() for _ in range(4))
    await first.wants(100)
    await beyond.wants(10)
    await impatient.wants(50)
    await patient.wants(60)
    impatient.task.cancel()
    await first.wants(0)

    assert await patient.wants(10) == 70
    assert await patient.wants(20) == 90


async def test_outside_of_a_read_nothing_is_counted() -> None:
    await body_memory.take(1 << 40)
