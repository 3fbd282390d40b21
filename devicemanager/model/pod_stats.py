"""One pod's entry in a kubelet's summary: blocks as they were sent, not yet checked.

Integers here may still be negative or too large; ``rules.kubelet`` turns them into figures or reasons.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

UNREADABLE: Final = -1
"""Stands for a value that is no integer: every figure made of it is absent ``invalid_data``."""


class ContainerState(StrEnum):
    """The state of a container in its pod's status."""

    RUNNING = "running"
    WAITING = "waiting"
    """Not started yet, and never ended before."""
    ENDED = "ended"
    """Terminated, or waiting to be started again after that."""


@dataclass(frozen=True, slots=True)
class CpuStats:
    """A ``cpu`` block. None where the key is missing.

    Attributes:
        time: When it was measured, aware UTC.
        usage_nanocores: Average over the kubelet's own short window.
        usage_core_nanoseconds: Cumulative since the container started.
    """

    time: datetime | None = None
    usage_nanocores: int | None = None
    usage_core_nanoseconds: int | None = None


@dataclass(frozen=True, slots=True)
class MemoryStats:
    """A ``memory`` block. None where the key is missing."""

    time: datetime | None = None
    working_set_bytes: int | None = None
    usage_bytes: int | None = None
    rss_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class DiskStats:
    """A ``rootfs`` or ``ephemeral-storage`` block. None where the key is missing."""

    time: datetime | None = None
    used_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class ContainerStats:
    """One container of an entry; a block is None where the kubelet sent none.

    Attributes:
        name: Not unique: a kubelet may list one container twice, read at two moments. None where the entry cannot
            be read: it stands for some container of the pod.
        started_at: None for a container that never started.
    """

    name: str | None
    started_at: datetime | None = None
    cpu: CpuStats | None = None
    memory: MemoryStats | None = None
    rootfs: DiskStats | None = None


@dataclass(frozen=True, slots=True)
class PodStats:
    """One pod's entry in ``/stats/summary``.

    Attributes:
        uid: The ``config.hash`` for a static pod.
        containers: None where the entry lists more than are read.
        started_at: None for a pod that has not started.
    """

    namespace: str
    name: str
    uid: str
    containers: tuple[ContainerStats, ...] | None = ()
    cpu: CpuStats | None = None
    memory: MemoryStats | None = None
    ephemeral_storage: DiskStats | None = None
    started_at: datetime | None = None
