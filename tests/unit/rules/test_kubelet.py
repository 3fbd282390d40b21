"""The kubelet rules: whole sums or none, ended containers out, old blocks out."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from devicemanager.model.accelerator import Figure, Reason
from devicemanager.model.pod_stats import (
    ContainerState,
    ContainerStats,
    CpuStats,
    DiskStats,
    MemoryStats,
    PodStats,
)
from devicemanager.model.usage import PodUsage
from devicemanager.rules.kubelet import pod_usage
from devicemanager.rules.kubelet_blocks import NodeCapacity

NOW = datetime(2026, 1, 1, 10, 5, 0, tzinfo=UTC)
RUNNING, WAITING, ENDED = ContainerState.RUNNING, ContainerState.WAITING, ContainerState.ENDED


def container(name: str = "main", *, cpu: int = 1000, memory: int = 4096, rootfs: int = 512) -> ContainerStats:
    return ContainerStats(
        name,
        NOW - timedelta(hours=1),
        CpuStats(NOW, cpu, 10**9),
        MemoryStats(NOW, memory, memory, memory),
        DiskStats(NOW, rootfs),
    )


def pod(
    *containers: ContainerStats,
    cpu: CpuStats | None = None,
    memory: MemoryStats | None = None,
    ephemeral_storage: DiskStats | None = None,
) -> PodStats:
    return PodStats("team-a", "web-0", "uid-1", containers, cpu, memory, ephemeral_storage)


def usage(entry: PodStats, states: Mapping[str, ContainerState] | None = None) -> PodUsage:
    return pod_usage(entry, node_time=NOW, states=states or {})


def test_the_pods_own_blocks_come_first() -> None:
    entry = pod(
        container(),
        cpu=CpuStats(NOW, 1500, 10**9),
        memory=MemoryStats(NOW, 5000, 6000, 4000),
        ephemeral_storage=DiskStats(NOW, 700),
    )
    assert usage(entry) == PodUsage(1500, 5000, 512, 700, measured_at=NOW)


def test_containers_are_summed_where_the_pod_has_no_block() -> None:
    entry = pod(container("a", cpu=1, memory=2, rootfs=3), container("b", cpu=10, memory=20, rootfs=30))
    assert usage(entry) == PodUsage(11, 22, 33, Reason.NOT_REPORTED, measured_at=NOW)


def test_a_measured_zero_stays_a_zero() -> None:
    entry = pod(container(cpu=0, rootfs=0), ephemeral_storage=DiskStats(NOW, 0))
    found = usage(entry)
    assert (found.cpu_nanocores, found.rootfs_used_bytes, found.ephemeral_storage_used_bytes) == (0, 0, 0)


@pytest.mark.parametrize("state", [RUNNING, None])
@pytest.mark.parametrize(
    ("block", "reason"),
    [
        (None, Reason.NOT_REPORTED),
        (CpuStats(NOW), Reason.NOT_REPORTED),
        (CpuStats(None), Reason.NOT_YET),
        (CpuStats(NOW, None, 662_324_669), Reason.NOT_YET),
        (CpuStats(None, 5, 5), Reason.INVALID_DATA),
        (CpuStats(NOW, 10**15, 5), Reason.INVALID_DATA),
        (CpuStats(NOW, 16384 * 10**9 + 1, 5), Reason.INVALID_DATA),
        (CpuStats(NOW, -1, 5), Reason.INVALID_DATA),
        (CpuStats(NOW, 2**63, 5), Reason.INVALID_DATA),
        (CpuStats(NOW - timedelta(seconds=121), 5, 5), Reason.STALE),
    ],
)
def test_one_unknown_container_makes_that_sum_absent_and_no_other(
    block: CpuStats | None, reason: Reason, state: ContainerState | None
) -> None:
    odd = replace(container("odd"), cpu=block)
    states = {} if state is None else {"odd": state, "main": state}
    found = usage(pod(container(), odd), states)
    assert found == PodUsage(reason, 8192, 1024, Reason.NOT_REPORTED, measured_at=NOW)


@pytest.mark.parametrize(
    ("block", "figure"),
    [
        (None, Reason.NOT_REPORTED),
        (MemoryStats(NOW), Reason.NOT_REPORTED),
        (MemoryStats(None), Reason.NOT_YET),
        (MemoryStats(NOW, 0, 0, 0), Reason.INVALID_DATA),
        (MemoryStats(NOW, 0), Reason.INVALID_DATA),
        (MemoryStats(NOW, 0, 4096, 0), 0),
        (MemoryStats(None, 7), Reason.INVALID_DATA),
        (MemoryStats(NOW, 1 << 50), 1 << 50),
        (MemoryStats(NOW, (1 << 50) + 1), Reason.INVALID_DATA),
        (MemoryStats(NOW, 2**63 - 1), Reason.INVALID_DATA),
        (MemoryStats(NOW, -1), Reason.INVALID_DATA),
        (MemoryStats(NOW - timedelta(seconds=120), 7), 7),
        (MemoryStats(NOW - timedelta(seconds=121), 7), Reason.STALE),
    ],
)
def test_memory_of_a_running_container(block: MemoryStats | None, figure: Figure) -> None:
    found = usage(pod(replace(container(), memory=block)), {"main": RUNNING})
    assert found.memory_working_set_bytes == figure
    assert found.cpu_nanocores == 1000


@pytest.mark.parametrize(
    ("block", "figure"),
    [
        (None, Reason.NOT_REPORTED),
        (DiskStats(None), Reason.NOT_YET),
        (DiskStats(NOW), Reason.NOT_REPORTED),
        (DiskStats(NOW - timedelta(seconds=300), 9), 9),
        (DiskStats(NOW - timedelta(seconds=301), 9), Reason.STALE),
        (DiskStats(NOW, -9), Reason.INVALID_DATA),
        (DiskStats(None, 9), Reason.INVALID_DATA),
        (DiskStats(NOW, 1 << 50), 1 << 50),
        (DiskStats(NOW, (1 << 50) + 1), Reason.INVALID_DATA),
        (DiskStats(NOW, 2**63 - 1), Reason.INVALID_DATA),
    ],
)
def test_disk_blocks(block: DiskStats | None, figure: Figure) -> None:
    entry = replace(pod(replace(container(), rootfs=block)), ephemeral_storage=block)
    found = usage(entry)
    assert found.rootfs_used_bytes == figure
    assert found.ephemeral_storage_used_bytes == figure


def test_nothing_is_stale_without_the_nodes_own_time() -> None:
    old = pod(cpu=CpuStats(NOW - timedelta(days=1), 5, 5))
    assert pod_usage(old, node_time=None).cpu_nanocores == 5


@pytest.mark.parametrize(
    ("behind", "cpu", "disk"),
    [
        (timedelta(minutes=3), 5, 9),
        (timedelta(minutes=3, seconds=1), Reason.STALE, 9),
        (timedelta(minutes=6), Reason.STALE, 9),
        (timedelta(minutes=6, seconds=1), Reason.STALE, Reason.STALE),
        (timedelta(hours=1), Reason.STALE, Reason.STALE),
        (timedelta(minutes=-3), 5, 9),
        (timedelta(minutes=-3, seconds=-1), Reason.INVALID_DATA, Reason.INVALID_DATA),
        (timedelta(days=-47_000), Reason.INVALID_DATA, Reason.INVALID_DATA),
    ],
)
@pytest.mark.parametrize("node_lags_too", [True, False])
def test_blocks_are_compared_with_the_kubelets_own_clock(
    behind: timedelta, cpu: Figure, disk: Figure, node_lags_too: bool
) -> None:
    entry = pod(cpu=CpuStats(NOW, 5, 5), ephemeral_storage=DiskStats(NOW, 9))
    found = pod_usage(entry, node_time=NOW if node_lags_too else None, answered_at=NOW + behind)
    assert (found.cpu_nanocores, found.ephemeral_storage_used_bytes) == (cpu, disk)
    assert found.is_stale is (disk is Reason.STALE)


@pytest.mark.parametrize(
    ("capacity", "cpu", "memory"),
    [
        (NodeCapacity(), 5000, 4096),
        (NodeCapacity(2500, 2048), 5000, 4096),
        (NodeCapacity(2499, 2048), Reason.INVALID_DATA, 4096),
        (NodeCapacity(2500, 2047), 5000, Reason.INVALID_DATA),
        (NodeCapacity(10**30, 10**30), 5000, 4096),
    ],
)
def test_no_pod_uses_more_than_twice_what_its_node_has(capacity: NodeCapacity, cpu: Figure, memory: Figure) -> None:
    summed = pod(container("a", cpu=2000, memory=2048), container("b", cpu=3000, memory=2048))
    whole = pod(cpu=CpuStats(NOW, 5000, 5), memory=MemoryStats(NOW, 4096))
    for entry in (summed, whole):
        found = pod_usage(entry, node_time=NOW, capacity=capacity)
        assert (found.cpu_nanocores, found.memory_working_set_bytes) == (cpu, memory)


def test_a_value_of_the_pod_without_a_time_is_not_papered_over_with_a_sum() -> None:
    assert usage(pod(container(), cpu=CpuStats(None, 5, 5))).cpu_nanocores is Reason.INVALID_DATA


def test_a_block_ahead_of_the_nodes_own_time_is_fresh() -> None:
    assert usage(pod(cpu=CpuStats(NOW + timedelta(minutes=9), 5, 5))).cpu_nanocores == 5


@pytest.mark.parametrize(
    "block", [CpuStats(NOW - timedelta(minutes=3), 5, 5), CpuStats(NOW, -5, 5), CpuStats(NOW, 2**63, 5)]
)
def test_a_bad_block_of_the_pod_is_not_papered_over_with_a_sum(block: CpuStats) -> None:
    assert isinstance(usage(pod(container(), cpu=block)).cpu_nanocores, Reason)


def test_a_pod_block_of_all_zeros_counts_as_unknown_and_the_sum_answers() -> None:
    zeros = MemoryStats(NOW, 0, 0, 0)
    assert usage(pod(container(), memory=zeros)).memory_working_set_bytes == 4096
    blind = pod(replace(container(), memory=zeros), memory=zeros)
    assert usage(blind, {"main": RUNNING}).memory_working_set_bytes is Reason.INVALID_DATA


def test_an_ended_container_leaves_every_sum() -> None:
    entry = pod(container(), container("init", cpu=7, memory=7, rootfs=7))
    found = usage(entry, {"main": RUNNING, "init": ENDED})
    assert found == PodUsage(1000, 4096, 512, Reason.NOT_REPORTED, measured_at=NOW)


def test_the_blocks_tell_that_a_container_has_ended_where_the_status_does_not() -> None:
    dying = ContainerStats("dying", NOW, CpuStats(NOW, 99_393_378, 0), MemoryStats(NOW, 0), DiskStats(NOW, 5))
    known: tuple[dict[str, ContainerState], ...] = ({}, {"dying": WAITING})
    for states in known:
        assert usage(pod(container(), dying), states).rootfs_used_bytes == 512
    assert usage(pod(container(), dying), {"dying": RUNNING}).rootfs_used_bytes == 517


def test_a_waiting_container_that_measurably_runs_is_counted() -> None:
    assert usage(pod(container()), {"main": WAITING}).cpu_nanocores == 1000


def test_a_running_container_that_the_kubelet_does_not_list_is_a_gap() -> None:
    found = usage(pod(container()), {"main": RUNNING, "side": RUNNING})
    assert found.cpu_nanocores is Reason.NOT_YET
    assert found.rootfs_used_bytes is Reason.NOT_YET
    with_block = usage(pod(container(), cpu=CpuStats(NOW, 5, 5)), {"main": RUNNING, "side": RUNNING})
    assert with_block.cpu_nanocores == 5


@pytest.mark.parametrize(
    ("states", "reason"),
    [({}, Reason.NOT_REPORTED), ({"main": WAITING}, Reason.NOT_YET), ({"main": ENDED}, Reason.NOT_REPORTED)],
)
def test_a_pod_without_a_live_container_has_no_sums(states: Mapping[str, ContainerState], reason: Reason) -> None:
    found = usage(pod(), states)
    assert found == PodUsage(reason, reason, reason, Reason.NOT_REPORTED, measured_at=None)


def test_a_container_listed_twice_counts_once_as_it_was_last() -> None:
    earlier = container(cpu=1, memory=1, rootfs=100)
    later = replace(container(cpu=2, memory=2, rootfs=200), cpu=CpuStats(NOW + timedelta(seconds=8), 2, 10**9))
    restarted = replace(earlier, started_at=NOW, rootfs=DiskStats(NOW, 300))
    for entries, rootfs in (((earlier, later), 200), ((later, earlier), 200), ((later, restarted), 300)):
        assert usage(pod(*entries)).rootfs_used_bytes == rootfs


def test_a_sum_beyond_an_int64_is_invalid() -> None:
    entry = pod(container("a", rootfs=2**62), container("b", rootfs=2**62))
    assert usage(entry).rootfs_used_bytes is Reason.INVALID_DATA


def test_the_oldest_block_used_dates_the_usage() -> None:
    old, older = NOW - timedelta(seconds=30), NOW - timedelta(minutes=4)
    entry = pod(container(), memory=MemoryStats(old, 5, 5, 5), ephemeral_storage=DiskStats(older, 5))
    assert usage(entry).measured_at == older
    unused = replace(entry, ephemeral_storage=DiskStats(NOW - timedelta(minutes=6), 5))
    assert usage(unused).measured_at == old


def test_of_several_reasons_the_gravest_is_given() -> None:
    worse = replace(container("b"), cpu=CpuStats(NOW, -1, 1))
    missing = replace(container("c"), cpu=None)
    assert usage(pod(missing, worse)).cpu_nanocores is Reason.INVALID_DATA
    assert usage(pod(worse, missing)).cpu_nanocores is Reason.INVALID_DATA
