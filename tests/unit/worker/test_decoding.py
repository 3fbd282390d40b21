"""A body that takes long is decoded beside the loop, and one that holds too much fails for a while."""

import asyncio
import threading

import pytest

from devicemanager.errors import DocumentError, ExcessError, FetchError
from devicemanager.model.usage import SourceState
from devicemanager.worker.decoding import LONG_BODY_BYTES, Decoding
from devicemanager.worker.slices import SLICE_S, Slices
from tests.timing import FakeClock

pytestmark = pytest.mark.asyncio


@pytest.mark.parametrize(("size", "on_the_loop"), [(LONG_BODY_BYTES, True), (LONG_BODY_BYTES + 1, False)])
async def test_only_a_long_body_leaves_the_loop(size: int, on_the_loop: bool) -> None:
    threads = []

    def decode(body: bytes) -> int:
        threads.append(threading.current_thread())
        return len(body)

    assert await Decoding()(decode, b" " * size) == size
    assert (threads == [threading.main_thread()]) is on_the_loop


@pytest.mark.parametrize(("error", "lasting"), [(DocumentError("bad"), False), (ExcessError("bad"), True)])
@pytest.mark.parametrize("size", [1, LONG_BODY_BYTES + 1])
async def test_what_cannot_be_used_is_invalid_and_too_much_of_it_lasting(
    error: DocumentError, lasting: bool, size: int
) -> None:
    def decode(_: bytes) -> int:
        raise error

    with pytest.raises(FetchError, match="bad") as caught:
        await Decoding()(decode, b" " * size)
    assert (caught.value.state, caught.value.lasting) == (SourceState.INVALID, lasting)


async def test_the_answers_of_many_peers_are_decoded_in_turn() -> None:
    """A list's peers answer all at once: nothing else must wait until the last of them is decoded."""
    decoding, clock = Decoding(), FakeClock()
    decoding._slices = Slices(clock)
    turns_of_others = 0

    def decode(_: bytes) -> None:
        clock.advance(0.001)

    async with asyncio.TaskGroup() as tasks:
        reads = [tasks.create_task(decoding(decode, b"{}")) for _ in range(500)]
        reads += [tasks.create_task(decoding.on_the_loop(decode, b" " * 10**6)) for _ in range(500)]
        while not all(read.done() for read in reads):
            await asyncio.sleep(0)
            turns_of_others += 1

    assert turns_of_others >= 1000 * 0.001 / SLICE_S
