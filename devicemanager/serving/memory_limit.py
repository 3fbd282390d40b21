"""How much memory this process may take: by its cgroup, a flag, or the chart's default."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Final

from typing_extensions import override

from devicemanager.rules.quantity import format_bytes

_PROC: Final = Path("/proc/self")
_V2: Final = "memory.max"
_V1: Final = "memory.limit_in_bytes"
_UNLIMITED: Final = 1 << 60
"""The first version writes the largest number of pages where there is no limit."""


class Source(StrEnum):
    """Where a memory limit comes from."""

    CGROUP = "cgroup"
    FLAG = "--memory-limit"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """How much memory a program may take, and who says so."""

    bytes: int
    source: Source

    @override
    def __str__(self) -> str:
        return f"{format_bytes(self.bytes)} ({self.source})"


def memory_limit(flag_bytes: int | None, default_bytes: int, proc: Path = _PROC) -> MemoryLimit:
    """The lower of the cgroup's limit and the flag's; the default where there is neither."""
    found = [
        MemoryLimit(size, source)
        for size, source in ((cgroup_bytes(proc), Source.CGROUP), (flag_bytes, Source.FLAG))
        if size is not None
    ]
    return min(found, key=lambda limit: limit.bytes, default=MemoryLimit(default_bytes, Source.DEFAULT))


def cgroup_bytes(proc: Path = _PROC) -> int | None:
    """The lowest memory limit of this process's cgroup and its ancestors, as far as they can be seen from here.

    None where there is none. In a container its own cgroup is usually the highest that is seen.

    Args:
        proc: The folder of this process in ``/proc``.
    """
    found = (_limit(folder / name) for folder, name in _folders(proc))
    return min((limit for limit in found if limit is not None), default=None)


def _folders(proc: Path) -> Iterator[tuple[Path, str]]:
    """Each folder of a cgroup that may limit this process, and the file that says so."""
    own = _own_cgroups(proc)
    for line in _lines(proc / "mountinfo"):
        mounted, _, described = line.partition(" - ")
        before, after = mounted.split(), described.split()
        if len(before) < 5 or len(after) < 3:
            continue
        kind, options = after[0], after[2].split(",")
        if kind == "cgroup2":
            name, path = _V2, own.get("")
        elif kind == "cgroup" and "memory" in options:
            name, path = _V1, own.get("memory")
        else:
            continue
        root, mount = PurePosixPath(before[3]), Path(before[4])
        # Without a cgroup namespace, a container's mount shows only what is below its own cgroup.
        below = PurePosixPath(path or "/")
        inside = below.relative_to(root) if below.is_relative_to(root) else PurePosixPath()
        for level in (inside, *inside.parents):
            yield mount / level, name


def _own_cgroups(proc: Path) -> dict[str, str]:
    """Controller -> path of this process's cgroup; the empty name is the second version's."""
    found = {}
    for line in _lines(proc / "cgroup"):
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        found.update(dict.fromkeys(controllers.split(","), path))
    return found


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def _limit(path: Path) -> int | None:
    """What the file says in bytes; None for ``max``, for no limit, and where it cannot be read."""
    text = "".join(_lines(path)).strip()
    return int(text) if text.isascii() and text.isdigit() and 0 < int(text) < _UNLIMITED else None
