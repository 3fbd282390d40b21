"""``devicemanager worker`` as a process whose sources are old, odd, moving or of two minds: it tells the truth."""

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import unused_port

from devicemanager.demo.cluster.access import Rule
from devicemanager.demo.cluster.objects import SYSTEM_NAMESPACE, Grant, InstanceSpec, kubernetes_time
from devicemanager.demo.cluster.responses import json_answer
from tests.cluster.stand_in import StandInCluster
from tests.e2e.test_worker import path, started
from tests.e2e.test_worker_hostile_peers import GROUP, OWN, device_manager, said, worker_of
from tests.unit.worker.conftest import card, snapshot_document

pytestmark = pytest.mark.asyncio

Json = dict[str, Any]
Change = Callable[[Json, Json], None]
"""Changes a kubelet's document, and the pod's entry in it."""

WEB = InstanceSpec("default", "web", "node-a", [Grant("nvidia", OWN)])


class OddKubelet:
    """The stand-in's kubelets, of which a test may change what they say, and when they say that they measured."""

    def __init__(self, cluster: StandInCluster, monkeypatch: pytest.MonkeyPatch) -> None:
        self.change: Change = lambda document, entry: None
        self.behind = timedelta(0)
        self._right = cluster.kubelets.summary
        monkeypatch.setattr(cluster.kubelets, "summary", self.summary)

    def summary(self, node: str, now: datetime) -> web.Response:
        body = self._right(node, now - self.behind).body
        assert isinstance(body, bytes)
        document = json.loads(body)
        for entry in document["pods"]:
            self.change(document, entry)
        return json_answer(document)


@pytest.fixture
def kubelet(stand_in_cluster: StandInCluster, monkeypatch: pytest.MonkeyPatch) -> OddKubelet:
    stand_in_cluster.add_node("node-a")
    stand_in_cluster.add_instance(WEB)
    return OddKubelet(stand_in_cluster, monkeypatch)


def absent(found: Json, *keys: str) -> list[str | None]:
    return [None if key in found else found["absent"][key] for key in keys]


def set_cpu(**block: Any) -> Change:
    def change(document: Json, entry: Json) -> None:
        entry["cpu"] = {key: value for key, value in (entry["cpu"] | block).items() if value is not None}

    return change


async def test_what_a_kubelet_says_of_another_time_or_of_no_machine(
    stand_in_cluster: StandInCluster, kubelet: OddKubelet, tmp_path: Path
) -> None:
    """kubernetes/kubernetes#109679, #32414."""
    figures = ("cpuUsageNanoCores", "memoryWorkingSetMiB", "ephemeralStorageUsedMiB")
    async with (
        device_manager(tmp_path / "peer") as peer,
        worker_of(stand_in_cluster, peer, tmp_path, "--kubelet-max-age=0s") as ask,
    ):
        assert absent(await ask("web"), *figures) == [None, None, None]
        for block in (
            {"time": None},
            {"time": "1754-08-30T22:43:41.128654848Z"},
            {"time": "1970-01-01T00:00:00Z"},
            {"time": "1999-12-31T23:59:59Z"},
            {"time": "2154-01-01T00:00:00Z"},
            {"usageNanoCores": 10**15},
        ):
            kubelet.change = set_cpu(**block)
            found = await ask("web")
            assert absent(found, *figures) == ["invalid_data", None, None], block
            assert said(found, "kubelet")[0] == "ok"

        def huge(document: Json, entry: Json) -> None:
            entry["memory"]["workingSetBytes"] = 3 * 304 * 2**30  # the stand-in's nodes have 304 GiB

        kubelet.change = huge
        assert absent(await ask("web"), *figures) == [None, "invalid_data", None]

        kubelet.change, kubelet.behind = lambda document, entry: None, timedelta(hours=1)
        found = await ask("web")
        assert (said(found, "kubelet")[0], said(found, "metrics.k8s.io")[0]) == ("stale", "ok")
        assert absent(found, *figures) == [None, None, "stale"]


async def test_limits_are_those_in_force_and_the_operators_totals_are_the_sums(
    stand_in_cluster: StandInCluster, kubelet: OddKubelet, tmp_path: Path
) -> None:
    """derailed/k9s#2196, kubernetes/kube-state-metrics#3107, #2980."""

    def edit(change: Callable[[Json], None]) -> None:
        stand_in_cluster.store.edit("pods", "default", "web", change)

    async with (
        device_manager(tmp_path / "peer") as peer,
        worker_of(stand_in_cluster, peer, tmp_path) as ask,
    ):
        whole = await ask("web")
        assert whole["limits"] == {"cpuMilliCores": 4000, "memoryMiB": 8192, "ephemeralStorageMiB": 20480}
        assert (whole["cpuTotalMilliCores"], whole["memoryTotalMiB"], whole["storageTotalMiB"]) == (
            4000,
            8192,
            20480,
        )
        assert whole["cpuUsedMilliCores"] == -(-whole["cpuUsageNanoCores"] // 1_000_000)
        assert whole["memoryUsedMiB"] == whole["memoryWorkingSetMiB"]

        applied = {"limits": {"cpu": "2", "memory": "8Gi"}, "requests": {"cpu": "1", "memory": "4Gi"}}
        edit(lambda pod: pod["status"].update(containerStatuses=[{"name": "main", "resources": applied}]))
        assert (await ask("web"))["limits"]["cpuMilliCores"] == 2000

        edit(lambda pod: pod["spec"]["containers"].append({"name": "sshd", "image": "sshd"}))
        beside = await ask("web")
        assert beside["limits"] == {"ephemeralStorageMiB": 20480}
        assert beside["cpuTotalMilliCores"] == 2000

        edit(lambda pod: pod["spec"].update(resources={"limits": {"cpu": "3"}}))
        assert (await ask("web"))["limits"] == {"cpuMilliCores": 3000, "ephemeralStorageMiB": 20480}


async def test_a_pod_made_anew_is_measured_at_once_and_a_static_one_under_any_of_its_uids(
    stand_in_cluster: StandInCluster, kubelet: OddKubelet, tmp_path: Path
) -> None:
    """rancher/rke2#8199."""
    stand_in_cluster.remove_metrics_api()
    stand_in_cluster.add_user("viewer", "viewer")
    stand_in_cluster.grant(Rule("viewer", ("get",), (GROUP,), ("instances/metrics",), namespace="default"))
    async with started(stand_in_cluster, tmp_path, GROUP, ["--kubelet-max-age=60s"]) as worker:
        worker.port = (await worker.logged("server_listening"))["port"]
        await worker.ready()
        assert (await worker.ask(path(GROUP), "viewer")).status == 200
        instance = stand_in_cluster.store.get("instances.worker.gpustack.ai", "default", "web")
        assert instance is not None
        stand_in_cluster.recreate_pod(WEB, instance["metadata"]["uid"])
        created = kubernetes_time(datetime.now(UTC))
        stand_in_cluster.store.edit(
            "pods", "default", "web", lambda pod: pod["metadata"].update(creationTimestamp=created)
        )
        async with asyncio.timeout(20):
            while (await worker.ask(path(GROUP), "viewer")).status != 200:  # a second must pass between two reads
                pass
        assert len(stand_in_cluster.requests.matching("nodes/proxy")) == 2

        def mirror(pod: Json) -> None:
            created = kubernetes_time(datetime.now(UTC) + timedelta(seconds=1))
            pod["metadata"] |= {"uid": "mirror", "creationTimestamp": created}
            pod["metadata"]["annotations"]["kubernetes.io/config.mirror"] = "static"

        def as_static(document: Json, entry: Json) -> None:
            entry["podRef"]["uid"] = "static"

        kubelet.change = as_static
        stand_in_cluster.store.edit("pods", "default", "web", mirror)
        async with asyncio.timeout(20):
            while (await worker.ask(path(GROUP), "viewer")).status != 200:
                pass


async def test_cards_stay_listed_with_health_and_reasons_whatever_their_device_manager_says(
    stand_in_cluster: StandInCluster, kubelet: OddKubelet, tmp_path: Path
) -> None:
    async with device_manager(tmp_path / "peer") as peer:
        stand_in_cluster.add_device_manager("node-a", "nvidia", "127.0.0.1", peer.port)
        async with worker_of(stand_in_cluster, peer, tmp_path, "--snapshot-max-age=0s") as ask:
            peer.document = snapshot_document(card(OWN, unhealthy=True, unhealthyReason="double-bit ECC error"))
            (ill,) = (await ask("web"))["accelerators"]
            assert (ill["unhealthy"], ill["unhealthyReason"]) == (True, "double-bit ECC error")
            assert (ill["memoryTotalMiB"], ill["memoryUsedMiB"]) == (ill["memoryMiB"], ill["memoryUsageMiB"])

            good = snapshot_document(card(OWN))
            missing = {"state": "library_missing", "detail": "libnvidia-ml.so.1 not found"}
            for document, headers, state, reason in (
                (good, {"Age": "99999999999"}, "stale", "stale"),
                (
                    good | {"timestamp": "0001-01-01T00:00:00Z", "collector": missing},
                    {},
                    "library_missing",
                    "not_reported",
                ),
            ):
                peer.document, peer.headers = document, headers
                found = await ask("web")
                assert said(found, "device-manager/nvidia")[0] == state
                (entry,) = found["accelerators"]
                assert (entry["id"], entry["mode"]) == (OWN, "Exclusive")
                assert set(entry["absent"].values()) == {reason}

            peer.document, peer.headers = good | {"timestamp": "1970-01-01T00:00:09Z"}, {"Age": "3"}
            unset = await ask("web")
            assert unset["accelerators"][0]["memoryUsageMiB"] == 20480
            assert unset["timestamp"] > "2026"


@pytest.mark.parametrize("timestamp", [{}, {"timestamp": 1786526104}, {"timestamp": None}])
async def test_cards_stay_listed_where_nothing_says_how_old_their_figures_are(
    stand_in_cluster: StandInCluster, kubelet: OddKubelet, tmp_path: Path, timestamp: Json
) -> None:
    async with device_manager(tmp_path / "peer") as peer:
        stand_in_cluster.add_device_manager("node-a", "nvidia", "127.0.0.1", peer.port)
        async with worker_of(stand_in_cluster, peer, tmp_path) as ask:
            good = snapshot_document(card(OWN))
            peer.document = {key: value for key, value in good.items() if key != "timestamp"} | timestamp
            peer.headers = {"Age": "0"}
            found = await ask("web")

    assert said(found, "device-manager/nvidia")[0] == "invalid"
    (entry,) = found["accelerators"]
    assert (entry["id"], entry["mode"]) == (OWN, "Exclusive")
    assert set(entry["absent"].values()) == {"invalid_data"}


async def test_a_device_manager_that_is_rolled_costs_no_card(
    stand_in_cluster: StandInCluster, kubelet: OddKubelet, tmp_path: Path
) -> None:
    """The newer one is gone, then of another authority; the older one answers."""

    def newest(pod: Json) -> None:
        pod["metadata"]["creationTimestamp"] = "2999-01-01T00:00:00Z"

    async with device_manager(tmp_path / "old") as old, device_manager(tmp_path / "stranger") as stranger:
        stand_in_cluster.add_device_manager("node-a", "nvidia", "127.0.0.1", old.port)
        for port in (unused_port(), stranger.port):
            name = stand_in_cluster.add_device_manager("node-a", "nvidia", "127.0.0.1", port)
            stand_in_cluster.store.edit("pods", SYSTEM_NAMESPACE, name, newest)
        async with worker_of(stand_in_cluster, old, tmp_path, "--snapshot-max-age=0s") as ask:
            for _ in range(3):
                found = await ask("web")
                assert said(found, "device-manager/nvidia")[0] == "ok"
                assert [entry["memoryUsageMiB"] for entry in found["accelerators"]] == [20480]
        assert stranger.requests == []
