"""Bodies are decoded in short slices, and one that holds too much fails for a while."""

import asyncio

import pytest

from devicemanager.errors import DocumentError, ExcessError, FetchError
from devicemanager.model.usage import SourceState
from devicemanager.wire.steps import Steps
from devicemanager.worker.decoding import LONG_BODY_BYTES, Decoding
from devicemanager.worker.slices import SLICE_S, Slices
from tests.timing import FakeClock

pytestmark = pytest.mark.asyncio

LONG = b" " * (LONG_BODY_BYTES + 1)


@pytest.mark.parametrize(("error", "lasting"), [(DocumentError("bad"), False), (ExcessError("bad"), True)])
@pytest.mark.parametrize("body", [b"{}", LONG], ids=["short", "long"])
async def test_what_cannot_be_used_is_invalid_and_too_much_of_it_lasting(
    error: DocumentError, lasting: bool, body: bytes
) -> None:
    def decode(_: bytes) -> Steps[None]:
        yield
        raise error

    decoding = Decoding()
    for _ in range(2):
        with pytest.raises(FetchError, match="bad") as caught:
            await decoding(decode, body)
        assert (caught.value.state, caught.value.lasting) == (SourceState.INVALID, lasting)


async def test_the_answers_of_many_peers_are_decoded_in_turn() -> None:
    """A list's peers answer all at once: nothing else must wait until the last of them is decoded."""
    clock = FakeClock()
    decoding = Decoding(Slices(clock))
    longest_s = 0.0

    def decode(_: bytes) -> Steps[None]:
        for _step in range(10):
            clock.advance(0.001)
            yield

    async with asyncio.TaskGroup() as tasks:
        reads = [tasks.create_task(decoding(decode, body)) for body in [b"{}", LONG] * 50]
        while not all(read.done() for read in reads):
            before_s = clock.monotonic()
            await asyncio.sleep(0)
            longest_s = max(longest_s, clock.monotonic() - before_s)

    assert longest_s <= SLICE_S + 0.001


async def test_a_short_body_does_not_wait_for_the_end_of_long_ones() -> None:
    clock = FakeClock()
    decoding = Decoding(Slices(clock))

    def decode(body: bytes) -> Steps[int]:
        for _ in range(1000 if body is LONG else 1):
            clock.advance(0.001)
            yield
        return len(body)

    async with asyncio.TaskGroup() as tasks:
        long = [tasks.create_task(decoding(decode, LONG)) for _ in range(3)]
        await asyncio.sleep(0)
        assert await decoding(decode, b"{}") == 2
        assert not any(read.done() for read in long)


async def test_one_long_body_is_decoded_at_a_time() -> None:
    """What is made of two would be in memory at once."""
    decoding, under_way, most = Decoding(Slices(FakeClock())), 0, 0

    def decode(_: bytes) -> Steps[None]:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        for _step in range(5):
            yield
        under_way -= 1

    async with asyncio.TaskGroup() as tasks:
        for _ in range(5):
            tasks.create_task(decoding(decode, LONG))

    assert (most, under_way) == (1, 0)
