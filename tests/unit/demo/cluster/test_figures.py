"""Figures of the stand-in's kubelets."""

from datetime import UTC, datetime, timedelta

import pytest

from devicemanager.demo.cluster import objects
from devicemanager.demo.cluster.figures import STEP, housekeeping_time, pod_figures, pod_metrics, stats_summary
from devicemanager.demo.cluster.objects import Amounts, InstanceSpec

NOW = datetime(2026, 8, 12, 9, 15, 0, tzinfo=UTC)
POD = objects.instance_pod(
    InstanceSpec("team-a", "web", "node-a", containers=("main", "sshd")),
    "instance-uid",
    "pod-uid",
    NOW - timedelta(hours=1),
    "10.0.0.1",
)


def test_the_same_moment_has_the_same_figures_and_the_next_one_others() -> None:
    assert pod_figures(POD, NOW) == pod_figures(POD, NOW)
    assert pod_figures(POD, NOW).cpu_nanocores != pod_figures(POD, NOW + STEP).cpu_nanocores
    assert pod_figures(POD, NOW).memory_bytes != pod_figures(POD, NOW + STEP).memory_bytes
    assert pod_figures(POD, NOW).rootfs_bytes != pod_figures(POD, NOW + STEP).rootfs_bytes


@pytest.mark.parametrize("minute", range(30))
def test_figures_stay_within_the_limits(minute: int) -> None:
    figures = pod_figures(POD, NOW + timedelta(minutes=minute))
    assert 0 < figures.cpu_nanocores < 4_000_000_000
    assert 0 < figures.memory_bytes < 8 * 1024**3
    assert 0 < figures.rootfs_bytes + figures.logs_bytes < 20 * 1024**3


def test_used_time_is_the_integral_of_use() -> None:
    seconds = 30
    before = pod_figures(POD, NOW)
    after = pod_figures(POD, NOW + timedelta(seconds=seconds))
    used = sum(pod_figures(POD, NOW + timedelta(seconds=s + 0.5)).cpu_nanocores for s in range(seconds))
    assert after.cpu_nanoseconds - before.cpu_nanoseconds == pytest.approx(used, rel=0.001)


def test_a_summary_splits_a_pod_among_its_containers() -> None:
    summary = stats_summary("node-a", [POD], NOW)
    (entry,) = summary["pods"]
    assert [container["name"] for container in entry["containers"]] == ["main", "sshd"]
    total = sum(container["cpu"]["usageNanoCores"] for container in entry["containers"])
    assert total == pytest.approx(entry["cpu"]["usageNanoCores"], abs=2)
    assert entry["cpu"]["time"] == summary["node"]["cpu"]["time"] == "2026-08-12T09:15:00Z"


def test_limits_may_be_millicores_and_plain_bytes_or_missing() -> None:
    spec = InstanceSpec("a", "b", "n", limits=Amounts(cpu="250m", memory="1000000"))
    small = objects.instance_pod(spec, "i", "p", NOW, "10.0.0.1")
    assert pod_figures(small, NOW).cpu_nanocores < 250_000_000
    assert pod_figures(small, NOW).memory_bytes < 1_000_000
    daemon = objects.device_manager_pod("n", "nvidia", "uid-1", NOW, "10.0.0.2")
    assert pod_figures(daemon, NOW).cpu_nanocores < 50_000_000


def test_kubelets_measure_in_steps() -> None:
    assert housekeeping_time(NOW + timedelta(seconds=4.9)) == NOW
    assert housekeeping_time(NOW + timedelta(seconds=5)) == NOW + STEP
    assert housekeeping_time(NOW + timedelta(seconds=4.9), timedelta(seconds=2)) == NOW + timedelta(seconds=4)


def test_metrics_are_quantities() -> None:
    entry = pod_metrics(POD, NOW)
    figures = pod_figures(POD, NOW)
    assert entry["timestamp"] == "2026-08-12T09:15:00Z"
    assert entry["containers"][0]["usage"] == {
        "cpu": f"{figures.cpu_nanocores // 2}n",
        "memory": f"{figures.memory_bytes // 2 // 1024}Ki",
    }
