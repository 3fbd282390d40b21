"""Whole lines out of any pieces, in bounded memory."""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from typing_extensions import override

from devicemanager.node import line_pipe
from devicemanager.node.line_pipe import LinePipe
from devicemanager.wire.collector_lines import LINE_LIMIT_BYTES
from tests.timing import until
from tests.tls_peers import on_both_loops

DEADLINE_S = 5.0


@pytest_asyncio.fixture
async def ends() -> AsyncIterator[tuple[LinePipe, int]]:
    """A connected pipe and its writing end, which never blocks."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    pipe = await LinePipe.connect(reading)
    yield pipe, writing
    pipe.close()
    os.close(writing)


@pytest.mark.asyncio
async def test_a_line_in_pieces_is_one_line(ends: tuple[LinePipe, int]) -> None:
    pipe, writing = ends
    for piece in (b"o", b"n", b"e\ntw"):
        os.write(writing, piece)
        await asyncio.sleep(0)
    assert await pipe.next(DEADLINE_S) == b"one"
    with pytest.raises(TimeoutError):
        await pipe.next(0.01)
    os.write(writing, b"o\n\n")
    assert [await pipe.next(DEADLINE_S) for _ in range(2)] == [b"two", b""]


@pytest.mark.asyncio
async def test_lines_that_are_there_are_taken_without_waiting(ends: tuple[LinePipe, int]) -> None:
    pipe, writing = ends
    assert pipe.take() is None
    os.write(writing, b"one\ntwo\nthr")
    assert await pipe.next(DEADLINE_S) == b"one"
    assert (pipe.take(), pipe.take()) == (b"two", None)


@on_both_loops
async def test_a_wait_that_is_stopped_ends_as_at_its_deadline_unless_the_line_has_come() -> None:
    reading, writing = os.pipe()
    pipe = await LinePipe.connect(reading)
    loop = asyncio.get_running_loop()
    try:
        pipe.stop_waiting()  # for nothing
        loop.call_later(0.01, pipe.stop_waiting)
        with pytest.raises(TimeoutError):
            await pipe.next(DEADLINE_S)

        def come_and_stop() -> None:
            pipe.data_received(b"came\n")
            pipe.stop_waiting()

        loop.call_later(0.01, come_and_stop)
        assert await pipe.next(DEADLINE_S) == b"came"
        pipe.stop_waiting()
    finally:
        pipe.close()
        os.close(writing)


@on_both_loops
async def test_a_line_that_came_in_time_is_not_missed_by_a_loop_that_was_held_up() -> None:
    reading, writing = os.pipe()
    pipe = await LinePipe.connect(reading)

    def hold_up() -> None:
        os.write(writing, b"in time\n")
        until_s = time.monotonic() + 0.3
        while time.monotonic() < until_s:
            pass

    try:
        asyncio.get_running_loop().call_soon(hold_up)
        assert await pipe.next(0.1) == b"in time"
        with pytest.raises(TimeoutError):
            await pipe.next(0.1)
    finally:
        pipe.close()
        os.close(writing)


@on_both_loops
async def test_lines_of_a_sample_are_read_together_and_its_last_one_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each time that this process wakes up costs it more than a line does."""
    monkeypatch.setattr(line_pipe, "_GATHER_S", 0.2)
    pieces: list[bytes] = []

    class Watched(LinePipe):
        @override
        def data_received(self, data: bytes) -> None:
            pieces.append(data)
            super().data_received(data)

    reading, writing = os.pipe()
    pipe = await Watched.connect(reading)
    try:
        os.write(writing, b"begin\n")
        assert await pipe.next(DEADLINE_S) == b"begin"
        for line in (b"one\n", b"two\n", b'{"end"}\n'):
            os.write(writing, line)
            await asyncio.sleep(0)
        assert [await pipe.next(DEADLINE_S) for _ in range(3)] == [b"one", b"two", b'{"end"}']
        os.write(writing, b"begin\n")
        async with asyncio.timeout(0.1):
            assert await pipe.next(DEADLINE_S) == b"begin", "nothing follows a sample's last line for a period"
        assert pieces == [b"begin\n", b'one\ntwo\n{"end"}\n', b"begin\n"]
    finally:
        pipe.close()
        os.close(writing)


@on_both_loops
async def test_a_pipe_may_be_closed_while_lines_gather(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_pipe, "_GATHER_S", 0.01)
    reading, writing = os.pipe()
    pipe = await LinePipe.connect(reading)
    os.write(writing, b"begin\n")
    assert await pipe.next(DEADLINE_S) == b"begin"
    pipe.close()
    os.close(writing)
    await until(lambda: pipe.ended)
    assert await pipe.next(DEADLINE_S) is None


@pytest.mark.asyncio
async def test_lines_left_in_a_closed_pipe_are_read_to_the_end() -> None:
    reading, writing = os.pipe()
    pipe = await LinePipe.connect(reading)
    os.write(writing, b"one\ntwo\nhalf")
    os.close(writing)
    assert [await pipe.next(DEADLINE_S) for _ in range(4)] == [b"one", b"two", None, None]
    assert pipe.half_line
    assert not pipe.overlong


@pytest.mark.asyncio
@pytest.mark.parametrize("size", [LINE_LIMIT_BYTES + 1, 3 * LINE_LIMIT_BYTES])
async def test_an_endless_line_is_given_up_and_read_no_further(ends: tuple[LinePipe, int], size: int) -> None:
    pipe, writing = ends
    os.write(writing, b"fine\n")
    assert await pipe.next(DEADLINE_S) == b"fine"
    async with asyncio.TaskGroup() as tasks:
        reader = tasks.create_task(pipe.next(DEADLINE_S))
        left = size
        while not reader.done():
            with contextlib.suppress(BlockingIOError):
                left -= os.write(writing, b"x" * min(4096, left)) if left else 0
            await asyncio.sleep(0)
    assert reader.result() is None
    assert pipe.overlong
    assert not await _takes_more(writing)


@pytest.mark.asyncio
async def test_a_writer_that_is_not_read_is_made_to_wait(ends: tuple[LinePipe, int]) -> None:
    pipe, writing = ends
    written = refused = 0
    while refused < 100 and written < 200_000:
        try:
            written += os.write(writing, b"line\n" * 800) // 5
        except BlockingIOError:
            refused += 1
        await asyncio.sleep(0)
    assert written < 80_000
    for _ in range(written):
        assert await pipe.next(DEADLINE_S) == b"line"


async def _takes_more(writing: int) -> bool:
    """Whether the pipe takes more than it can hold, because somebody reads from it."""
    for _ in range(64):
        try:
            os.write(writing, b"x" * 65536)
        except BlockingIOError:
            return False
        await asyncio.sleep(0)
    return True


@pytest.mark.asyncio
async def test_a_descriptor_that_is_no_pipe_is_closed() -> None:
    descriptor = os.open("/", os.O_RDONLY)
    with pytest.raises((ValueError, OSError)):
        await LinePipe.connect(descriptor)


@on_both_loops
async def test_a_connection_that_is_given_up_closes_its_descriptor_and_says_nothing_else() -> None:
    reading, writing = os.pipe()
    connecting = asyncio.create_task(LinePipe.connect(reading))
    await asyncio.sleep(0)
    connecting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await connecting
    await asyncio.sleep(0)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(reading)
    os.close(writing)


@on_both_loops
async def test_a_descriptor_is_closed_once_and_its_number_left_to_whoever_has_it_next() -> None:
    reading, writing = os.pipe()
    pipe = line_pipe._Pipe(reading)
    os.close(reading)
    another = os.open(os.devnull, os.O_RDONLY)
    assert another == reading
    pipe.close()
    assert os.fstat(another)
    for descriptor in (another, writing):
        os.close(descriptor)
