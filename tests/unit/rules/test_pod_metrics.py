"""metrics.k8s.io answers: sums in full or not at all, and answers that are none (case M01)."""

from datetime import UTC, datetime, timedelta

import pytest

from devicemanager.model.accelerator import Figure, Reason
from devicemanager.model.pod_stats import ContainerState
from devicemanager.model.usage import ContainerMetrics, PodMetrics, PodUsage, SourceFailure, SourceState
from devicemanager.rules.pod_metrics import pod_usage

NOW = datetime(2026, 1, 1, 10, 1, tzinfo=UTC)


def metrics(*figures: tuple[Figure, Figure], timestamp: datetime | None = NOW) -> PodMetrics:
    return PodMetrics(timestamp, tuple(ContainerMetrics(f"c{i}", *pair) for i, pair in enumerate(figures)))


def test_sums_cpu_and_memory_and_has_no_disk() -> None:
    usage = pod_usage(metrics((1, 10), (2, 20)), pod_created_at=NOW - timedelta(hours=1))
    assert usage == PodUsage(3, 30, Reason.NOT_REPORTED, Reason.NOT_REPORTED, measured_at=NOW)


@pytest.mark.parametrize("answer", [metrics((1, 1), timestamp=None), metrics()], ids=["no time", "no containers"])
def test_an_answer_without_time_or_containers_counts_as_unserved(answer: PodMetrics) -> None:
    failure = pod_usage(answer, pod_created_at=None)
    assert isinstance(failure, SourceFailure)
    assert failure.state is SourceState.NOT_SERVED


def test_an_entry_older_than_the_pod_is_an_earlier_pods() -> None:
    failure = pod_usage(metrics((1, 1)), pod_created_at=NOW + timedelta(seconds=1))
    assert isinstance(failure, SourceFailure)
    assert failure.state is SourceState.UNKNOWN_POD
    assert isinstance(pod_usage(metrics((1, 1)), pod_created_at=NOW), PodUsage)


@pytest.mark.parametrize(
    ("age", "state"),
    [
        (timedelta(minutes=5), None),
        (timedelta(minutes=5, seconds=1), SourceState.STALE),
        (timedelta(days=180), SourceState.STALE),
        (timedelta(minutes=-5), None),
        (timedelta(minutes=-5, seconds=-1), SourceState.INVALID),
        (timedelta(days=-47_000), SourceState.INVALID),
    ],
)
def test_an_entry_of_another_time_is_not_used(age: timedelta, state: SourceState | None) -> None:
    found = pod_usage(metrics((1, 1)), pod_created_at=None, answered_at=NOW + age)
    assert (found.state if isinstance(found, SourceFailure) else None) is state


@pytest.mark.parametrize(
    ("figures", "cpu", "memory"),
    [
        ((16384 * 10**9, 1 << 50), 16384 * 10**9, 1 << 50),
        ((16384 * 10**9 + 1, 1), Reason.INVALID_DATA, 1),
        ((10**15, 1), Reason.INVALID_DATA, 1),
        ((1, (1 << 50) + 1), 1, Reason.INVALID_DATA),
        ((1, 2**63 - 1), 1, Reason.INVALID_DATA),
    ],
)
def test_what_no_node_has_is_invalid(figures: tuple[Figure, Figure], cpu: Figure, memory: Figure) -> None:
    found = pod_usage(metrics(figures), pod_created_at=None)
    assert isinstance(found, PodUsage)
    assert (found.cpu_nanocores, found.memory_working_set_bytes) == (cpu, memory)


@pytest.mark.parametrize(
    ("second", "reason"),
    [(Reason.NOT_REPORTED, Reason.NOT_REPORTED), (Reason.INVALID_DATA, Reason.INVALID_DATA)],
)
def test_one_unknown_container_makes_that_sum_absent(second: Reason, reason: Reason) -> None:
    usage = pod_usage(metrics((1, 10), (second, 20)), pod_created_at=None)
    assert isinstance(usage, PodUsage)
    assert (usage.cpu_nanocores, usage.memory_working_set_bytes) == (reason, 30)


def test_an_ended_container_leaves_the_sums() -> None:
    answer = metrics((1, 10), (Reason.NOT_REPORTED, Reason.NOT_REPORTED))
    usage = pod_usage(answer, pod_created_at=None, states={"c1": ContainerState.ENDED})
    assert isinstance(usage, PodUsage)
    assert (usage.cpu_nanocores, usage.memory_working_set_bytes) == (1, 10)


def test_a_container_that_runs_and_is_missing_makes_the_sums_absent() -> None:
    states = {"c0": ContainerState.RUNNING, "c1": ContainerState.RUNNING, "c2": ContainerState.WAITING}
    usage = pod_usage(metrics((1, 10)), pod_created_at=None, states=states)
    assert isinstance(usage, PodUsage)
    assert (usage.cpu_nanocores, usage.memory_working_set_bytes) == (Reason.NOT_YET, Reason.NOT_YET)
    assert usage.measured_at is None
    invalid = pod_usage(metrics((Reason.INVALID_DATA, 10)), pod_created_at=None, states=states)
    assert isinstance(invalid, PodUsage)
    assert invalid.cpu_nanocores is Reason.INVALID_DATA
    del states["c1"]
    whole = pod_usage(metrics((1, 10)), pod_created_at=None, states=states)
    assert isinstance(whole, PodUsage)
    assert (whole.cpu_nanocores, whole.memory_working_set_bytes) == (1, 10)


def test_without_a_figure_nothing_was_measured() -> None:
    usage = pod_usage(metrics((Reason.INVALID_DATA, Reason.INVALID_DATA)), pod_created_at=None)
    assert isinstance(usage, PodUsage)
    assert usage.measured_at is None


def test_a_sum_beyond_an_int64_is_invalid() -> None:
    usage = pod_usage(metrics((2**62, 1), (2**62, 1)), pod_created_at=None)
    assert isinstance(usage, PodUsage)
    assert usage.cpu_nanocores is Reason.INVALID_DATA
