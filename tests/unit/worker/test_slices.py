"""Long work in short slices: others get their turn between any two of them."""

import asyncio
from collections.abc import Iterator

import pytest

from devicemanager.worker.slices import SLICE_S, Slices
from tests.timing import FakeClock

pytestmark = pytest.mark.asyncio


class Work:
    """Steps that each take a while of a clock that a test sets."""

    def __init__(self, step_s: float) -> None:
        self.clock = FakeClock()
        self.step_s = step_s

    def step(self, number: int) -> int:
        self.clock.advance(self.step_s)
        return 10 * number


async def longest_wait_s(work: Work, *tasks: "asyncio.Task[list[int]]") -> float:
    """The longest that another task waits for its turn until all of these are done."""
    longest_s = 0.0
    while not all(task.done() for task in tasks):
        before_s = work.clock.monotonic()
        await asyncio.sleep(0)
        longest_s = max(longest_s, work.clock.monotonic() - before_s)
    return longest_s


async def test_the_results_come_in_order() -> None:
    work = Work(0.001)

    assert await Slices(work.clock).map(work.step, range(50)) == [10 * number for number in range(50)]
    assert await Slices(work.clock).map(work.step, []) == []


async def test_the_loop_is_held_for_no_longer_than_a_slice_and_a_step() -> None:
    work = Work(0.001)
    async with asyncio.TaskGroup() as tasks:
        long = tasks.create_task(Slices(work.clock).map(work.step, range(1000)))
        waited_s = await longest_wait_s(work, long)

    assert waited_s <= SLICE_S + work.step_s
    assert len(long.result()) == 1000


async def test_many_that_share_one_take_turns() -> None:
    work = Work(0.001)
    slices = Slices(work.clock)
    async with asyncio.TaskGroup() as tasks:
        all_of_them = [tasks.create_task(slices.map(work.step, range(200))) for _ in range(20)]
        waited_s = await longest_wait_s(work, *all_of_them)

    assert waited_s <= SLICE_S + work.step_s


async def test_many_short_ones_take_turns_too() -> None:
    work = Work(0.001)
    slices = Slices(work.clock)
    async with asyncio.TaskGroup() as tasks:
        all_of_them = [tasks.create_task(slices.map(work.step, range(2))) for _ in range(200)]
        waited_s = await longest_wait_s(work, *all_of_them)

    assert waited_s <= SLICE_S + work.step_s


async def test_a_short_one_does_not_wait_for_the_end_of_a_long_one() -> None:
    work = Work(0.001)
    slices = Slices(work.clock)
    async with asyncio.TaskGroup() as tasks:
        long = tasks.create_task(slices.map(work.step, range(1000)))
        await asyncio.sleep(0)
        await slices.map(work.step, [1])
        assert not long.done()
        assert work.clock.monotonic() - 1000 < 0.05


async def test_the_work_of_an_iterator_counts_too() -> None:
    work = Work(0)

    def slow() -> Iterator[int]:
        for number in range(100):
            work.clock.advance(0.001)
            yield number

    async with asyncio.TaskGroup() as tasks:
        long = tasks.create_task(Slices(work.clock).map(work.step, slow()))
        waited_s = await longest_wait_s(work, long)

    assert 0 < waited_s <= SLICE_S + 0.001


async def test_one_that_fails_or_is_cancelled_does_not_delay_the_next() -> None:
    work = Work(0.001)
    slices = Slices(work.clock)

    def fail(number: int) -> int:
        raise ValueError(number)

    with pytest.raises(ValueError, match="7"):
        await slices.map(fail, [7])
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await slices.map(work.step, range(10**6))

    assert await slices.map(work.step, [1]) == [10]
