"""A node whose cards come late. The real loop: the bus is looked at in a thread."""

import asyncio
import errno
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import structlog
from structlog.testing import LogCapture

from devicemanager.clock import SystemClock
from devicemanager.errors import SettingsError
from devicemanager.model.accelerator import CollectorState
from devicemanager.node import auto_detect
from devicemanager.node.auto_detect import AutoDetectSupervisor
from devicemanager.node.snapshot_store import SnapshotStore
from tests.timing import until


class StartedError(Exception):
    """Stands for a supervisor that runs."""


class Supervising:
    last_progress_monotonic_s = 7.0

    async def run(self) -> None:
        raise StartedError


class Bus:
    """Answers in turn; what each look found is seen by the next one."""

    def __init__(self, store: SnapshotStore, answers: Sequence[str | Exception | None]) -> None:
        self.store = store
        self.seen: list[tuple[CollectorState, str | None]] = []
        self._answers: Iterator[str | Exception | None] = iter(answers)

    def find(self) -> str | None:
        status = self.store.snapshot.collector
        self.seen.append((status.state, status.detail))
        answer = next(self._answers)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.mark.asyncio
async def test_the_first_card_is_supervised_and_until_then_there_is_none() -> None:
    clock, capture = SystemClock(), LogCapture()
    store = SnapshotStore("auto", 15.0, None, clock)
    bus = Bus(store, [None, None, SettingsError(["amd and nvidia"]), "nvidia"])
    started: list[str] = []

    def supervise(manufacturer: str) -> Any:
        started.append(manufacturer)
        return Supervising()

    log = structlog.wrap_logger(None, processors=[capture])
    awaited = AutoDetectSupervisor(bus.find, supervise, store, clock, log, every_s=0.01)
    before_s = awaited.last_progress_monotonic_s

    with pytest.raises(StartedError):
        async with asyncio.timeout(10):
            await awaited.run()

    none = "nothing is found; looked at again every 10ms"
    assert bus.seen == [
        (CollectorState.STARTING, None),
        (CollectorState.NO_DEVICES, none),
        (CollectorState.NO_DEVICES, none),
        (CollectorState.FAILED, "amd and nvidia; looked at again every 10ms"),
    ]
    assert started == ["nvidia"]
    assert store.snapshot.manufacturer == "nvidia"
    assert before_s <= clock.monotonic()
    assert awaited.last_progress_monotonic_s == Supervising.last_progress_monotonic_s
    assert [line["state"] for line in capture.entries] == ["no_devices", "failed"]


@pytest.mark.asyncio
async def test_a_bus_that_fails_or_hangs_is_a_state_and_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto_detect, "_BUS_DEADLINE_S", 0.05)
    opened = threading.Event()
    clock = SystemClock()
    store = SnapshotStore("auto", 15.0, None, clock)
    bus = Bus(store, [OSError(errno.EIO, "Input/output error")])
    details: list[str | None] = []

    def find() -> str | None:
        details.append(store.snapshot.collector.detail)
        if len(details) == 1:
            return bus.find()
        return "nvidia" if opened.wait() else None

    def supervise(_: str) -> Any:
        return Supervising()

    awaited = AutoDetectSupervisor(find, supervise, store, clock, structlog.get_logger(), every_s=0.01)

    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(_started(awaited))
        await until(lambda: "does not end" in str(store.snapshot.collector.detail))
        assert store.snapshot.collector.state is CollectorState.FAILED
        assert len(details) == 2  # no thread for each look
        opened.set()
        assert await running
    assert "Input/output error; looked at again every 10ms" in str(details[1])


async def _started(awaited: AutoDetectSupervisor) -> bool:
    with pytest.raises(StartedError):
        async with asyncio.timeout(10):
            await awaited.run()
    return True
