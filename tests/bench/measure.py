"""What a process costs, read from outside of it: processor time, memory, descriptors, threads. Linux only."""

import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

MIB: Final = 1 << 20
KIB: Final = 1 << 10

CORES: Final = sorted(os.sched_getaffinity(0))
SERVER_CORE: Final = CORES[0]
CLIENT_CORE: Final = CORES[-1]

_MAPPING: Final = re.compile(r"^[0-9a-f]+-[0-9a-f]+ \S+ (\S+) (\S+) (\d+)")


def pin(pid: int, core: int) -> None:
    """Keep a process, and all that it starts from now on, on one core."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), {core})


def cpu_s(pid: int) -> float:
    """Processor seconds of all threads of a living process so far, in nanosecond resolution."""
    return time.clock_gettime((~pid << 3) | 2)  # CPUCLOCK_SCHED of <linux/posix-timers.h>


def pss_mib(*pids: int) -> float:
    """Proportional set size of processes together, in MiB.

    A page that other processes map too counts in part only: other Python programs make this too small.
    """
    return sum(_rollup(pid, "Pss") for pid in pids) / MIB


def alone_mib(*pids: int) -> float:
    """Resident memory of processes together, in MiB, as if nobody else on the machine mapped their files.

    Pages of files that several of the processes map count once, for the one that has most of them.
    """
    shared: dict[tuple[str, str, str], int] = {}
    own = 0
    for pid in pids:
        mapped: dict[tuple[str, str, str], int] = {}
        for key, resident, dirty in _mappings(pid):
            own += dirty if key[2] != "0" else resident
            if key[2] != "0":
                mapped[key] = mapped.get(key, 0) + resident - dirty
        for key, size in mapped.items():
            shared[key] = max(size, shared.get(key, 0))
    return (own + sum(shared.values())) / MIB


def descriptors(pid: int) -> int:
    """Open file descriptors."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def threads(pid: int) -> int:
    """Threads."""
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


def interleaved(subjects: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Each subject once a round, in turn, so that a busy minute of the machine meets all of them."""
    found: dict[str, list[float]] = {name: [] for name in subjects}
    for _ in range(rounds):
        for name, subject in subjects.items():
            found[name].append(subject())
    return found


def settle(
    read: Callable[[], float], *, pause_s: float = 0.5, calm: float = 0.02, deadline_s: float = 15.0
) -> float:
    """A figure once it moves by less than ``calm`` of itself between two looks, or at the deadline."""
    until = time.monotonic() + deadline_s
    before = read()
    while True:
        time.sleep(pause_s)
        now = read()
        if abs(now - before) <= calm * now / 10 or time.monotonic() > until:
            return now
        before = now


def percentile(values: Iterable[float], percent: float) -> float:
    """The value that so many percent of the values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def _rollup(pid: int, field: str) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * KIB
    raise ValueError(f"no {field} in smaps_rollup")


def _mappings(pid: int) -> Iterable[tuple[tuple[str, str, str], int, int]]:
    """Each mapping: what it maps (offset, device, inode), resident bytes, and how many of those are dirty."""
    key, resident, dirty = ("0", "0", "0"), 0, 0
    for line in Path(f"/proc/{pid}/smaps").read_text(encoding="utf-8").splitlines():
        if found := _MAPPING.match(line):
            if resident:
                yield key, resident, dirty
            key, resident, dirty = (found[1], found[2], found[3]), 0, 0
        elif line.startswith("Rss:"):
            resident = int(line.split()[1]) * KIB
        elif line.startswith("Private_Dirty:"):
            dirty = int(line.split()[1]) * KIB
    if resident:
        yield key, resident, dirty
