"""The kubelet's summary: cases K01 and K02, and bad data that costs itself only."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from devicemanager.errors import DocumentError
from devicemanager.model.accelerator import Reason
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
from devicemanager.rules.units import mib
from devicemanager.wire.kubelet_summary import Summary, decode

TIME = "2026-01-01T10:05:00Z"
MOMENT = datetime(2026, 1, 1, 10, 5, tzinfo=UTC)
UID = "11111111-1111-4111-8111-111111111111"

POD = {
    "node": {"nodeName": "node-a", "startTime": "2026-01-01T00:00:00Z"},
    "pods": [
        {
            "podRef": {"name": "web-0", "namespace": "team-a", "uid": UID},
            "startTime": "2026-01-01T10:00:00Z",
            "containers": [
                {
                    "name": "init-net",
                    "startTime": "2026-01-01T10:00:01Z",
                    "cpu": {"time": None},
                    "memory": {"time": None},
                    "rootfs": {"time": None},
                },
                {
                    "name": "init-db",
                    "startTime": "2026-01-01T10:00:02Z",
                    "cpu": {"time": TIME, "usageNanoCores": 0, "usageCoreNanoSeconds": 0},
                    "memory": {"time": TIME, "workingSetBytes": 0},
                },
                {
                    "name": "app",
                    "startTime": "2026-01-01T10:04:59Z",
                    "cpu": {"time": TIME, "usageCoreNanoSeconds": 662324669},
                    "memory": {"time": TIME, "workingSetBytes": 39690240},
                },
                {
                    "name": "dying",
                    "startTime": "2026-01-01T10:00:03Z",
                    "cpu": {"time": TIME, "usageNanoCores": 99393378, "usageCoreNanoSeconds": 0},
                    "memory": {"time": TIME, "workingSetBytes": 0},
                },
                {"name": "bare", "startTime": None},
            ],
        }
    ],
}


def pod(name: str = "web-0", uid: str = UID, namespace: str = "team-a") -> dict[str, Any]:
    return {
        "podRef": {"name": name, "namespace": namespace, "uid": uid},
        "containers": [
            {
                "name": "main",
                "startTime": TIME,
                "cpu": {"time": TIME, "usageNanoCores": 1, "usageCoreNanoSeconds": 2},
                "memory": {"time": TIME, "usageBytes": 5, "workingSetBytes": 3, "rssBytes": 4},
                "rootfs": {"time": TIME, "usedBytes": 6},
            }
        ],
        "cpu": {"time": TIME, "usageNanoCores": 7, "usageCoreNanoSeconds": 8, "psi": {"full": {"avg10": 1.5}}},
        "memory": {"time": TIME, "usageBytes": 11, "workingSetBytes": 9, "rssBytes": 10},
        "ephemeral-storage": {"time": TIME, "usedBytes": 12, "inodesUsed": None},
        "process_stats": {"process_count": 3},
    }


def summary(*pods: object, node: object = None) -> Summary:
    return decode(
        json.dumps({"node": node or {"nodeName": "node-a", "cpu": {"time": TIME}}, "pods": pods}).encode()
    )


def only(found: Summary) -> PodStats:
    (entry,) = found.pods
    return entry


def usage(document: object) -> PodUsage:
    return pod_usage(only(summary(document)), node_time=MOMENT)


EXPECTED = PodStats(
    "team-a",
    "web-0",
    UID,
    (ContainerStats("main", MOMENT, CpuStats(MOMENT, 1, 2), MemoryStats(MOMENT, 3, 5, 4), DiskStats(MOMENT, 6)),),
    CpuStats(MOMENT, 7, 8),
    MemoryStats(MOMENT, 9, 11, 10),
    DiskStats(MOMENT, 12),
)


def test_reads_every_needed_key() -> None:
    found = summary(pod())
    assert (found.node_name, found.node_cpu_time, len(found)) == ("node-a", MOMENT, 1)
    assert found.pod("team-a", "web-0", UID) == EXPECTED


def test_the_slow_way_reads_the_same_as_the_fast_one() -> None:
    assert summary(pod(), "no pod").pod("team-a", "web-0", UID) == EXPECTED


@pytest.mark.parametrize(
    ("namespace", "name", "uid"),
    [("team-b", "web-0", UID), ("team-a", "web-00", UID), ("team-a", "web-0", UID[:-1] + "2"), ("", "", "")],
)
def test_finds_exactly_one_pod_by_all_of_its_identity(namespace: str, name: str, uid: str) -> None:
    assert summary(pod()).pod(namespace, name, uid) is None


def test_a_recreated_pod_of_the_same_name_is_another() -> None:
    old = pod(uid="99999999-9999-4999-8999-999999999999")
    assert summary(old, pod()).pod("team-a", "web-0", UID) == EXPECTED


def test_ended_containers_count_no_more_and_an_unknown_figure_makes_its_sum_absent() -> None:
    entry = only(decode(json.dumps(POD).encode()))
    ended = dict.fromkeys(("init-net", "init-db", "dying"), ContainerState.ENDED)
    for states in ({}, {**ended, "app": ContainerState.RUNNING, "bare": ContainerState.WAITING}):
        found = pod_usage(entry, node_time=None, states=states)
        assert mib(found.memory_working_set_bytes) == 38
        assert found.cpu_nanocores is Reason.NOT_YET
        assert found.rootfs_used_bytes is Reason.NOT_REPORTED
        assert found.ephemeral_storage_used_bytes is Reason.NOT_REPORTED
        assert found.measured_at == MOMENT


@pytest.mark.parametrize(
    "entry",
    [
        {"podRef": {"name": "web-0", "namespace": "team-a", "uid": UID}},
        {"podRef": {"name": "web-0", "namespace": "team-a", "uid": UID}, "containers": None, "cpu": None},
        {
            "podRef": {"name": "web-0", "namespace": "team-a", "uid": UID},
            "containers": [{"name": "main", "cpu": {}, "memory": {}, "rootfs": {}}],
            "cpu": {},
            "memory": {},
            "ephemeral-storage": {},
        },
    ],
    ids=["just created", "nulls", "empty blocks"],
)
def test_missing_blocks_are_absent_and_never_zero(entry: object) -> None:
    found = usage(entry)
    figures = (found.cpu_nanocores, found.memory_working_set_bytes, found.rootfs_used_bytes)
    assert all(isinstance(figure, Reason) for figure in (*figures, found.ephemeral_storage_used_bytes))


def test_memory_of_all_zeros_is_unknown_for_a_running_container() -> None:
    zeros = {"time": TIME, "availableBytes": 2**30, "usageBytes": 0, "workingSetBytes": 0, "rssBytes": 0}
    document = pod()
    document["memory"] = zeros
    document["containers"][0]["memory"] = zeros
    found = pod_usage(only(summary(document)), node_time=MOMENT, states={"main": ContainerState.RUNNING})
    assert found.memory_working_set_bytes is Reason.INVALID_DATA
    assert found.cpu_nanocores == 7


@pytest.mark.parametrize("bad", [1.5, 1.0, "7", True, [], {}, 10**30, -1])
def test_a_figure_that_is_no_integer_costs_itself_only(bad: object) -> None:
    document = pod()
    document["cpu"]["usageNanoCores"] = bad
    found = usage(document)
    assert found.cpu_nanocores is Reason.INVALID_DATA
    assert (found.memory_working_set_bytes, found.rootfs_used_bytes, found.ephemeral_storage_used_bytes) == (
        9,
        6,
        12,
    )


@pytest.mark.parametrize("bad", ["NaN", "Infinity", "-Infinity", "1e400", "1" * 6000])
def test_a_number_that_json_does_not_know_costs_itself_only(bad: str) -> None:
    body = json.dumps({"pods": [pod()]}).replace('"usageNanoCores": 7', f'"usageNanoCores": {bad}')
    assert bad in body
    found = pod_usage(only(decode(body.encode())), node_time=None)
    assert found.cpu_nanocores is Reason.INVALID_DATA
    assert found.memory_working_set_bytes == 9


@pytest.mark.parametrize("bad", [5, "text", [], True])
def test_a_block_that_is_no_object_is_invalid(bad: object) -> None:
    document = pod()
    document["memory"] = bad
    assert usage(document).memory_working_set_bytes is Reason.INVALID_DATA


@pytest.mark.parametrize("bad", [5, "text", [], None])
def test_a_container_that_is_no_object_leaves_no_sum_whole(bad: object) -> None:
    document = pod()
    document["containers"].append(bad)
    found = usage(document)
    assert found.rootfs_used_bytes is Reason.INVALID_DATA
    assert found.cpu_nanocores == 7


@pytest.mark.parametrize(
    "bad",
    [
        5,
        None,
        "pod",
        [],
        {},
        {"podRef": 5},
        {"podRef": {"name": 5, "namespace": "team-a", "uid": 5}},
        {"podRef": {"name": "web-1", "namespace": "team-a"}},
        {"podRef": {"name": "web-1", "namespace": "team-a", "uid": ""}},
    ],
)
def test_a_pod_without_an_identity_costs_itself_only(bad: object) -> None:
    assert list(summary(bad, pod(), bad).pods) == [EXPECTED]


@pytest.mark.parametrize("bad", [5, "text", {"nodeName": 5, "cpu": {"time": 5}}, {"cpu": []}])
def test_a_malformed_node_costs_the_pods_nothing(bad: object) -> None:
    found = summary(pod(), node=bad)
    assert (found.node_name, found.node_cpu_time) == (None, None)
    assert list(found.pods) == [EXPECTED]


@pytest.mark.parametrize(
    "bad",
    [
        "garbage",
        5,
        "0001-01-01T00:00:00Z",
        "1754-08-30T22:43:41.128654848Z",
        "1970-01-01T00:00:00Z",
        "1999-12-31T23:59:59Z",
    ],
)
def test_a_value_whose_age_cannot_be_told_is_absent(bad: object) -> None:
    document = pod()
    document["cpu"]["time"] = bad
    found = usage(document)
    assert found.cpu_nanocores is Reason.INVALID_DATA
    assert found.memory_working_set_bytes == 9


def test_a_value_without_a_time_is_absent() -> None:
    document = pod()
    del document["memory"]["time"]
    assert usage(document).memory_working_set_bytes is Reason.INVALID_DATA


def test_a_pod_listed_over_and_over_has_no_figures_and_costs_no_other_pod_its_own() -> None:
    """To compare thousands of entries of one pod would hold up everything else for seconds."""
    found = summary(*[pod()] * 9, pod("db-0", "another"))
    entry = found.pod("team-a", "web-0", UID)
    assert entry == PodStats("team-a", "web-0", UID, containers=None)
    assert pod_usage(entry, node_time=MOMENT).memory_working_set_bytes is Reason.BOUNDED
    db = found.pod("team-a", "db-0", "another")
    assert db is not None
    assert pod_usage(db, node_time=MOMENT).memory_working_set_bytes == 9


def test_a_pod_listed_a_few_times_is_compared() -> None:
    entry = summary(*[pod()] * 8).pod("team-a", "web-0", UID)
    assert entry is not None
    assert pod_usage(entry, node_time=MOMENT).memory_working_set_bytes == 9


@pytest.mark.parametrize(
    ("memory", "bytes_"),
    [
        ({"availableBytes": 30, "workingSetBytes": 10}, 40),
        ({"availableBytes": 30, "workingSetBytes": 0}, 30),
        ({"availableBytes": 0, "workingSetBytes": 0}, None),
        ({"workingSetBytes": 10}, None),
        ({"availableBytes": 30}, None),
        ({"availableBytes": -1, "workingSetBytes": 10}, None),
        ({"availableBytes": "x", "workingSetBytes": 10}, None),
        ("x", None),
        (None, None),
    ],
)
def test_what_memory_the_node_has(memory: object, bytes_: int | None) -> None:
    assert summary(pod(), node={"memory": memory}).node_memory_bytes == bytes_


def test_a_malformed_field_of_a_pod_does_not_hide_what_memory_the_node_has() -> None:
    """Without it, no figure of any pod of that node would be too large to be believed."""
    malformed = {**pod(), "startTime": 5}
    node = {"nodeName": "node-a", "memory": {"availableBytes": 30, "workingSetBytes": 10}}
    found = summary(malformed, node=node)
    assert (found.node_name, found.node_memory_bytes) == ("node-a", 40)


@pytest.mark.parametrize("body", [b"{}", b'{"pods":null}', b'{"pods":{}}', b'{"node":null,"pods":[]}'])
def test_a_summary_without_pods_is_empty(body: bytes) -> None:
    assert len(decode(body)) == 0


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b"null", b'{"pods":[', b"\xff", b"[" * 100_000, b'{"x":' + b"[" * 100_000]
)
def test_what_is_no_summary_is_refused(body: bytes) -> None:
    with pytest.raises(DocumentError, match="kubelet summary"):
        decode(body)


@pytest.mark.parametrize(
    "entry",
    [
        '{"podRef":{"name":"web-0","namespace":"team-a","uid":"u"},"cpu":null}',
        '{ "podRef" : {"uid":"u","namespace":"team-a","name":"web-0"}}',
        '{"cpu":null,"podRef":{"name":"web-0","namespace":"team-a","uid":"u"}}',
        '{"podRef":{"name":"web\\u002d0","namespace":"team-a","uid":"u"}}',
        '{"podRef":{"name":"web-0","namespace":"team-a","uid":"u","more":"}"}}',
        '{"podRef":{"name":"web-0","namespace":"team-a","uid":"u","more":{"a":1}}}',
    ],
)
def test_a_pod_is_found_however_its_identity_is_written(entry: str) -> None:
    found = decode(f'{{"pods":[{entry}]}}'.encode())

    assert [(pod.namespace, pod.name, pod.uid) for pod in found.pods] == [("team-a", "web-0", "u")]
