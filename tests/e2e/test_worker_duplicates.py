"""``devicemanager worker`` as a process whose sources list something twice, or something that is not the pod's."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from devicemanager.demo.cluster.objects import InstanceSpec
from devicemanager.demo.cluster.responses import json_answer
from tests.cluster.faults import Fault, Trouble
from tests.cluster.stand_in import StandInCluster
from tests.e2e.test_worker import Worker, furnish, path, started
from tests.unit.worker.apiserver.api_server import GROUPS

pytestmark = pytest.mark.asyncio

GROUP = GROUPS[0]
MIB = 1 << 20
INSTANCES = "instances.worker.gpustack.ai"

Json = dict[str, Any]


@asynccontextmanager
async def ready_worker(cluster: StandInCluster, folder: Path) -> AsyncIterator[Worker]:
    async with started(cluster, folder, GROUP) as worker:
        worker.port = (await worker.logged("server_listening"))["port"]
        await worker.ready()
        yield worker


async def sample(worker: Worker) -> Json:
    answer = await worker.ask(path(GROUP), "viewer")
    assert answer.status == 200, answer.body
    found = json.loads(answer.body)["sample"]
    assert isinstance(found, dict)
    return found


def summarised(
    monkeypatch: pytest.MonkeyPatch, cluster: StandInCluster, change: Callable[[list[Json]], list[Json]]
) -> None:
    """From now on the kubelet's entries are what ``change`` makes of the right ones."""
    right = cluster.kubelets.summary

    def summary(node: str, now: datetime) -> web.Response:
        body = right(node, now).body
        assert isinstance(body, bytes)
        document = json.loads(body)
        return json_answer(document | {"pods": change(document["pods"])})

    monkeypatch.setattr(cluster.kubelets, "summary", summary)


def life(entry: Json, started_at: str, used_bytes: int) -> Json:
    """The entry as of one life of the pod, every figure of it the same number of bytes."""
    copy: Json = json.loads(json.dumps(entry))
    return copy | {
        "startTime": started_at,
        "memory": entry["memory"] | {"workingSetBytes": used_bytes},
        "ephemeral-storage": entry["ephemeral-storage"] | {"usedBytes": used_bytes},
        "containers": [
            one | {"startTime": started_at, "rootfs": one["rootfs"] | {"usedBytes": used_bytes}}
            for one in entry["containers"]
        ],
    }


@pytest.mark.parametrize("newest_first", [True, False])
@pytest.mark.parametrize("field", ["pod", "container"])
async def test_of_a_pod_that_the_kubelet_lists_twice_the_newest_start_counts(
    stand_in_cluster: StandInCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    field: str,
    newest_first: bool,
) -> None:
    """One podRef, or one container of it, twice (kubernetes/kubernetes#77426); never added up."""

    def twice(entries: list[Json]) -> list[Json]:
        (entry,) = entries
        lives = [life(entry, "2026-01-01T09:30:00Z", 900 * MIB), life(entry, "2026-01-01T10:00:00Z", 4 * MIB)]
        if newest_first:
            lives.reverse()
        if field == "pod":
            return lives
        new = life(entry, "2026-01-01T10:00:00Z", 4 * MIB)
        return [new | {"containers": [one for each in lives for one in each["containers"]]}]

    furnish(stand_in_cluster, GROUP)
    summarised(monkeypatch, stand_in_cluster, twice)
    async with ready_worker(stand_in_cluster, tmp_path) as worker:
        found = await sample(worker)

    assert (found["memoryWorkingSetMiB"], found["rootfsUsedMiB"], found["ephemeralStorageUsedMiB"]) == (4, 4, 4)


async def test_of_a_pod_listed_twice_without_a_newer_start_what_differs_is_absent(
    stand_in_cluster: StandInCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which of two entries of one start and one moment is right cannot be told."""

    def twice(entries: list[Json]) -> list[Json]:
        (entry,) = entries
        return [life(entry, "2026-01-01T10:00:00Z", size * MIB) for size in (900, 4)]

    furnish(stand_in_cluster, GROUP)
    summarised(monkeypatch, stand_in_cluster, twice)
    async with ready_worker(stand_in_cluster, tmp_path) as worker:
        found = await sample(worker)

    for key in ("memoryWorkingSetMiB", "rootfsUsedMiB", "ephemeralStorageUsedMiB"):
        assert (key in found, found["absent"][key]) == (False, "invalid_data")
    assert "cpuUsageNanoCores" in found


def measured(name: str, cpu: str, memory: str) -> Json:
    return {"name": name, "usage": {"cpu": cpu, "memory": memory}}


MAIN, SIDECAR = measured("main", "100m", "64Mi"), measured("sshd", "20m", "8Mi")


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ([measured("", "120m", "72Mi")], (120_000_000, 72)),
        ([measured("POD", "1m", "1Mi")], (120_000_000, 72)),
        (
            [measured("", "120m", "72Mi"), measured("POD", "0", "0"), measured("gone", "5", "9Gi")],
            (120_000_000, 72),
        ),
        ([{"usage": {"cpu": "120m", "memory": "72Mi"}}, None, 5], (120_000_000, 72)),
        ([MAIN, SIDECAR], (120_000_000, 72)),
        ([measured("main", "100m", "65Mi")], (120_000_000, "invalid_data")),
        ([measured("main", "0.1", "64Mi")], (120_000_000, 72)),
    ],
    ids=["sum", "sandbox", "foreign", "nameless", "twice alike", "twice unlike", "twice, spelled otherwise"],
)
async def test_only_the_pods_own_containers_count_in_metrics_k8s_io_and_each_once(
    stand_in_cluster: StandInCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    more: list[Json],
    expected: tuple[int, int | str],
) -> None:
    """The sum under an empty name, the sandbox, and what the spec does not name (metrics-server#210)."""
    furnish(stand_in_cluster, GROUP)
    stand_in_cluster.store.delete("pods", "default", "web")
    stand_in_cluster.store.delete(INSTANCES, "default", "web")
    stand_in_cluster.add_instance(InstanceSpec("default", "web", "node-a", containers=("main", "sshd")))
    right = stand_in_cluster.kubelets.pod_metrics

    def pod_metrics(*arguments: Any) -> web.Response:
        body = right(*arguments).body
        assert isinstance(body, bytes)
        return json_answer(json.loads(body) | {"containers": [*more, MAIN, SIDECAR]})

    monkeypatch.setattr(stand_in_cluster.kubelets, "pod_metrics", pod_metrics)
    with stand_in_cluster.faults.on("kubelet/node-a", Fault(Trouble.ERROR)):
        async with ready_worker(stand_in_cluster, tmp_path) as worker:
            found = await sample(worker)

    cpu = found.get("cpuUsageNanoCores", found.get("absent", {}).get("cpuUsageNanoCores"))
    memory = found.get("memoryWorkingSetMiB", found.get("absent", {}).get("memoryWorkingSetMiB"))
    assert (cpu, memory) == expected


async def test_only_the_pods_own_containers_count_in_the_kubelets_summary(
    stand_in_cluster: StandInCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same kind: a sum or a sandbox among the containers of a pod without a memory block of its own."""

    def sandboxed(entries: list[Json]) -> list[Json]:
        (entry,) = [life(entry, "2026-01-01T10:00:00Z", 4 * MIB) for entry in entries]
        (main,) = entry["containers"]
        main["memory"]["workingSetBytes"] = 8 * MIB
        more = [main | {"name": name} for name in ("", "POD", "gone")]
        return [{key: value for key, value in entry.items() if key != "memory"} | {"containers": [*more, main]}]

    furnish(stand_in_cluster, GROUP)
    summarised(monkeypatch, stand_in_cluster, sandboxed)
    async with ready_worker(stand_in_cluster, tmp_path) as worker:
        found = await sample(worker)

    assert (found["memoryWorkingSetMiB"], found["rootfsUsedMiB"]) == (8, 4)
