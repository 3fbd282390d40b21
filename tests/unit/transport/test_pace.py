"""Many connections that are to begin together begin one after the other."""

import asyncio

import pytest

from devicemanager.transport.pace import AT_ONCE, INTERVAL_S, Pace

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime(start=100.0)]


async def begun_at_s(pace: Pace, count: int) -> list[float]:
    """When each of so many that come together gets its turn, from now on."""
    loop = asyncio.get_running_loop()
    now_s = loop.time()

    async def begin() -> float:
        await pace.turn()
        return loop.time() - now_s

    async with asyncio.TaskGroup() as tasks:
        begun = [tasks.create_task(begin()) for _ in range(count)]
    return [each.result() for each in begun]


async def test_the_first_few_begin_at_once_and_the_others_one_by_one() -> None:
    moments_s = await begun_at_s(Pace(), 108)

    assert moments_s[:AT_ONCE] == [0] * AT_ONCE
    assert moments_s[-1] == pytest.approx((108 - 1 - AT_ONCE) * INTERVAL_S, abs=0.01)
    assert moments_s == sorted(moments_s)


async def test_after_a_while_some_may_begin_at_once_again_and_no_more_than_before() -> None:
    pace = Pace()
    await begun_at_s(pace, 50)
    await asyncio.sleep(60)
    moments_s = await begun_at_s(pace, 108)

    assert moments_s[:AT_ONCE] == [0] * AT_ONCE
    assert moments_s[-1] == pytest.approx((108 - 1 - AT_ONCE) * INTERVAL_S, abs=0.01)
