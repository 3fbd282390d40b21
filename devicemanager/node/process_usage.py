"""What the kernel says of a collector process: what it holds, how much of that it may, and whether it runs."""

import os
import resource
from dataclasses import dataclass
from typing import Final

from structlog.typing import FilteringBoundLogger

from devicemanager.clock import Clock
from devicemanager.model.accelerator import RestartReason
from devicemanager.serving.line_allowance import LineAllowance

MIB: Final = 1 << 20

LINE_EVERY_S: Final = 600.0
"""A library that leaks has its process replaced again and again."""

LOOK_EVERY_S: Final = 0.02
"""Within a sample. One of a library in order takes less; to leak much takes longer."""


@dataclass(frozen=True, slots=True)
class UsageLimits:
    """Above which a process is replaced.

    Attributes:
        memory_bytes: Memory that is its own alone: what a file backs, such as a library's code, does not count.
        descriptors: Open files.
    """

    memory_bytes: int = 80 * MIB
    descriptors: int = 512


class UsageMonitor:
    """Compares what processes hold with the limits."""

    def __init__(self, limits: UsageLimits, clock: Clock, log: FilteringBoundLogger) -> None:
        """Look at nothing yet."""
        self._limits = limits
        self._clock = clock
        self._log = log
        self._not_logged = 0
        self._allowance = LineAllowance(clock, burst=1, every_s=LINE_EVERY_S)
        self._looked_s = clock.monotonic()

    def begin_sample(self) -> None:
        """A sample begins: how much is held was looked at when the one before it ended."""
        self._looked_s = self._clock.monotonic()

    def after_sample(self, pid: int) -> RestartReason | None:
        """Why a process is to be replaced; None if it is below the limits, or is gone. Logs."""
        held_bytes, count = memory_bytes(pid), descriptors(pid)
        if held_bytes is not None and held_bytes > self._limits.memory_bytes:
            why, detail = RestartReason.MEMORY, _memory(held_bytes, self._limits.memory_bytes)
        elif count is not None and count > self._limits.descriptors:
            why = RestartReason.DESCRIPTORS
            detail = f"{count} open descriptors, of {self._limits.descriptors} allowed"
        else:
            return None
        self._not_logged += 1
        if self._allowance.take():
            self._log.warning("collector_process_replaced", reason=why.value, detail=detail, times=self._not_logged)
            self._not_logged = 0
        return why

    def within_sample(self, pid: int) -> str | None:
        """How much memory a process holds, if that is more than a quarter above the limit. For every line of it."""
        now_s = self._clock.monotonic()
        if now_s - self._looked_s < LOOK_EVERY_S:
            return None
        self._looked_s = now_s
        return excess(pid, self._limits)


def excess(pid: int, limits: UsageLimits) -> str | None:
    """How much memory a process holds, if that is more than a quarter above the limit; None if it may go on."""
    held_bytes, allowed_bytes = memory_bytes(pid), most_allowed_bytes(limits.memory_bytes)
    if held_bytes is None or held_bytes <= allowed_bytes:
        return None
    return f"{_memory(held_bytes, allowed_bytes)} within a sample"


def memory_bytes(pid: int) -> int | None:
    """Resident memory that no file backs; None if the process is gone. The kernel answers from memory."""
    try:
        statm = os.open(f"/proc/{pid}/statm", os.O_RDONLY | os.O_CLOEXEC)  # a file object costs twice as much
        try:
            _, resident, shared, *_ = os.read(statm, 256).split()
        finally:
            os.close(statm)
    except (OSError, ValueError):
        return None
    return (int(resident) - int(shared)) * resource.getpagesize()


def descriptors(pid: int) -> int | None:
    """How many descriptors a process has open; None if it is gone, or may not be asked.

    Linux 6.2 and later say it as the size of a folder; to list that folder costs twenty times as much.
    """
    folder = f"/proc/{pid}/fd"
    try:
        return os.stat(folder).st_size or len(os.listdir(folder))
    except OSError:
        return None


def state_and_parent(pid: int, proc: str = "/proc") -> tuple[str, int] | None:
    """The letter of a process's state, such as T for stopped or Z for ended, and its parent; None if it is gone."""
    try:
        with open(f"{proc}/{pid}/stat", "rb", buffering=0) as stat:
            state, parent, *_ = stat.read().rpartition(b")")[2].split()
        return state.decode(), int(parent)
    except (OSError, ValueError):  # ValueError: half of it is there, as it may be of a process that ends meanwhile
        return None


def _memory(held_bytes: int, allowed_bytes: int) -> str:
    return f"{-(-held_bytes // MIB)} MiB of memory, of {allowed_bytes // MIB} MiB allowed"


def most_allowed_bytes(limit_bytes: int) -> int:
    """What a process may hold within a sample: a quarter more than after it."""
    return limit_bytes * 5 // 4
