"""An entry that is listed several times counts once, whatever the order, or is absent where in doubt."""

from dataclasses import replace
from datetime import UTC, datetime
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from devicemanager.model.accelerator import Reason
from devicemanager.model.pod_stats import ContainerStats, CpuStats, DiskStats, MemoryStats, PodStats
from devicemanager.model.usage import ContainerMetrics, PodMetrics, PodUsage, SnapshotCard
from devicemanager.rules import kubelet, pod_metrics
from devicemanager.rules.snapshot_view import agreed
from tests import devices
from tests.unit.rules.test_cards import snapshot_card

NOW = datetime(2026, 1, 1, 10, 0, tzinfo=UTC)

times = st.none() | st.integers(0, 3).map(lambda minute: NOW.replace(minute=minute))
amounts = st.none() | st.integers(1, 3)
cpu = st.none() | st.builds(CpuStats, times, amounts, amounts)
memory = st.none() | st.builds(MemoryStats, times, amounts)
disk = st.none() | st.builds(DiskStats, times, amounts)
containers = st.builds(ContainerStats, st.sampled_from(["main", "sshd"]), times, cpu, memory, disk)
lists = st.lists(containers, max_size=5)
entries = st.builds(
    PodStats,
    namespace=st.just("team-a"),
    name=st.just("web"),
    uid=st.just("u-1"),
    containers=lists.map(tuple),
    cpu=cpu,
    memory=memory,
    ephemeral_storage=disk,
    started_at=times,
)


def usage(pod: PodStats) -> PodUsage:
    return kubelet.pod_usage(pod, node_time=None)


@given(st.lists(entries, min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_a_pods_entries_count_in_no_order_and_are_never_added(pods: list[PodStats], random: Random) -> None:
    shuffled = list(pods)
    random.shuffle(shuffled)
    found = usage(kubelet.newest(shuffled))
    assert found == usage(kubelet.newest(pods))
    assert found == usage(kubelet.newest([*pods, *shuffled]))
    for figure, given_figures in (
        (found.memory_working_set_bytes, [usage(pod).memory_working_set_bytes for pod in pods]),
        (found.ephemeral_storage_used_bytes, [usage(pod).ephemeral_storage_used_bytes for pod in pods]),
    ):
        assert figure in [*given_figures, Reason.INVALID_DATA]


@given(lists, st.randoms(use_true_random=False))
def test_the_order_of_containers_does_not_matter_and_none_counts_twice(
    listed: list[ContainerStats], random: Random
) -> None:
    shuffled = list(listed)
    random.shuffle(shuffled)
    pod = PodStats("team-a", "web", "u-1", tuple(listed))
    found = usage(pod)
    assert found == usage(replace(pod, containers=tuple(shuffled)))
    assert found == usage(replace(pod, containers=(*listed, *shuffled)))


figures = st.sampled_from([1, 2, Reason.NOT_REPORTED, Reason.INVALID_DATA])
measured = st.lists(st.builds(ContainerMetrics, st.sampled_from(["main", "sshd", "", "POD"]), figures, figures))


@given(measured, st.randoms(use_true_random=False))
def test_each_own_container_of_metrics_k8s_io_counts_once(listed: list[ContainerMetrics], random: Random) -> None:
    shuffled = list(listed)
    random.shuffle(shuffled)

    def of(entries: list[ContainerMetrics]) -> object:
        metrics = PodMetrics(NOW, tuple(entries))
        return pod_metrics.pod_usage(metrics, pod_created_at=None, own=frozenset({"main", "sshd"}))

    found = of(listed)
    assert found == of(shuffled) == of(listed + shuffled)
    assert found == of([entry for entry in listed if entry.name in {"main", "sshd"}])
    if isinstance(found, PodUsage) and not isinstance(found.cpu_nanocores, Reason):
        per_name = {entry.name: entry.cpu_nanocores for entry in listed if entry.name in {"main", "sshd"}}
        assert found.cpu_nanocores == sum(value for value in per_name.values() if not isinstance(value, Reason))


cards = st.builds(
    lambda used, unhealthy: replace(
        snapshot_card(), figures=devices.published(memory_used=used), unhealthy=unhealthy
    ),
    figures,
    st.booleans() | st.just(Reason.NOT_REPORTED),
)


@given(cards, cards, cards)
def test_cards_agree_in_any_order(a: SnapshotCard, b: SnapshotCard, c: SnapshotCard) -> None:
    assert agreed(a, b) == agreed(b, a)
    assert agreed(agreed(a, b), c) == agreed(a, agreed(b, c))
    assert agreed(a, a) == a
