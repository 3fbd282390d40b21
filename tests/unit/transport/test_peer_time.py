"""How much time a peer has had: without the time that it waits for us."""

import asyncio

import pytest

from devicemanager.errors import FetchError
from devicemanager.model.usage import SourceState
from devicemanager.transport import peer_time
from devicemanager.transport.body_memory import BodyMemory, arriving, take
from devicemanager.transport.failures import attempt, within

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]


async def test_a_peer_is_to_blame_once_it_has_had_enough_time() -> None:
    with peer_time.measured():
        await asyncio.sleep(60)  # nobody was asked
        peer_time.begin()
        await asyncio.sleep(0.4)
        with peer_time.not_counted():
            await asyncio.sleep(60)
        await asyncio.sleep(0.4)
        peer_time.end()
        await asyncio.sleep(60)
        assert not peer_time.was_enough()
        peer_time.begin()
        await asyncio.sleep(0.21)
        assert peer_time.was_enough()


async def test_where_nobody_measures_nobody_is_to_blame() -> None:
    peer_time.begin()
    with peer_time.not_counted():
        await asyncio.sleep(60)
    peer_time.end()
    assert not peer_time.was_enough()


@pytest.mark.parametrize("full", [True, False])
async def test_a_body_that_waits_for_memory_until_the_deadline_is_no_fault_of_its_peer(*, full: bool) -> None:
    memory = BodyMemory(100)
    with memory.peers.holding():  # not arriving: it is being decoded
        await take(1000 if full else 1)
        with memory.peers.holding(), peer_time.measured():
            outcome = await attempt(_read())

    assert isinstance(outcome, FetchError)
    assert (outcome.state, outcome.by_peer) == (SourceState.TIMEOUT, not full)


async def _read() -> None:
    async with within(3.0):
        peer_time.begin()
        async with arriving():
            await take(1000)
            await asyncio.sleep(60)
