"""Changing figures for the stand-in's kubelets and metrics API, as functions of time alone. Pure.

The same pod at the same moment always has the same figures, so a test can compute what to expect.
They look like a busy service and mean nothing.
"""

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from devicemanager.demo.cluster.objects import kubernetes_time
from devicemanager.demo.cluster.selectors import JsonObject

STEP: Final = timedelta(seconds=5)
"""Figures change this often unless told otherwise; a real kubelet's housekeeping takes 10 to 15 s."""

_MIB: Final = 1024 * 1024
_BYTES: Final = {"Ki": 1024, "Mi": _MIB, "Gi": 1024 * _MIB}


@dataclass(frozen=True, slots=True)
class PodFigures:
    """One pod at one moment.

    Attributes:
        cpu_nanocores: In use.
        cpu_nanoseconds: Used since the pod started: the integral of ``cpu_nanocores``.
        memory_bytes: Working set.
        rootfs_bytes: Writable layer of all containers together.
        logs_bytes: Of all containers together.
    """

    cpu_nanocores: int
    cpu_nanoseconds: int
    memory_bytes: int
    rootfs_bytes: int
    logs_bytes: int


@dataclass(frozen=True, slots=True)
class _Wave:
    """A figure that swings around a level: ``level + swing * sin``."""

    level: float
    swing: float
    period_s: float
    phase: float

    def at(self, second: float) -> int:
        return int(self.level + self.swing * math.sin(self._angle(second)))

    def integral(self, start: float, end: float) -> int:
        rate = 2 * math.pi / self.period_s
        swing = math.cos(self._angle(start)) - math.cos(self._angle(end))
        return int(self.level * (end - start) + self.swing / rate * swing)

    def _angle(self, second: float) -> float:
        return 2 * math.pi * second / self.period_s + self.phase


def housekeeping_time(now: datetime, step: timedelta = STEP) -> datetime:
    """When a kubelet last measured, which it does at every whole multiple of the step."""
    step_s = step.total_seconds()
    return datetime.fromtimestamp(now.timestamp() // step_s * step_s, UTC)


def pod_figures(pod: JsonObject, at: datetime) -> PodFigures:
    """What a pod uses at a moment; below its limits, different for every UID."""
    draws = hashlib.sha256(pod["metadata"]["uid"].encode()).digest()
    fraction = [draw / 255 for draw in draws[:6]]
    cores, memory = _limits(pod)
    cpu = _Wave((0.3 + 0.3 * fraction[0]) * cores * 1e9, 0.25 * cores * 1e9, 40 + 40 * fraction[1], 6 * fraction[2])
    working_set = _Wave((0.4 + 0.2 * fraction[3]) * memory, 0.15 * memory, 90 + 60 * fraction[4], 6 * fraction[5])
    second = at.timestamp()
    started = min(datetime.fromisoformat(pod["status"]["startTime"]).timestamp(), second)
    running_s = second - started
    return PodFigures(
        cpu_nanocores=cpu.at(second),
        cpu_nanoseconds=cpu.integral(started, second),
        memory_bytes=working_set.at(second),
        # A scratch file that grows by 2 MiB a second, and is removed every five minutes.
        rootfs_bytes=int(300 * _MIB * (1 + fraction[1]) + 2 * _MIB * (running_s % 300)),
        logs_bytes=int(2 * _MIB + 2048 * (running_s % 86_400)),
    )


def stats_summary(node_name: str, pods: Iterable[JsonObject], at: datetime) -> JsonObject:
    """The document behind ``/api/v1/nodes/<node>/proxy/stats/summary``: a node and the pods that run there."""
    return {
        "node": {
            "nodeName": node_name,
            "startTime": kubernetes_time(at - timedelta(days=30)),
            "cpu": _cpu(at, 2_500_000_000 + int(5e8 * math.sin(at.timestamp() / 30)), 10**15),
            "memory": _memory(at, 48 * 1024 * _MIB),
            "fs": _filesystem(at, 210 * 1024 * _MIB),
        },
        "pods": [_pod_entry(pod, at) for pod in pods],
    }


def pod_metrics(pod: JsonObject, at: datetime) -> JsonObject:
    """The pod's entry in ``metrics.k8s.io/v1beta1``."""
    figures = pod_figures(pod, at)
    containers = _container_names(pod)
    metadata = {key: pod["metadata"][key] for key in ("namespace", "name") if key in pod["metadata"]}
    return {
        "kind": "PodMetrics",
        "apiVersion": "metrics.k8s.io/v1beta1",
        "metadata": {
            **metadata,
            "labels": pod["metadata"].get("labels", {}),
            "creationTimestamp": kubernetes_time(at),
        },
        "timestamp": kubernetes_time(at),
        "window": "15s",
        "containers": [
            {
                "name": name,
                "usage": {
                    "cpu": f"{figures.cpu_nanocores // len(containers)}n",
                    "memory": f"{figures.memory_bytes // len(containers) // 1024}Ki",
                },
            }
            for name in containers
        ],
    }


def _pod_entry(pod: JsonObject, at: datetime) -> JsonObject:
    metadata = pod["metadata"]
    figures = pod_figures(pod, at)
    names = _container_names(pod)
    share = len(names)
    return {
        "podRef": {"name": metadata["name"], "namespace": metadata["namespace"], "uid": metadata["uid"]},
        "startTime": pod["status"]["startTime"],
        "containers": [
            {
                "name": name,
                "startTime": pod["status"]["startTime"],
                "cpu": _cpu(at, figures.cpu_nanocores // share, figures.cpu_nanoseconds // share),
                "memory": _memory(at, figures.memory_bytes // share),
                "rootfs": _filesystem(at, figures.rootfs_bytes // share),
                "logs": _filesystem(at, figures.logs_bytes // share),
            }
            for name in names
        ],
        "cpu": _cpu(at, figures.cpu_nanocores, figures.cpu_nanoseconds),
        "memory": _memory(at, figures.memory_bytes),
        "network": {"time": kubernetes_time(at), "name": "eth0", "rxBytes": 932154998, "txBytes": 7662032},
        "ephemeral-storage": _filesystem(at, figures.rootfs_bytes + figures.logs_bytes),
        "process_stats": {"process_count": 12 * share},
    }


def _cpu(at: datetime, nanocores: int, nanoseconds: int) -> JsonObject:
    return {"time": kubernetes_time(at), "usageNanoCores": nanocores, "usageCoreNanoSeconds": nanoseconds}


def _memory(at: datetime, working_set: int) -> JsonObject:
    return {
        "time": kubernetes_time(at),
        "availableBytes": 256 * 1024 * _MIB,
        "usageBytes": working_set + 96 * _MIB,
        "workingSetBytes": working_set,
        "rssBytes": working_set * 9 // 10,
        "pageFaults": 216_489,
        "majorPageFaults": 10,
    }


def _filesystem(at: datetime, used: int) -> JsonObject:
    return {
        "time": kubernetes_time(at),
        "availableBytes": 1200 * 1024 * _MIB,
        "capacityBytes": 1800 * 1024 * _MIB,
        "usedBytes": used,
        "inodesFree": 3_734_058,
        "inodes": 3_907_584,
        "inodesUsed": 1_744,
    }


def _container_names(pod: JsonObject) -> list[str]:
    return [container["name"] for container in pod["spec"]["containers"]]


def _limits(pod: JsonObject) -> tuple[float, int]:
    """Cores and bytes that the pod's first container may have; defaults for a small daemon where it names none."""
    limits = pod["spec"]["containers"][0].get("resources", {}).get("limits", {})
    cpu, memory = limits.get("cpu", "50m"), limits.get("memory", "128Mi")
    cores = int(cpu[:-1]) / 1000 if cpu.endswith("m") else float(cpu)
    return cores, int(memory[:-2]) * _BYTES[memory[-2:]] if memory[-2:] in _BYTES else int(memory)
