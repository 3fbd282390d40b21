"""The loop that the node program runs on, under the same faults: uvloop starts and reaps in its own way."""

import asyncio
import os
import sys
import threading
from pathlib import Path

import psutil
import pytest

from devicemanager.clock import SystemClock
from devicemanager.model.accelerator import CollectorState
from devicemanager.node.supervisor import Supervisor
from devicemanager.node.supervisor_options import SupervisorOptions
from tests.faults.conftest import FAKE, WatchedStore
from tests.timing import until

uvloop = pytest.importorskip("uvloop")


@pytest.fixture(scope="module", autouse=True)
def warm() -> None:
    """uvloop keeps two descriptors for the life of a process from the first time on that it hears a signal."""

    async def start() -> None:
        process = await asyncio.create_subprocess_exec("true")
        await process.wait()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(start())


@pytest.mark.parametrize(
    ("mode", "state", "answering"),
    [
        ("Steady", CollectorState.OK, 8),
        ("HangCard", CollectorState.OK, 7),
        ("CrashCard", CollectorState.OK, 7),
        ("CrashBetween", CollectorState.CRASHED, 4),
        ("HugeLine", CollectorState.FAILED, 3),
        ("Noise", CollectorState.OK, 8),
    ],
)
def test_faults_on_uvloop(tmp_path: Path, mode: str, state: CollectorState, answering: int) -> None:
    async def scenario() -> None:
        clock = SystemClock()
        store = WatchedStore(0.3, clock)
        command = [sys.executable, "-I", "-S", str(FAKE), mode, "--control", str(tmp_path / "control")]
        options = SupervisorOptions(manufacturer="nvidia", period_s=0.3, command=command, card_deadline_s=1.5)
        async with asyncio.TaskGroup() as tasks:
            run = tasks.create_task(_run(Supervisor(options, store, clock)))
            await store.until(lambda: len(store.samples) >= 3)
            for sample in store.samples:
                figures = [reading.figures["memory_used"] for reading in sample.readings]
                assert sum(isinstance(figure, int) for figure in figures) == answering
            assert store.snapshot.collector.state is state
            run.cancel()

    before = len(os.listdir("/proc/self/fd")), threading.active_count()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scenario())
    assert (len(os.listdir("/proc/self/fd")), threading.active_count()) <= before


async def _run(supervisor: Supervisor) -> None:
    await supervisor.run()


@pytest.mark.parametrize("turns", range(12))
def test_it_ends_whenever_it_is_told_to_while_a_process_is_being_started(tmp_path: Path, turns: int) -> None:
    def children() -> set[int]:
        return {child.pid for child in psutil.Process().children()}

    before = children()

    async def scenario() -> None:
        clock = SystemClock()
        command = [sys.executable, "-I", "-S", str(FAKE), "Steady", "--control", str(tmp_path / "control")]
        options = SupervisorOptions(manufacturer="nvidia", period_s=0.3, command=command)
        running = asyncio.create_task(_run(Supervisor(options, WatchedStore(0.3, clock), clock)))
        for _ in range(turns):
            await asyncio.sleep(0)
        running.cancel()
        done, _ = await asyncio.wait([running], timeout=10)
        assert done
        assert running.cancelled()
        await until(lambda: children() <= before)  # uvloop has heard of the end of the process that it killed

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scenario())
