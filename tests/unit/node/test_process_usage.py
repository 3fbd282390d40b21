"""What a process holds, and when it is too much."""

import mmap
import os
from types import SimpleNamespace

import pytest
import structlog
from structlog.testing import LogCapture

from devicemanager.model.accelerator import RestartReason
from devicemanager.node import process_usage
from devicemanager.node.process_usage import LINE_EVERY_S, LOOK_EVERY_S, MIB, UsageLimits, UsageMonitor
from tests.timing import FakeClock


class Process:
    """A process whose use a test sets, and the monitor of it: 80 MiB and 100 descriptors are allowed."""

    pid = 4711

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.memory: int | None = 80 * MIB
        self.open: int | None = 100
        self.clock = FakeClock()
        self.capture = LogCapture()
        self.monitor = UsageMonitor(
            UsageLimits(80 * MIB, 100), self.clock, structlog.wrap_logger(None, processors=[self.capture])
        )
        monkeypatch.setattr(process_usage, "memory_bytes", lambda pid: self.memory if pid == self.pid else None)
        monkeypatch.setattr(process_usage, "descriptors", lambda pid: self.open if pid == self.pid else None)


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Process:
    return Process(monkeypatch)


def test_what_is_allowed_is_no_reason(process: Process) -> None:
    assert process.monitor.after_sample(process.pid) is None
    assert process.monitor.within_sample(process.pid) is None
    assert process.capture.entries == []


@pytest.mark.parametrize(
    ("memory", "count", "why", "detail"),
    [
        (80 * MIB + 1, 100, RestartReason.MEMORY, "81 MiB of memory, of 80 MiB allowed"),
        (80 * MIB, 101, RestartReason.DESCRIPTORS, "101 open descriptors, of 100 allowed"),
        (None, 101, RestartReason.DESCRIPTORS, "101 open descriptors, of 100 allowed"),
        (90 * MIB, None, RestartReason.MEMORY, "90 MiB of memory, of 80 MiB allowed"),
        (90 * MIB, 101, RestartReason.MEMORY, "90 MiB of memory, of 80 MiB allowed"),
    ],
)
def test_more_than_allowed_after_a_sample(
    process: Process, memory: int | None, count: int | None, why: RestartReason, detail: str
) -> None:
    process.memory, process.open = memory, count

    assert process.monitor.after_sample(process.pid) is why
    (line,) = process.capture.entries
    assert line == {
        "event": "collector_process_replaced",
        "log_level": "warning",
        "reason": why.value,
        "detail": detail,
        "times": 1,
    }


def test_a_process_that_is_gone_or_may_not_be_asked_is_no_reason(process: Process) -> None:
    process.memory = process.open = None

    assert process.monitor.after_sample(process.pid) is None
    assert process.monitor.within_sample(process.pid) is None


@pytest.mark.parametrize(
    ("memory", "said"),
    [
        (81 * MIB, None),
        (100 * MIB, None),
        (100 * MIB + 1, "101 MiB of memory, of 100 MiB allowed within a sample"),
    ],
)
def test_within_a_sample_a_quarter_more_is_allowed(process: Process, memory: int, said: str | None) -> None:
    process.memory, process.open = memory, 1_000_000
    process.clock.advance(2 * LOOK_EVERY_S)

    assert process.monitor.within_sample(process.pid) == said


def test_within_a_sample_a_process_is_not_looked_at_with_every_line(process: Process) -> None:
    process.memory = 200 * MIB
    said = []
    for _ in range(100):
        said.append(process.monitor.within_sample(process.pid) is not None)
        process.clock.advance(LOOK_EVERY_S / 10)

    assert 8 <= sum(said) <= 10


def test_a_sample_that_is_short_is_not_looked_into(process: Process) -> None:
    process.memory = 101 * MIB
    for _ in range(3):
        process.clock.advance(15.0)
        process.monitor.begin_sample()
        assert process.monitor.within_sample(process.pid) is None
    process.clock.advance(2 * LOOK_EVERY_S)
    assert process.monitor.within_sample(process.pid) is not None


def test_a_library_that_leaks_for_ever_is_logged_every_ten_minutes(process: Process) -> None:
    process.open = 101
    for _ in range(90):
        process.monitor.after_sample(process.pid)
        process.clock.advance(15.0)

    assert [line["times"] for line in process.capture.entries] == [1, 40, 40]
    assert LINE_EVERY_S == 40 * 15.0


def test_a_process_is_measured_as_the_kernel_counts_it() -> None:
    before = process_usage.memory_bytes(os.getpid())
    # Memory of its own: an allocator may give out what the process already has.
    with mmap.mmap(-1, 32 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as held:
        held.write(bytes(len(held)))
        after = process_usage.memory_bytes(os.getpid())
    assert before is not None
    assert after is not None
    assert after - before > 32 * MIB * 9 // 10

    opened = process_usage.descriptors(os.getpid())
    assert opened is not None
    copies = [os.dup(0) for _ in range(10)]
    assert process_usage.descriptors(os.getpid()) == opened + 10
    for copy in copies:
        os.close(copy)


def test_a_kernel_that_does_not_count_descriptors_has_them_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = process_usage.descriptors(os.getpid())
    assert counted is not None
    with monkeypatch.context() as before_6_2:
        before_6_2.setattr(os, "stat", lambda _: SimpleNamespace(st_size=0))
        listed = process_usage.descriptors(os.getpid())
    assert listed == counted + 1  # the folder itself, while it is read


def test_a_process_that_does_not_exist_is_not_measured() -> None:
    missing = 2**22 + 1  # above what the kernel gives out
    assert process_usage.memory_bytes(missing) is None
    assert process_usage.descriptors(missing) is None


def test_a_process_has_a_state_and_a_parent_until_it_is_gone() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert process_usage.state_and_parent(pid) == ("Z", os.getpid())
    os.waitpid(pid, 0)
    assert process_usage.state_and_parent(pid) is None
