"""What a collector process leaves behind: its end is seen at once, and nothing that it started outlives it."""

import asyncio
import os
from pathlib import Path

import psutil
import pytest

from devicemanager.node import own_process
from tests.faults.conftest import Run, Supervise
from tests.timing import until

ENVIRONMENT = {"PATH": os.environ["PATH"]}


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def left_behind(run: Run) -> int:
    """The process that the control file names, once it is there."""
    await until(lambda: run.control.exists() and run.control.read_text().isdigit(), "a helper")
    return int(run.control.read_text())


@pytest.mark.asyncio
async def test_a_crash_is_seen_at_once_though_a_fork_of_the_process_holds_its_pipes(supervise: Supervise) -> None:
    async with supervise("ForkAndCrash", open_deadline_s=300.0) as run:
        await run.states("crashed")
        detail = "the collector process ended by SIGSEGV: segmentation fault in libvendor.so"
        assert run.store.snapshot.collector.detail == detail


@pytest.mark.asyncio
async def test_a_fork_in_the_same_group_ends_with_the_process(supervise: Supervise) -> None:
    async with supervise("ForkAndCrash", period_s=30.0) as run:
        fork = await left_behind(run)
        await until(lambda: not is_running(fork), "the end of the fork")


@pytest.mark.asyncio
async def test_a_helper_in_a_session_of_its_own_ends_with_a_process_that_crashed(supervise: Supervise) -> None:
    async with supervise("DaemoniseAndCrash", period_s=30.0, environment=ENVIRONMENT) as run:
        helper = await left_behind(run)
        await run.states("ok", "crashed")
        await until(lambda: not psutil.pid_exists(helper), "the end of the helper, and that it was reaped")


@pytest.mark.asyncio
async def test_a_helper_runs_as_long_as_its_process_and_ends_with_the_program(
    supervise: Supervise,
) -> None:
    async with supervise("Daemonise", period_s=0.1, environment=ENVIRONMENT) as run:
        helper = await left_behind(run)
        await run.samples(3)
        assert is_running(helper)
        await run.stop()
        await until(lambda: not is_running(helper), "the end of the helper")


@pytest.mark.asyncio
async def test_a_helper_of_another_program_is_left_alone(supervise: Supervise, tmp_path: Path) -> None:
    """It is our orphan too, as that of a shell in the container is for process 1."""
    own_process.adopt_orphans()
    helper = await asyncio.create_subprocess_exec(
        "sh",
        "-c",
        "sleep 3600 >/dev/null & echo $!",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert helper.stdout is not None
    pid = int(await helper.stdout.readline())
    await helper.wait()
    try:
        async with supervise("CrashRest", period_s=0.1, environment=ENVIRONMENT) as run:
            await until(lambda: len(run.starts) >= 4, "some ends of processes")
        assert psutil.Process(pid).ppid() == os.getpid()
        assert is_running(pid)
        os.kill(pid, 9)
        async with supervise("CrashRest", period_s=0.1, environment=ENVIRONMENT) as run:
            await until(lambda: not psutil.pid_exists(pid), "an orphan that has ended to be reaped")
    finally:
        if psutil.pid_exists(pid):
            os.kill(pid, 9)
