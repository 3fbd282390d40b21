"""A node whose cards come late. The real loop: the bus is looked at in a thread."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import structlog
from structlog.testing import LogCapture

from devicemanager.clock import SystemClock
from devicemanager.errors import SettingsError
from devicemanager.model.accelerator import CollectorState
from devicemanager.node.auto_detect import AutoDetectSupervisor
from devicemanager.node.snapshot_store import SnapshotStore


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

    none = "no accelerator of a known manufacturer is on the PCI bus; looked at again every 10ms"
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
