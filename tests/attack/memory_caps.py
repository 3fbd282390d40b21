"""A memory limit around a program: a cgroup of its own where this machine allows one, else a measured one."""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Final

import psutil
from typing_extensions import override

from tests.timing import wait_until

_NAMES: Final = count()
_MOUNTS: Final = Path("/proc/self/mountinfo")
_OWN: Final = Path("/proc/self/cgroup")


class MemoryCap(ABC):
    """What a program and its children may take, and have taken.

    Attributes:
        kind: What enforces the limit, for the report.
        limit_bytes: The limit.
        prefix: In front of the program's command, to start it inside.
    """

    kind: str
    prefix: Sequence[str] = ()

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes

    @abstractmethod
    def peak_bytes(self, pid: int) -> int:
        """The most that was taken at once, of the program with this process id and its children."""

    @abstractmethod
    def now_bytes(self, pid: int) -> int:
        """What is taken now."""

    @abstractmethod
    def kills(self) -> int:
        """How many processes were killed because the limit was reached."""

    def remove(self) -> None:
        """Once all processes in it have ended."""
        return


class _Cgroup(MemoryCap):
    """A folder in a cgroup file system that can be written.

    Pages of the program's own files count for whoever read them first, which in a container is the program and here
    some other process: they are added.
    """

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        super().__init__(limit_bytes)
        self._folder = folder
        self.prefix = ("/bin/sh", "-c", f'echo $$ > {folder}/cgroup.procs && exec "$@"', "sh")

    def _number(self, name: str) -> int:
        return int((self._folder / name).read_text())

    def _entry(self, name: str, key: str) -> int:
        entries = dict(line.split() for line in (self._folder / name).read_text().splitlines())
        return int(entries[key])

    @override
    def remove(self) -> None:
        def removed() -> bool:
            with suppress(OSError):
                self._folder.rmdir()
            return not self._folder.exists()

        wait_until(removed, f"the end of all processes in {self._folder}")


class _CgroupV2(_Cgroup):
    kind = "cgroup v2"

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        super().__init__(folder, limit_bytes)
        self._number("memory.peak")  # since Linux 5.19
        (folder / "memory.max").write_text(str(limit_bytes))
        with suppress(OSError):  # without swap accounting
            (folder / "memory.swap.max").write_text("0")

    @override
    def peak_bytes(self, pid: int) -> int:
        return self._number("memory.peak") + _mapped_files(pid)

    @override
    def now_bytes(self, pid: int) -> int:
        return self._number("memory.current") + _mapped_files(pid)

    @override
    def kills(self) -> int:
        return self._entry("memory.events", "oom_kill")


class _CgroupV1(_Cgroup):
    """Buffers of sockets are counted apart there, and only where they have a limit."""

    kind = "cgroup v1"

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        super().__init__(folder, limit_bytes)
        for name in ("memory.limit_in_bytes", "memory.kmem.tcp.limit_in_bytes"):
            (folder / name).write_text(str(limit_bytes))

    @override
    def peak_bytes(self, pid: int) -> int:
        return self._sum("max_usage_in_bytes") + _mapped_files(pid)

    @override
    def now_bytes(self, pid: int) -> int:
        return self._sum("usage_in_bytes") + _mapped_files(pid)

    def _sum(self, name: str) -> int:
        return self._number(f"memory.{name}") + self._number(f"memory.kmem.tcp.{name}")

    @override
    def kills(self) -> int:
        return self._entry("memory.oom_control", "oom_kill")


class _Measured(MemoryCap):
    """Nothing enforces it; what the program and each of its children had resident at most is added up."""

    kind = "measured only: no cgroup can be made here"

    @override
    def peak_bytes(self, pid: int) -> int:
        return sum(_status_bytes(one, "VmHWM") for one in _with_children(pid))

    @override
    def now_bytes(self, pid: int) -> int:
        return sum(_status_bytes(one, "VmRSS") for one in _with_children(pid))

    @override
    def kills(self) -> int:
        return 0


def _with_children(pid: int) -> list[int]:
    return [pid, *(one.pid for one in psutil.Process(pid).children(recursive=True))]


def _mapped_files(pid: int) -> int:
    return _status_bytes(pid, "RssFile")


def _status_bytes(pid: int, name: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"no {name} of {pid}")


@contextmanager
def memory_cap(limit_bytes: int) -> Iterator[MemoryCap]:
    """The strictest one that this machine allows."""
    cap = _made(limit_bytes)
    try:
        yield cap
    finally:
        cap.remove()


def _made(limit_bytes: int) -> MemoryCap:
    name = f"attack-{os.getpid()}-{next(_NAMES)}"
    for kind, parent in _parents():
        folder = parent / name
        with suppress(OSError):  # the second version hands a controller down where it is told to
            (parent / "cgroup.subtree_control").write_text("+memory")
        try:
            folder.mkdir()
        except OSError:
            continue
        try:
            return kind(folder, limit_bytes)
        except OSError:  # the controller is not handed down to here
            folder.rmdir()
    return _Measured(limit_bytes)


def _parents() -> Iterator[tuple[type[_Cgroup], Path]]:
    """Cgroups that may take another below: our own, and those above it."""
    own = {}
    for line in _OWN.read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        own.update(dict.fromkeys(controllers.split(","), path))
    for line in _MOUNTS.read_text().splitlines():
        mounted, _, described = line.partition(" - ")
        root, mount = mounted.split()[3:5]
        kind, _, options = described.split()[:3]
        made: type[_Cgroup]
        if kind == "cgroup" and "memory" in options.split(","):
            made, path = _CgroupV1, own.get("memory", "/")
        elif kind == "cgroup2":
            made, path = _CgroupV2, own.get("", "/")
        else:
            continue
        below = Path(path).relative_to(root) if Path(path).is_relative_to(root) else Path()
        for level in (below, *below.parents):
            yield made, Path(mount) / level
