"""When quarantined devices are probed, and what the end of a probe means; virtual time, scripted processes."""

import asyncio
import math
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeAlias

import pytest
import structlog
from structlog.testing import LogCapture

from devicemanager.model.accelerator import Card, CollectorState, Reason
from devicemanager.node.child import Event, Exited, ProtocolError, TimedOut
from devicemanager.node.deadlines import Deadlines
from devicemanager.node.quarantine import Quarantine
from devicemanager.node.quarantine_prober import QuarantineProber
from devicemanager.rules.selection import Selection
from devicemanager.wire.collector_lines import Announced, Begin, End, Failed, Hello, Read
from tests import devices
from tests.timing import LoopClock

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime(start=100.0)]

CARD = Card(3, "GPU-3")
HANG = "hang"
"""Stands for a process that writes nothing more."""

STOP = "stop"
"""Stands for one that somebody stops."""

Step: TypeAlias = Event | str


def greeting(card: Card = CARD, *, announced: bool = True) -> list[Step]:
    """The lines up to where a device is touched; the sample begins when they are read."""
    return [Hello("nvidia"), "begin", *([Announced(card)] if announced else [])]


ANSWER = [*greeting(), Read(devices.reading(CARD)), End(8)]
SILENCE = [*greeting(), HANG]


class Process:
    """A collector process that does what a script says."""

    def __init__(self, steps: Sequence[Step], *, unkillable: bool = False) -> None:
        self.steps = list(steps)
        self.exited = False
        self.killed = False
        self.stopped = False
        self.unkillable = unkillable

    async def next(self, deadline_s: float) -> Event:
        step = self.steps.pop(0) if self.steps else HANG
        self.stopped = step == STOP
        if step == "begin":
            return Begin(asyncio.get_running_loop().time(), datetime.now(UTC))
        if not isinstance(step, str):
            return step
        await asyncio.sleep(deadline_s)
        return TimedOut()


@dataclass
class FakeLauncher:
    """Gives out scripted processes, the last script for ever."""

    scripts: list[Any]
    manufacturer: str = "nvidia"
    deadlines: Deadlines = field(default_factory=lambda: Deadlines(30.0, 2.0, 15.0))
    exhausted: bool = False
    unkillable: bool = False
    started: list[tuple[float, Selection]] = field(default_factory=list)
    processes: list[Process] = field(default_factory=list)

    async def start(self, selection: Selection) -> Process:
        self.started.append((asyncio.get_running_loop().time(), selection))
        script = self.scripts.pop(0) if len(self.scripts) > 1 else self.scripts[0]
        if isinstance(script, OSError):
            raise script
        self.processes.append(Process(script, unkillable=self.unkillable))
        return self.processes[-1]

    async def next(self, process: Process, deadline_s: float) -> Any:
        return await process.next(deadline_s)

    def kill(self, process: Process) -> None:
        process.killed = True
        process.exited = not process.unkillable


class Harness:
    def __init__(self, *scripts: object, period_s: float = 15.0) -> None:
        self.launcher = FakeLauncher(list(scripts))
        self.quarantine = Quarantine(period_s)
        self.capture = LogCapture()
        launcher: Any = self.launcher
        log = structlog.wrap_logger(None, processors=[self.capture])
        self.prober = QuarantineProber(self.quarantine, launcher, LoopClock(), log)

    def hangs(self, card: Card = CARD, *, stuck: bool = False) -> None:
        """A device did not answer the common sample, whose process was killed."""
        process: Any = Process([])
        process.exited = not stuck
        self.prober.timed_out(process, card, 2.0)

    @property
    def starts(self) -> list[float]:
        """When probes were made, in seconds since the beginning."""
        return [round(moment - 100.0, 3) for moment, _ in self.launcher.started]

    @property
    def events(self) -> list[str]:
        return [line["event"] for line in self.capture.entries]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(self.prober.run())
            yield
            task.cancel()

    async def run(self, seconds: float) -> None:
        async with self.running():
            await asyncio.sleep(seconds)


async def test_a_device_that_answers_is_readmitted() -> None:
    harness = Harness(ANSWER)
    harness.hangs()
    await harness.run(60.0)
    assert harness.starts == [1.0]
    assert harness.launcher.started[0][1].arguments == ["--only=GPU-3", "--assume=3=GPU-3"]
    assert harness.events == ["device_quarantined", "device_readmitted"]
    assert harness.prober.readmitted.is_set()
    assert harness.quarantine.skipped == ()
    assert all(process.killed for process in harness.launcher.processes)


async def test_a_device_that_stays_silent_is_probed_ever_less_often() -> None:
    harness = Harness(SILENCE)
    harness.hangs()
    await harness.run(400.0)
    # Each probe takes the 10 s of a first touch, after pauses of 1, 2, 4, 8, 16, 32 and 60 s.
    assert harness.starts == [1.0, 13.0, 27.0, 45.0, 71.0, 113.0, 183.0, 253.0, 323.0, 393.0]
    (device,) = harness.quarantine.skipped
    assert (device.failures, device.reason) == (10, Reason.TIMEOUT)
    assert device.fault == "the card did not answer within 10 s"
    assert harness.events == ["device_quarantined"]


async def test_a_device_on_which_the_probe_crashes_stays_with_what_was_seen() -> None:
    harness = Harness([*greeting(), Exited(-11, "Xid 79")])
    harness.hangs()
    await harness.run(2.5)
    (device,) = harness.quarantine.skipped
    assert (device.failures, device.reason) == (2, Reason.TRANSIENT_DRIVER_ERROR)
    assert device.fault == "the collector crashed while reading this card: ended by SIGSEGV"


@pytest.mark.parametrize(
    "script",
    [
        [HANG],
        [Exited(-11)],
        [Failed(CollectorState.DRIVER_NOT_LOADED, "code 9")],
        [ProtocolError("no JSON")],
        [Hello("amd")],
        [Hello("nvidia"), Announced(CARD)],
        [*greeting(announced=False), HANG],
        [*greeting(announced=False), Exited(-11)],
        [*greeting(Card(2))],
        [*greeting(), Exited(-9)],
        [*greeting(), Exited(-15)],
        [*greeting(), STOP],
        OSError("no process to be had"),
    ],
    ids=[
        "opening-hangs",
        "opening-crashes",
        "library-fails",
        "garbage",
        "another-manufacturer",
        "out-of-order",
        "counting-hangs",
        "counting-crashes",
        "another-card",
        "killed",
        "terminated",
        "stopped",
        "not-started",
    ],
)
async def test_what_says_nothing_of_the_device_is_not_held_against_it(script: object) -> None:
    harness = Harness(script)
    harness.hangs()
    await harness.run(80.0)
    (device,) = harness.quarantine.skipped
    assert (device.failures, device.reason) == (1, Reason.TIMEOUT)
    assert len(harness.starts) >= 2  # it is tried again, a period later
    assert all(later - earlier >= 15.0 for earlier, later in zip(harness.starts, harness.starts[1:], strict=False))
    assert all(process.killed for process in harness.launcher.processes)


async def test_a_device_that_is_no_longer_counted_is_released() -> None:
    harness = Harness([*greeting(announced=False), End(3)])
    harness.hangs()
    await harness.run(30.0)
    assert harness.events == ["device_quarantined", "device_released"]
    assert not harness.quarantine
    assert harness.prober.readmitted.is_set()


async def test_another_device_in_its_place_does_not_readmit_it() -> None:
    other = Card(3, "GPU-9")
    harness = Harness([*greeting(Card(3)), Read(devices.reading(other)), End(8)])
    harness.hangs()
    await harness.run(3.0)
    assert harness.events[:2] == ["device_quarantined", "device_released"]
    assert [device.card.id for device in harness.quarantine.skipped] == ["GPU-3"]


async def test_a_device_a_process_is_stuck_on_is_left_alone_until_that_ends() -> None:
    harness = Harness(ANSWER)
    stuck: Any = Process([])
    harness.prober.timed_out(stuck, CARD, 2.0)
    async with harness.running():
        await asyncio.sleep(100.0)
        assert harness.starts == []
        stuck.exited = True
        await asyncio.sleep(20.0)
    assert len(harness.starts) == 1
    assert "device_readmitted" in harness.events


async def test_a_probe_that_is_stuck_itself_is_not_joined_by_a_second_one() -> None:
    harness = Harness(SILENCE)
    harness.launcher.unkillable = True
    harness.hangs()
    await harness.run(300.0)
    assert harness.starts == [1.0]


async def test_nothing_is_started_while_too_many_processes_are_stuck() -> None:
    harness = Harness(ANSWER)
    harness.launcher.exhausted = True
    harness.hangs()
    async with harness.running():
        await asyncio.sleep(100.0)
        assert harness.starts == []
        harness.launcher.exhausted = False
        await asyncio.sleep(20.0)
    assert len(harness.starts) == 1


async def test_devices_are_probed_one_at_a_time_and_each_by_itself() -> None:
    harness = Harness(SILENCE)
    harness.hangs(Card(2, "GPU-2"))
    harness.hangs(CARD)
    harness.launcher.scripts = [[*greeting(Card(2, "GPU-2")), HANG], SILENCE, ANSWER]
    await harness.run(25.0)
    only = [sorted(key.text for key in selection.only) for _, selection in harness.launcher.started]
    assert only[:2] == [["GPU-2"], ["GPU-3"]]
    assert harness.starts[:2] == [1.0, 11.0]


async def test_one_that_comes_later_and_is_due_earlier_is_not_made_to_wait() -> None:
    harness = Harness(SILENCE)
    harness.hangs()
    async with harness.running():
        await asyncio.sleep(60.0)  # the next probe of the first one is at 71 s
        harness.launcher.scripts = [[*greeting(Card(5, "GPU-5")), Read(devices.reading(Card(5, "GPU-5"))), End(8)]]
        harness.hangs(Card(5, "GPU-5"))
        await asyncio.sleep(5.0)
    assert harness.starts[-1] == 61.0


async def test_a_partition_is_probed_under_its_card() -> None:
    partition = Card(0, "MIG-1", parent="GPU-0", profile="1g.10gb")
    card = Card(0, "GPU-0")
    listed = Read(devices.reading(card), (partition,))
    harness = Harness([*greeting(card), listed, Announced(partition), Read(devices.partition(partition)), End(1)])
    harness.hangs(partition)
    await harness.run(5.0)
    assert harness.launcher.started[0][1].arguments == ["--only=GPU-0/MIG-1", "--assume=0=GPU-0"]
    assert harness.events == ["device_quarantined", "device_readmitted"]
    assert harness.capture.entries[0]["parent"] == "GPU-0"
    assert harness.capture.entries[0]["detail"] == "the partition did not answer within 2 s"


async def test_without_a_quarantined_device_nothing_happens() -> None:
    harness = Harness(ANSWER)
    await harness.run(10_000.0)
    assert harness.starts == []
    assert math.isclose(asyncio.get_running_loop().time(), 10_100.0)
