"""Calls that may block for ever: one thread each time, never two, and the answer in time."""

import asyncio
import errno
import threading
from collections.abc import Iterator

import pytest

from devicemanager.node.blocking import BlockingCalls, within
from tests.timing import until
from tests.tls_peers import on_both_loops

DEADLINE_S = 10.0


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """What a call that hangs waits for; it is let go at the end."""
    opened = threading.Event()
    yield opened
    opened.set()


def broken() -> str:
    raise OSError(errno.EIO, "Input/output error")


@on_both_loops
async def test_the_result_and_the_error_of_a_call_are_its_own() -> None:
    calls = BlockingCalls("/sys")
    assert await calls.run(lambda: "0x10de", DEADLINE_S) == "0x10de"
    with pytest.raises(OSError, match="Input/output error"):
        await calls.run(broken, DEADLINE_S)
    with pytest.raises(ValueError, match="no digits"):
        await calls.run(lambda: int("no digits"), DEADLINE_S)
    assert await calls.run(lambda: (), DEADLINE_S) == ()


@pytest.mark.asyncio
async def test_a_call_that_times_out_by_itself_says_what_it_said() -> None:
    def slow() -> None:
        raise TimeoutError("the file system says so")

    with pytest.raises(TimeoutError, match="the file system says so"):
        await BlockingCalls("/sys").run(slow, DEADLINE_S)


@pytest.mark.asyncio
async def test_a_call_that_hangs_costs_one_thread_however_often_it_is_tried(gate: threading.Event) -> None:
    calls = BlockingCalls("the PCI bus")
    before = threading.active_count()
    with pytest.raises(TimeoutError, match=r"the PCI bus: not read within 0\.01 s"):
        await calls.run(gate.wait, 0.01)
    for _ in range(20):
        with pytest.raises(TimeoutError, match="the PCI bus: an earlier read does not end"):
            await calls.run(lambda: True, DEADLINE_S)
    assert threading.active_count() == before + 1
    gate.set()

    async def answered() -> bool:
        try:
            return await calls.run(lambda: True, DEADLINE_S)
        except TimeoutError:
            return False

    async with asyncio.timeout(DEADLINE_S):
        while not await answered():  # noqa: ASYNC110 - nothing tells that a thread has ended
            await asyncio.sleep(0)


@pytest.mark.asyncio
async def test_others_are_not_held_up_by_one_that_hangs(gate: threading.Event) -> None:
    with pytest.raises(TimeoutError):
        await BlockingCalls("the PCI bus").run(gate.wait, 0.01)
    assert await BlockingCalls("/proc").run(lambda: 7, DEADLINE_S) == 7


@pytest.mark.asyncio
async def test_no_thread_to_be_had_is_an_error_like_others(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = BlockingCalls("/sys")

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        for _ in range(2):
            with pytest.raises(OSError, match="/sys: can't start new thread"):
                await calls.run(lambda: 7, DEADLINE_S)
    assert await calls.run(lambda: 7, DEADLINE_S) == 7


def test_a_call_that_ends_after_its_loop_has_no_effect(gate: threading.Event) -> None:
    async def give_up() -> None:
        with pytest.raises(TimeoutError):
            await BlockingCalls("a file that hangs").run(gate.wait, 0.01)

    asyncio.run(give_up())
    (thread,) = [one for one in threading.enumerate() if one.name == "a file that hangs"]
    assert thread.daemon  # the interpreter does not wait for it
    gate.set()
    thread.join(DEADLINE_S)
    assert not thread.is_alive()


@pytest.mark.asyncio
async def test_a_cancelled_caller_leaves_the_call_counted(gate: threading.Event) -> None:
    calls = BlockingCalls("a file read in vain")
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(calls.run(gate.wait, DEADLINE_S))
        await until(lambda: any(one.name == "a file read in vain" for one in threading.enumerate()))
        waiting.cancel()
    with pytest.raises(TimeoutError, match="does not end"):
        await calls.run(lambda: True, DEADLINE_S)


def test_before_there_is_a_loop_a_call_is_bounded_too(gate: threading.Event) -> None:
    assert within(lambda: "nvidia", DEADLINE_S, "the PCI bus") == "nvidia"
    with pytest.raises(OSError, match="Input/output error"):
        within(broken, DEADLINE_S, "the PCI bus")
    with pytest.raises(TimeoutError, match=r"the PCI bus: not read within 0\.01 s"):
        within(gate.wait, 0.01, "the PCI bus")
