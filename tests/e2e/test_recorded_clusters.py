"""What kubelets and metrics-servers of real clusters said, read by us and, quite differently, by a naive reader.

The records belong to others and are read where they lie; nothing of them is kept here.
"""

import json
import os
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from devicemanager.errors import DocumentError
from devicemanager.model.accelerator import Figure, Reason
from devicemanager.model.pod_stats import ContainerState
from devicemanager.rules.kubelet import pod_usage
from devicemanager.wire import kubelet_summary, pod_metrics, pods
from tests.e2e.recorded_machines import FOLDER_VARIABLE

FOLDER = os.environ.get(FOLDER_VARIABLE)

pytestmark = [
    pytest.mark.recorded,
    pytest.mark.skipif(FOLDER is None, reason=f"{FOLDER_VARIABLE} does not name a folder of recorded machines"),
]

SUMMARIES = sorted(Path(FOLDER or "/nonexistent", "stats_summary").glob("*.json"))
POD_LISTS = sorted(Path(FOLDER or "/nonexistent", "kubelet_pods").glob("*.json"))
SUMMARY_OF = {
    "datadog_windows": "datadog_eks_windows",
    "honeycomb_2020": "honeycomb_2020",
    "nri_k8s1_34": "nri_k8s1_34",
}

summaries = pytest.mark.parametrize("path", SUMMARIES, ids=lambda path: path.stem)
pod_lists = pytest.mark.parametrize("path", POD_LISTS, ids=lambda path: path.stem)


def test_the_records_are_there() -> None:
    assert len(SUMMARIES) >= 8
    assert len(POD_LISTS) >= 3


@summaries
def test_every_pod_of_a_summary_is_found_and_summed_right(path: Path) -> None:
    document = json.loads(path.read_bytes())
    summary = kubelet_summary.decode(path.read_bytes())
    assert len(summary) == len(document["pods"])
    assert summary.node_name == document["node"]["nodeName"]
    for raw in document["pods"]:
        ref = raw["podRef"]
        entry = summary.pod(ref["namespace"], ref["name"], ref["uid"])
        assert entry is not None
        usage = pod_usage(entry, node_time=summary.node_cpu_time)
        naive = Naive(raw, datetime.fromisoformat(document["node"]["cpu"]["time"]))
        assert number(usage.cpu_nanocores) == naive.cpu()
        assert number(usage.memory_working_set_bytes) == naive.memory()
        assert number(usage.rootfs_used_bytes) == naive.rootfs()
        assert number(usage.ephemeral_storage_used_bytes) == naive.ephemeral_storage()


@summaries
def test_the_slow_way_reads_what_the_fast_one_reads(path: Path) -> None:
    body = path.read_bytes()
    document = json.loads(body)
    document["pods"].append({"podRef": 5})
    slow = kubelet_summary.decode(json.dumps(document).encode())
    assert list(slow.pods) == list(kubelet_summary.decode(body).pods)


def number(figure: Figure) -> int | None:
    return None if isinstance(figure, Reason) else figure


class Naive:
    """A pod's use as plain arithmetic over the raw JSON has it; None where a rule says that it is unknown."""

    def __init__(self, pod: dict[str, Any], node_time: datetime) -> None:
        self.pod = pod
        self.node_time = node_time
        latest: dict[str, dict[str, Any]] = {}
        for container in sorted(pod.get("containers") or [], key=self._recency):
            latest[container["name"]] = container
        self.containers = [container for container in latest.values() if self._lives(container)]

    @staticmethod
    def _recency(container: dict[str, Any]) -> tuple[str, str]:
        blocks = (container.get(key) or {} for key in ("cpu", "memory", "rootfs"))
        return container["startTime"], max(block.get("time") or "" for block in blocks)

    @staticmethod
    def _lives(container: dict[str, Any]) -> bool:
        cpu, memory = container.get("cpu") or {}, container.get("memory") or {}
        return bool(cpu.get("usageCoreNanoSeconds") or memory.get("workingSetBytes"))

    def cpu(self) -> int | None:
        return self._either("cpu", "usageNanoCores", timedelta(minutes=2))

    def memory(self) -> int | None:
        return self._either("memory", "workingSetBytes", timedelta(minutes=2))

    def rootfs(self) -> int | None:
        return self._total("rootfs", "usedBytes", timedelta(minutes=5))

    def ephemeral_storage(self) -> int | None:
        return self._value(self.pod.get("ephemeral-storage"), "usedBytes", timedelta(minutes=5))

    def _either(self, block: str, key: str, limit: timedelta) -> int | None:
        if key in (self.pod.get(block) or {}):
            return self._value(self.pod[block], key, limit)
        return self._total(block, key, limit)

    def _total(self, block: str, key: str, limit: timedelta) -> int | None:
        values = [self._value(container.get(block), key, limit) for container in self.containers]
        known = [value for value in values if value is not None]
        return sum(known) if values and len(known) == len(values) else None

    def _value(self, block: dict[str, Any] | None, key: str, limit: timedelta) -> int | None:
        if block is None or key not in block or self.node_time - datetime.fromisoformat(block["time"]) > limit:
            return None
        return int(block[key])


@pod_lists
def test_every_recorded_pod_is_read(path: Path) -> None:
    for raw in json.loads(path.read_bytes())["items"]:
        pod = pods.from_object(raw)
        assert pod.uid == raw["metadata"]["uid"]
        assert pod.phase == raw["status"]["phase"]
        running = {
            status["name"]
            for key in ("initContainerStatuses", "containerStatuses")
            for status in raw["status"].get(key) or []
            if "running" in status["state"]
        }
        assert {name for name, state in pod.containers.items() if state is ContainerState.RUNNING} == running
        named = [container.get("resources", {}).get("limits", {}) for container in raw["spec"]["containers"]]
        limits = pod.resources.limits
        assert (limits.cpu_millicores is None) == (not all("cpu" in each for each in named))
        assert (limits.memory_mib is None) == (not all("memory" in each for each in named))


@pod_lists
def test_pods_and_their_figures_meet_by_uid(path: Path) -> None:
    prefix = next(prefix for stem, prefix in SUMMARY_OF.items() if path.stem.startswith(stem))
    (summary_path,) = [found for found in SUMMARIES if found.stem.startswith(prefix)]
    summary = kubelet_summary.decode(summary_path.read_bytes())
    listed = [pods.from_object(raw) for raw in json.loads(path.read_bytes())["items"]]
    met = {
        pod.name: entry
        for pod in listed
        for uid in pod.kubelet_uids
        if (entry := summary.pod(pod.namespace, pod.name, uid)) is not None
    }
    assert len(met) >= min(len(summary), len(listed)) // 2
    for pod in listed:
        entry = met.get(pod.name)
        if entry is not None and ContainerState.RUNNING in pod.containers.values():
            usage = pod_usage(entry, node_time=summary.node_cpu_time, states=pod.containers)
            assert number(usage.memory_working_set_bytes) != 0


def documents(value: Any) -> Iterator[dict[str, Any]]:
    yield from value.get("items", [value])


def test_recorded_metrics_are_read() -> None:
    found = {}
    folder = Path(FOLDER or "/nonexistent", "metrics_k8s_io")
    for path in sorted(folder.iterdir()):
        for document in documents(yaml.safe_load(path.read_text())):
            body = json.dumps(document, default=str).encode()
            if document["kind"] != "PodMetrics":
                with pytest.raises(DocumentError):
                    pod_metrics.parse(body)
                continue
            found[document["metadata"]["name"]] = pod_metrics.parse(body)
    (bare,) = found["p1"].containers
    assert (bare.cpu_nanocores, bare.memory_bytes) == (20_000_000_000, 20 * 2**20)
    (milli,) = found["p3"].containers
    assert (milli.cpu_nanocores, milli.memory_bytes) == (2_000_000_000, 20 * 2**20)
    assert all(metrics.timestamp is None for metrics in found.values())
