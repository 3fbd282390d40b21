"""The kubelet's summary: whatever the bytes, and whatever one bad pod holds."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from devicemanager.errors import DocumentError
from devicemanager.model.accelerator import Figure, Reason
from devicemanager.model.pod_stats import ContainerState, PodStats
from devicemanager.rules.kubelet import pod_usage
from devicemanager.rules.kubelet_blocks import NodeCapacity
from devicemanager.wire import kubelet_summary
from tests.property.json_strategies import anything, bodies, objects

NOW = datetime(2026, 1, 1, 10, 5, tzinfo=UTC)

IMPOSSIBLE = ("0001-01-01T00:00:00Z", "1754-08-30T22:43:41Z", "1970-01-01T00:00:00Z", "2154-01-01T00:00:00Z")
times = st.sampled_from([None, *(f"2026-01-01T10:0{minute}:00Z" for minute in range(10)), *IMPOSSIBLE])
integers = st.none() | st.integers(-2, 100) | st.integers(-2, 2**64)


def block(*keys: str, values: st.SearchStrategy[Any] = integers) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional={"time": times, **dict.fromkeys(keys, values)})


def blocks(values: st.SearchStrategy[Any] = integers) -> dict[str, st.SearchStrategy[Any]]:
    return {
        "cpu": block("usageNanoCores", "usageCoreNanoSeconds", values=values),
        "memory": block("workingSetBytes", "usageBytes", "rssBytes", values=values),
    }


def pods(values: st.SearchStrategy[Any] = integers) -> st.SearchStrategy[dict[str, Any]]:
    disk = block("usedBytes", values=values)
    container = st.fixed_dictionaries(
        {"name": st.sampled_from(["main", "main-2", "init", "sshd"])},
        optional={"startTime": times, "rootfs": disk, **blocks(values)},
    )
    return st.fixed_dictionaries(
        {
            "podRef": st.fixed_dictionaries(
                {
                    "name": st.sampled_from(["web", "web-0", "web-00"]),
                    "namespace": st.sampled_from(["team", "team-a"]),
                    "uid": st.sampled_from(["u-1", "u-2", "u-11"]),
                }
            ),
            "containers": st.lists(container, max_size=4),
        },
        optional={"ephemeral-storage": disk, **blocks(values)},
    )


states = st.dictionaries(
    st.sampled_from(["main", "main-2", "init", "sshd", "gone"]), st.sampled_from(list(ContainerState))
)


def decode(*documents: object, kubelets: bool = True) -> dict[tuple[str, str, str], PodStats]:
    """Written as kubelets do, without white space, or otherwise."""
    separators = (",", ":") if kubelets else (", ", ": ")
    body = json.dumps({"node": {}, "pods": documents}, separators=separators).encode()
    summary = kubelet_summary.decode(body)
    return {(entry.namespace, entry.name, entry.uid): entry for entry in summary.pods}


loose = objects(
    {
        "node": objects({"nodeName": st.text(), "cpu": objects({"time": times})}),
        "pods": st.lists(pods(anything) | anything, max_size=3),
    }
)


@given(bodies(loose | anything), states)
def test_any_bytes_are_a_summary_or_our_own_error(body: bytes, known: dict[str, ContainerState]) -> None:
    try:
        summary = kubelet_summary.decode(body)
    except DocumentError:
        return
    for entry in summary.pods:
        usage = pod_usage(entry, node_time=summary.node_cpu_time, states=known)
        for figure in (
            usage.cpu_nanocores,
            usage.memory_working_set_bytes,
            usage.rootfs_used_bytes,
            usage.ephemeral_storage_used_bytes,
        ):
            assert isinstance(figure, Reason) or (type(figure) is int and 0 <= figure <= 2**63 - 1)


@given(st.lists(pods(), max_size=4), pods(anything) | anything, st.integers(0, 4))
def test_one_malformed_pod_changes_no_other(documents: list[dict[str, Any]], bad: object, position: int) -> None:
    alone, together = decode(*documents), decode(*documents[:position], bad, *documents[position:])
    for identity, entry in together.items():
        if identity in alone and not _is(identity, bad):
            assert entry == alone[identity]
    assert {identity for identity in alone if not _is(identity, bad)} <= together.keys()


@given(st.lists(pods(anything) | pods(), max_size=4))
def test_a_summary_that_kubelets_would_write_otherwise_reads_the_same(documents: list[dict[str, Any]]) -> None:
    assert decode(*documents) == decode(*documents, kubelets=False)


def _is(identity: tuple[str, str, str], document: object) -> bool:
    ref = document.get("podRef") if isinstance(document, dict) else None
    return isinstance(ref, dict) and (ref.get("namespace"), ref.get("name"), ref.get("uid")) == identity


@given(pods(), states, st.permutations(range(4)))
def test_the_order_of_the_containers_does_not_matter(
    document: dict[str, Any], known: dict[str, ContainerState], order: list[int]
) -> None:
    shuffled = {
        **document,
        "containers": [document["containers"][i] for i in order if i < len(document["containers"])],
    }
    (one,), (two,) = decode(document).values(), decode(shuffled).values()
    assert pod_usage(one, node_time=NOW, states=known) == pod_usage(two, node_time=NOW, states=known)


@given(pods())
def test_sums_are_those_of_a_naive_reading(document: dict[str, Any]) -> None:
    """All containers run, each once: then a sum is the sum, or nothing when any part is unusable."""
    by_name = {container["name"]: container for container in document["containers"]}
    document["containers"] = list(by_name.values())
    (entry,) = decode(document).values()
    usage = pod_usage(entry, node_time=NOW, states=dict.fromkeys(by_name, ContainerState.RUNNING))
    parts = [_usable(container.get("rootfs"), minutes=5) for container in by_name.values()]
    if not parts or None in parts or sum(part or 0 for part in parts) > 2**50:
        assert isinstance(usage.rootfs_used_bytes, Reason)
    else:
        assert usage.rootfs_used_bytes == sum(part or 0 for part in parts)
    expected = _usable(document.get("ephemeral-storage"), minutes=5)
    assert _measured(usage.ephemeral_storage_used_bytes) == expected


def _usable(found: dict[str, Any] | None, *, minutes: int) -> int | None:
    value = (found or {}).get("usedBytes")
    time = (found or {}).get("time")
    if value is None or not 0 <= value <= 2**50 or time is None:
        return None
    return None if NOW - datetime.fromisoformat(time) > timedelta(minutes=minutes) else int(value)


@given(pods(), states, st.integers(-20, 20), st.none() | st.integers(0, 100))
def test_no_figure_is_of_another_time_or_beyond_the_node(
    document: dict[str, Any], known: dict[str, ContainerState], minutes: int, cores: int | None
) -> None:
    """By the kubelet's own clock, whatever its node's block says."""
    (entry,) = decode(document).values()
    answered_at, capacity = NOW + timedelta(minutes=minutes), NodeCapacity(cores, cores)
    usage = pod_usage(entry, node_time=None, answered_at=answered_at, capacity=capacity, states=known)
    if usage.measured_at is not None:
        assert timedelta(minutes=-3) <= answered_at - usage.measured_at <= timedelta(minutes=6)
    for figure in (usage.cpu_nanocores, usage.memory_working_set_bytes):
        assert isinstance(figure, Reason) or cores is None or figure <= 2 * cores
    assert usage.is_stale <= (usage.measured_at is None)


def _measured(figure: Figure) -> int | None:
    return None if isinstance(figure, Reason) else figure
