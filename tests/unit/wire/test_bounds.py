"""How much a document may hold, judged before any of it is built."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from devicemanager.errors import ExcessError
from devicemanager.model.accelerator import Reason
from devicemanager.rules.kubelet import pod_usage
from devicemanager.wire import allocation_annotation, kubelet_summary, kubernetes, pod_metrics, pods, snapshot
from devicemanager.wire.bounds import Bounds
from devicemanager.wire.steps import Steps, at_once

UID = "11111111-2222-3333-4444-555555555555"
ID = "GPU-{:08d}-0000-0000-0000-000000000001"


@pytest.mark.parametrize("kind", [str, str.encode])
def test_objects_and_values_are_counted_apart(kind: Callable[[str], Any]) -> None:
    bounds = Bounds(objects=2, values=4)
    for passed in ("[{},{}]", "[1,2,3,4]", "[[],[]]", "[]"):
        bounds.check(kind(passed), "document")
    with pytest.raises(ExcessError, match=r"^document: more than 2 objects$"):
        bounds.check(kind("{}{}{}"), "document")
    for refused in ("[1,2,3,4,5]", "[[],[],[]]", "[{},{},1]"):
        with pytest.raises(ExcessError, match=r"^document: more than 4 values$"):
            bounds.check(kind(refused), "document")


def fullest_card(number: int) -> dict[str, Any]:
    figures = ("memory", "memoryUsage", "memoryUtilization", "coresUtilization", "temperature", "powerUsage")
    return {
        "id": ID.format(number),
        "index": number,
        "name": "NVIDIA H100 80GB HBM3",
        "pciBusId": "0000:1b:00.0",
        "unhealthy": True,
        "unhealthyReason": "double-bit errors, {uncorrected}",
        "absent": dict.fromkeys((*figures, *(f"check{each}" for each in range(10))), "unsupported"),
    }


def fullest_snapshot() -> dict[str, Any]:
    """As many cards as we list, and as many slices as the existing operator's bounds let it send."""
    key = {"manufacturer": "nvidia", "podUID": UID, "container": "main"}
    rows = ("Returned", "Attributed", "NonInstance", "Unreadable", "Ambiguous")
    return {
        "timestamp": "2026-08-12T09:15:04Z",
        "periodSeconds": 15,
        "groups": [{"manufacturer": "nvidia", "accelerators": [fullest_card(number) for number in range(1024)]}],
        "slices": {
            "schemaVersion": 1,
            "truncated": True,
            "usages": [
                key | {"deviceID": ID.format(each), "memoryUsedMiB": 1, "coresUtilizationPercent": 1}
                for each in range(4096)
            ],
            "devices": [
                {"manufacturer": "nvidia", "deviceID": ID.format(each), "memoryReason": "bounded"}
                | {"coresReason": "bounded", "readsTruncated": 0, **{f"rows{row}": 0 for row in rows}}
                for each in range(1024)
            ],
            "partitions": [
                key
                | {"deviceID": ID.format(each), "id": f"MIG-{each:08d}", "memoryTotalMiB": 9856}
                | {"memoryUsedMiB": 1, "coresPercent": 1, "memoryReason": "", "coresReason": "unsupported"}
                for each in range(4096)
            ],
        },
    }


def compact(document: object) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def test_the_largest_valid_snapshot_is_read_whole() -> None:
    body = compact(fullest_snapshot())
    assert len(body) <= snapshot.BODY_LIMIT_BYTES
    found = snapshot.parse(body)
    assert len(found.cards["nvidia"]) == 1024
    assert found.slices is not None
    assert len(found.slices["nvidia"]) == 8192


@pytest.mark.parametrize("key", ["usages", "devices", "partitions"])
def test_one_slice_too_many_of_a_kind_is_refused(key: str) -> None:
    document = fullest_snapshot()
    document["slices"][key].append({})
    with pytest.raises(ExcessError, match=f"more than [0-9]+ slices.{key}"):
        snapshot.parse(compact(document))


def test_cards_are_counted_over_all_groups() -> None:
    half = [{"id": f"GPU-{number}"} for number in range(513)]
    groups = [{"manufacturer": vendor, "accelerators": half} for vendor in ("nvidia", "amd")]
    with pytest.raises(ExcessError, match="more than 1024 accelerators"):
        snapshot.parse(compact({"groups": groups}))


def test_of_the_reasons_of_one_card_a_few_are_read() -> None:
    absent = {f"check{number}": "timeout" for number in range(64)} | {"temperature": "timeout"}
    (card,) = snapshot.parse(
        compact(
            {
                "timestamp": "2026-08-12T09:15:04Z",
                "groups": [{"manufacturer": "nvidia", "accelerators": [{"id": "GPU-1", "absent": absent}]}],
            }
        )
    ).cards["nvidia"]
    assert card.figures["temperature"] is Reason.NOT_REPORTED


TIME = "2026-08-12T09:15:04Z"
PRESSURE = {"total": 1, "avg10": 0, "avg60": 0, "avg300": 0}
PSI = {"full": PRESSURE, "some": PRESSURE}
CPU = {"time": TIME, "usageNanoCores": 1, "usageCoreNanoSeconds": 1, "psi": PSI}
MEMORY = {"time": TIME, "usageBytes": 1, "workingSetBytes": 1, "rssBytes": 1, "pageFaults": 1, "psi": PSI}
DISK = {
    "time": TIME,
    **dict.fromkeys(("availableBytes", "capacityBytes", "usedBytes", "inodesFree", "inodes", "inodesUsed"), 1),
}
VOLUME = {**DISK, "name": "data", "pvcRef": {"name": "data", "namespace": "team-a"}}


def fullest_pod(number: int, containers: int) -> dict[str, Any]:
    common = {"cpu": CPU, "memory": MEMORY, "io": {"time": TIME, "psi": PSI}, "swap": {"time": TIME}}
    interface = {"name": "eth0", "rxBytes": 1, "rxErrors": 0, "txBytes": 1, "txErrors": 0}
    return {
        "podRef": {"name": f"web-{number}", "namespace": "team-a", "uid": f"uid-{number}"},
        "startTime": TIME,
        "containers": [
            {"name": f"c{each}", "startTime": TIME, "rootfs": DISK, "logs": DISK, **common}
            for each in range(containers)
        ],
        "network": {"time": TIME, **interface, "interfaces": [interface, interface]},
        "volume": [VOLUME] * 8,
        "ephemeral-storage": DISK,
        "process_stats": {"process_count": 3},
        **common,
    }


def test_the_largest_valid_summary_is_read_whole() -> None:
    body = compact({"node": {"nodeName": "node-a", "cpu": CPU}, "pods": [fullest_pod(n, 4) for n in range(2000)]})
    assert len(body) <= 16 << 20
    summary = kubelet_summary.decode(body)
    assert len(summary) == 2000
    assert all(pod.containers is not None and len(pod.containers) == 4 for pod in summary.pods)


def decode_lenient(body: bytes) -> kubelet_summary.Summary:
    return at_once(kubelet_summary.decode_lenient_in_steps(body))


def test_what_only_the_slower_way_can_read_is_read_up_to_a_quarter() -> None:
    """An own encoding, or a number that JSON does not know."""
    body = compact({"node": {}, "pods": [fullest_pod(n, 2) for n in range(500)]}).replace(b'"node":{}', b'"x":NaN')
    assert len(kubelet_summary.decode(body)) == 500
    with pytest.raises(ExcessError, match="not as kubelets write it, and more than 3145728 bytes"):
        kubelet_summary.decode(body.replace(b"NaN", b'NaN,"y":"' + b"a" * (3 << 20) + b'"'))


@pytest.mark.parametrize("bad", [{"x": "a" * (256 << 10)}, {"containers": [{}] * 100_000}])
def test_a_pod_longer_than_any_has_no_figures_and_costs_no_other_pod_its_own(bad: dict[str, Any]) -> None:
    summary = kubelet_summary.decode(compact({"pods": [fullest_pod(0, 1) | bad, fullest_pod(1, 1)]}))
    long, other = (summary.pod("team-a", f"web-{number}", f"uid-{number}") for number in range(2))
    assert long is not None
    assert other is not None
    assert pod_usage(long, node_time=None).rootfs_used_bytes is Reason.BOUNDED
    assert pod_usage(other, node_time=None).rootfs_used_bytes == 1


@pytest.mark.parametrize(
    ("parse", "body"),
    [
        (kubelet_summary.decode_in_steps, compact({"pods": [{"podRef": {"uid": "a"}}] * 2000})),
        (snapshot.parse_in_steps, compact(fullest_snapshot())),
    ],
    ids=["summary", "snapshot"],
)
def test_a_full_document_is_read_in_many_steps(parse: Callable[[bytes], Steps[object]], body: bytes) -> None:
    """So that whatever else there is to do can be done between any two of them."""
    assert sum(1 for _ in parse(body)) > 1000


@pytest.mark.parametrize("decode", [kubelet_summary.decode, decode_lenient])
def test_containers_beyond_any_pods_cost_that_pod_its_sums_and_no_other_pod_anything(
    decode: Callable[[bytes], kubelet_summary.Summary],
) -> None:
    """Whoever may make pods must not be able to hide a node's."""
    summary = decode(compact({"pods": [fullest_pod(0, 65), fullest_pod(1, 64)]}))
    wide, other = (summary.pod("team-a", f"web-{number}", f"uid-{number}") for number in range(2))
    assert wide is not None
    assert other is not None
    usage = pod_usage(wide, node_time=None)
    assert (usage.cpu_nanocores, usage.rootfs_used_bytes) == (1, Reason.BOUNDED)
    assert pod_usage(other, node_time=None).rootfs_used_bytes == 64


@pytest.mark.parametrize(
    "decode", [pod_metrics.parse, pods.parse, kubernetes.parse_list_page, kubelet_summary.decode]
)
def test_every_other_document_is_bounded_too(decode: Callable[[bytes], object]) -> None:
    for item in (b"{}", b"[]", b"1"):
        with pytest.raises(ExcessError):
            decode(b'{"items":[' + (item + b",") * 4_200_000 + item + b"]}")


def test_the_largest_valid_allocation_is_read_whole() -> None:
    placements = [{"start": start, "length": 1} for start in range(4)]
    cards = [
        {
            "id": f"GPU-{number}",
            "index": number,
            "mode": 4,
            "allocated": 1,
            "allocatedPhysicalPlacements": placements,
        }
        for number in range(1024)
    ]
    groups = [{"id": "h100", "manufacturer": "nvidia", "accelerators": cards}]
    tokens = [f"h100:GPU-{number}:{number:04d}" for number in range(1024)]
    written = compact({"main": {"devices": {"groups": groups}, "deviceIDs": tokens}}).decode()
    found = allocation_annotation.parse(written)
    assert (len(found.cards), found.problem) == (1024, None)
