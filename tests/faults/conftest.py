"""Supervised fake collectors, and a way to wait for what their store says."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest
import structlog
from structlog.testing import LogCapture
from typing_extensions import override

from devicemanager.clock import Clock, SystemClock
from devicemanager.model.accelerator import CollectorStatus, Sample, Snapshot
from devicemanager.node.snapshot_store import SnapshotStore
from devicemanager.node.supervisor import Supervisor
from devicemanager.node.supervisor_options import SupervisorOptions

FAKE = Path(__file__).parent / "children" / "collector.py"
DEADLINE_S = 20.0


class WatchedStore(SnapshotStore):
    """A store that remembers every snapshot and lets a test wait for the next."""

    def __init__(self, period_s: float, clock: Clock) -> None:
        super().__init__("nvidia", period_s, None, clock)
        self.seen: list[Snapshot] = []
        self._wake = asyncio.Event()

    @override
    def update(self, status: CollectorStatus, sample: Sample | None = None) -> None:
        super().update(status, sample)
        self._remember()

    def _remember(self) -> None:
        self.seen.append(self.snapshot)
        self._wake.set()

    @property
    def samples(self) -> list[Sample]:
        """Every sample published so far, each once."""
        return list({id(s.sample): s.sample for s in self.seen if s.sample is not None}.values())

    async def until(self, true: Callable[[], bool]) -> None:
        """Wait until something is true, looking whenever the snapshot changes."""
        async with asyncio.timeout(DEADLINE_S):
            while not true():
                self._wake.clear()
                await self._wake.wait()


@dataclass
class Run:
    """One supervised fake collector."""

    supervisor: Supervisor
    store: WatchedStore
    task: asyncio.Task[None]
    control: Path
    log: LogCapture

    @property
    def starts(self) -> list[str]:
        """What each process was started for, in order."""
        path = self.control.with_suffix(".starts")
        return [line.partition(" ")[2] for line in path.read_text().splitlines()] if path.exists() else []

    @property
    def pids(self) -> list[int]:
        return [int(line.split()[0]) for line in self.control.with_suffix(".starts").read_text().splitlines()]

    def events(self, name: str) -> list[Any]:
        return [entry for entry in self.log.entries if entry["event"] == name]

    async def states(self, *wanted: str) -> None:
        """Wait until the collector's states so far contain these in this order."""

        def seen() -> bool:
            states = iter([snapshot.collector.state.value for snapshot in self.store.seen])
            return all(state in states for state in wanted)

        await self.store.until(seen)

    async def samples(self, count: int) -> list[Sample]:
        await self.store.until(lambda: len(self.store.samples) >= count)
        return self.store.samples[:count]

    async def stop(self) -> None:
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task


class Supervise(Protocol):
    def __call__(
        self,
        mode: str,
        *,
        control: str | None = None,
        period_s: float = 0.5,
        card_deadline_s: float = 0.6,
        command: Sequence[str] | None = None,
        clock: Clock | None = None,
        **options: Any,
    ) -> AbstractAsyncContextManager[Run]: ...


@pytest.fixture
def supervise(tmp_path: Path) -> Supervise:
    @contextlib.asynccontextmanager
    async def start(
        mode: str,
        *,
        control: str | None = None,
        period_s: float = 0.5,
        card_deadline_s: float = 0.6,
        command: Sequence[str] | None = None,
        clock: Clock | None = None,
        **options: Any,
    ) -> AsyncIterator[Run]:
        path = tmp_path / "control"
        if control is not None:
            path.write_text(control)
        clock = clock or SystemClock()
        store = WatchedStore(period_s, clock)
        capture = LogCapture()
        log = structlog.wrap_logger(None, processors=[capture])
        settings: dict[str, Any] = {
            "manufacturer": "nvidia",
            "period_s": period_s,
            "command": command or [sys.executable, "-I", "-S", str(FAKE), mode, "--control", str(path)],
            "card_deadline_s": card_deadline_s,
            "first_touch_s": card_deadline_s,
        }
        supervisor = Supervisor(SupervisorOptions(**settings | options), store, clock, log)
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(_run(supervisor))
            run = Run(supervisor, store, task, path, capture)
            try:
                yield run
            finally:
                task.cancel()

    return start


async def _run(supervisor: Supervisor) -> None:
    work: Awaitable[Any] = supervisor.run()
    await work
