"""How much of the whole is left."""

import asyncio

import pytest

from devicemanager.worker.deadlines import DEADLINES, Countdown


@pytest.mark.asyncio
@pytest.mark.looptime(start=50.0)
async def test_a_countdown_runs_out_and_never_below_nothing() -> None:
    left = Countdown(10)
    assert (left.left_s, left.at_most(4), left.over) == (10, 4, False)

    await asyncio.sleep(7)
    assert (left.left_s, left.at_most(4), left.at_most(2), left.over) == (3, 3, 2, False)

    await asyncio.sleep(5)
    assert (left.left_s, left.at_most(4), left.over) == (0, 0, True)


def test_the_parts_fit_into_the_whole() -> None:
    slowest_sources_s = max(DEADLINES.kubelet_s, DEADLINES.hedge_s + DEADLINES.fallback_s)

    assert DEADLINES.api_s + slowest_sources_s <= DEADLINES.whole_s
    assert DEADLINES.device_manager_s <= slowest_sources_s
