"""One block of a kubelet's summary as a figure, or the reason for having none.

A block whose age cannot be told, or whose value no node can have, is absent.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from devicemanager.model.accelerator import Figure, Reason
from devicemanager.model.pod_stats import CpuStats, DiskStats, MemoryStats

STALE_AFTER: Final = timedelta(minutes=2)
"""How far a CPU or memory block may lie behind the node's own CPU block; kubelets refresh both every 10 to 20 s."""

DISK_STALE_AFTER: Final = timedelta(minutes=5)
"""The same for disk blocks, which kubelets refresh every minute or so, more slowly on a full disk."""

CLOCK_MARGIN: Final = timedelta(minutes=1)
"""How much further a block may lie behind the kubelet's own clock: the node's CPU block lies behind it too."""

AHEAD_AT_MOST: Final = timedelta(minutes=3)
"""How far a block may lie ahead of the kubelet's own clock: clocks are set back by less while they are adjusted."""

HIGHEST_NANOCORES: Final = 2 * 8192 * 10**9
"""Twice what the largest machine has that Linux runs on."""

HIGHEST_BYTES: Final = 1 << 50
"""1 PiB, of memory or of local disk."""


@dataclass(frozen=True, slots=True)
class NodeCapacity:
    """What a node has, as far as it is known: no pod uses twice as much.

    Attributes:
        cpu_nanocores: None where nobody said.
        memory_bytes: None where nobody said.
    """

    cpu_nanocores: int | None = None
    memory_bytes: int | None = None


UNKNOWN_CAPACITY: Final = NodeCapacity()


@dataclass(frozen=True, slots=True)
class Measure:
    """The figure of one block, or of a sum of blocks.

    Attributes:
        time: Of the oldest block in it.
        carried: Whether the figure was there at all, usable or not.
    """

    figure: Figure
    time: datetime | None = None
    carried: bool = True


def is_stale(measured_at: datetime, answered_at: datetime, limit: timedelta = STALE_AFTER) -> bool:
    """Whether a block was too old, by the kubelet's own clock, when the kubelet answered."""
    return answered_at - measured_at > limit + CLOCK_MARGIN


@dataclass(frozen=True, slots=True)
class BlockReader:
    """Turns one block into a figure or a reason."""

    node_time: datetime | None
    answered_at: datetime | None
    capacity: NodeCapacity

    @property
    def highest_nanocores(self) -> int:
        """The most that can be true of a pod."""
        return _twice(self.capacity.cpu_nanocores, HIGHEST_NANOCORES)

    @property
    def highest_memory_bytes(self) -> int:
        """The most that can be true of a pod."""
        return _twice(self.capacity.memory_bytes, HIGHEST_BYTES)

    def cpu(self, block: CpuStats | None) -> Measure:
        if block is None:
            return missing()
        if block.usage_nanocores is None:
            return missing(not_yet=block.time is None or block.usage_core_nanoseconds is not None)
        return self._measure(block.usage_nanocores, block.time, STALE_AFTER, self.highest_nanocores)

    def memory(self, block: MemoryStats | None) -> Measure:
        if block is None:
            return missing()
        if block.working_set_bytes is None:
            return missing(not_yet=block.time is None)
        if not (block.working_set_bytes or block.usage_bytes or block.rss_bytes):
            # A running container uses some memory: some kubelets write zeros for what they could not read.
            return Measure(Reason.INVALID_DATA, carried=False)
        return self._measure(block.working_set_bytes, block.time, STALE_AFTER, self.highest_memory_bytes)

    def disk(self, block: DiskStats | None) -> Measure:
        if block is None:
            return missing()
        if block.used_bytes is None:
            return missing(not_yet=block.time is None)
        return self._measure(block.used_bytes, block.time, DISK_STALE_AFTER, HIGHEST_BYTES)

    def _measure(self, value: int, time: datetime | None, limit: timedelta, highest: int) -> Measure:
        if not 0 <= value <= highest or time is None or self._ahead(time):
            return Measure(Reason.INVALID_DATA)
        return Measure(Reason.STALE) if self._stale(time, limit) else Measure(value, time)

    def _ahead(self, time: datetime) -> bool:
        return self.answered_at is not None and time - self.answered_at > AHEAD_AT_MOST

    def _stale(self, time: datetime, limit: timedelta) -> bool:
        if self.node_time is not None and self.node_time - time > limit:
            return True
        return self.answered_at is not None and is_stale(time, self.answered_at, limit)


def _twice(capacity: int | None, highest: int) -> int:
    return highest if capacity is None else min(2 * capacity, highest)


def missing(*, not_yet: bool = False) -> Measure:
    return Measure(Reason.NOT_YET if not_yet else Reason.NOT_REPORTED, carried=False)
