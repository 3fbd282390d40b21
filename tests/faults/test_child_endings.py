"""Stopping, and what stays behind: no process, no descriptor, no thread, no wait, with either event loop."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import pytest_asyncio
from typing_extensions import override

from devicemanager.clock import SystemClock
from devicemanager.model.accelerator import CollectorState
from devicemanager.node import launcher
from devicemanager.node.child import Child
from devicemanager.node.launcher import STUCK_LIMIT
from devicemanager.node.leftovers import Leftovers
from tests.faults.conftest import Run, Supervise
from tests.timing import DEADLINE_S, until

EXIT_WAIT_S = launcher._EXIT_WAIT_S
"""As the program has it; for these tests it is longer."""


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest_asyncio.fixture
async def unkillable(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """Processes that outlive SIGKILL, as those stuck in a driver do, until the test is over."""
    stuck: list[Child] = []

    def ignore(child: Child) -> None:
        stuck.append(child)
        child._watch.stop_listening()

    async def find_none(*_: object) -> None:
        """What is left is killed once more, which such a process outlives too."""

    with monkeypatch.context() as patch:
        patch.setattr(Child, "kill", ignore)
        patch.setattr(Leftovers, "end_all", find_none)
        patch.setattr(launcher, "_EXIT_WAIT_S", EXIT_WAIT_S)
        yield
    for child in stuck:
        child.kill()
        assert await child.wait(5.0)


@pytest.mark.asyncio
@pytest.mark.parametrize("mode", ["Steady", "HangOpen", "HangCard"])
async def test_stopping_leaves_no_process(supervise: Supervise, mode: str) -> None:
    async with supervise(mode, card_deadline_s=30.0) as run:
        await _started(run, 1)
        if mode == "Steady":
            await run.samples(1)
        await run.stop()
        assert not any(is_running(pid) for pid in run.pids)


@pytest.mark.asyncio
@pytest.mark.usefixtures("unkillable")
async def test_stopping_does_not_wait_for_a_stuck_process(supervise: Supervise) -> None:
    async with supervise("HangOpen") as run:
        await _started(run, 1)
        await until(lambda: run.supervisor._launcher._alive)  # one that is still being started ends with its start
        async with asyncio.timeout(DEADLINE_S):
            await run.stop()
        (stuck,) = run.pids
        assert is_running(stuck)


@pytest.mark.asyncio
@pytest.mark.usefixtures("unkillable")
async def test_stuck_processes_are_bounded_and_reported(supervise: Supervise) -> None:
    every_card = " ".join(map(str, range(STUCK_LIMIT)))
    async with supervise("HangNamed", control=every_card, card_deadline_s=0.2) as run:
        wanted = f"{STUCK_LIMIT} collector processes cannot be killed"
        await run.store.until(lambda: run.store.snapshot.collector.detail == wanted)
        assert run.store.snapshot.collector.state is CollectorState.UNRESPONSIVE
        assert len(run.starts) == STUCK_LIMIT


@pytest.mark.asyncio
@pytest.mark.usefixtures("unkillable")
async def test_a_card_is_not_tried_again_while_it_holds_a_process(supervise: Supervise) -> None:
    async with supervise("HangCard", period_s=0.3) as run:
        await run.samples(6)
        assert "skip only index:3" not in run.starts


@pytest.mark.asyncio
async def test_many_restarts_leave_nothing_behind(supervise: Supervise) -> None:
    async with supervise("CrashRest", period_s=0.05) as run:
        await _started(run, 4)
        before = descriptors(), threading.active_count()
        await _started(run, 24)
        after = descriptors(), threading.active_count()
        assert after[0] <= before[0] + 4  # one process more or less is being started
        assert after[1] <= before[1] + 2
        assert sum(is_running(pid) for pid in run.pids) <= 2


@pytest.mark.asyncio
async def test_clock_steps_change_neither_pace_nor_age(supervise: Supervise) -> None:
    class Stepping(SystemClock):
        """Its wall clock jumps a day ahead, then two back, with every look."""

        looks = 0

        @override
        def now(self) -> datetime:
            self.looks += 1
            return datetime(2026, 8, 12, tzinfo=UTC) + timedelta(days=1 if self.looks % 2 else -1)

    clock = Stepping()
    async with supervise("Steady", period_s=0.3, clock=clock) as run:
        samples = await run.samples(4)
        starts = [sample.started_monotonic_s for sample in samples]
        assert starts == sorted(starts)
        assert starts[-1] - starts[0] < 3 * 0.3 + 2
        assert run.store.age_s(clock.monotonic()) == 0
        assert run.store.snapshot.collector.state is CollectorState.OK
        assert run.starts == ["skip only"]


@pytest.mark.asyncio
async def test_progress_is_now_while_nothing_is_overdue(supervise: Supervise) -> None:
    class Ahead(SystemClock):
        ahead_s = 0.0

        @override
        def monotonic(self) -> float:
            return super().monotonic() + self.ahead_s

    clock = Ahead()
    async with supervise("HangCard", period_s=0.3, clock=clock) as run:
        await run.samples(2)
        await until(lambda: clock.monotonic() - run.supervisor.last_progress_monotonic_s < 0.1)
        await run.stop()
        clock.ahead_s = 60.0
        assert clock.monotonic() - run.supervisor.last_progress_monotonic_s > 50.0


async def _started(run: Run, count: int) -> None:
    """Wait until so many processes have begun to run; the file they write says so."""
    async with asyncio.timeout(20):
        while len(run.starts) < count:  # noqa: ASYNC110 - another process writes the file, and signals nothing
            await asyncio.sleep(0.01)
