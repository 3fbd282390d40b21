"""The worst that a kubelet and a device manager can send: what takes longest to read, within limits and beyond."""

import json
from collections.abc import Sequence
from typing import Final

_TIME: Final = "2026-01-01T12:00:00Z"
_MOST_BYTES: Final = 16 << 20


def summaries() -> Sequence[bytes]:
    """Of three kubelets: one pod of millions of containers, 2,000 full pods, and as many values as are counted."""
    return (
        b'{"pods":[{"podRef":{"uid":"a"},"containers":[' + b"{}," * (_MOST_BYTES // 3 - 100) + b"{}]}]}",
        _compact({"node": {"nodeName": "node-1"}, "pods": [_pod(number) for number in range(2000)]}),
        b'{"pods":[' + b"111111111111111," * 917_000 + b"1]}",
    )


def snapshots(manufacturer: str) -> Sequence[bytes]:
    """Of three device managers: empty groups, all cards and slices that count, and as many keys as are counted."""
    return (
        b'{"timestamp":"2026-01-01T12:00:00Z","groups":[' + b"{}," * 1_398_000 + b"{}]}",
        _compact(
            {
                "timestamp": _TIME,
                "groups": [{"manufacturer": manufacturer, "accelerators": [_card(each) for each in range(1024)]}],
                "slices": {
                    "schemaVersion": 1,
                    "usages": [_slice(manufacturer, each) for each in range(4096)],
                    "partitions": [
                        _slice(manufacturer, each) | {"id": f"MIG-{each}", "memoryTotalMiB": 9856}
                        for each in range(4096)
                    ],
                },
            }
        ),
        b'{"timestamp":"2026-01-01T12:00:00Z","groups":[],"x":{'
        + b",".join(b'"%030d":1' % each for each in range(114_000))
        + b"}}",
    )


def _compact(document: object) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def _pod(number: int) -> dict[str, object]:
    cpu = {"time": _TIME, "usageNanoCores": 1234567, "usageCoreNanoSeconds": 51234567890}
    memory = {"time": _TIME, "usageBytes": 123456789, "workingSetBytes": 51234567, "rssBytes": 12345678}
    disk = {"time": _TIME, "availableBytes": 1, "capacityBytes": 2, "usedBytes": 51234567, "inodes": 3}
    return {
        "podRef": {"name": f"pod-{number}", "namespace": "team-b", "uid": f"uid-{number}"},
        "startTime": _TIME,
        "containers": [
            {"name": f"c{each}", "startTime": _TIME, "cpu": cpu, "memory": memory, "rootfs": disk, "logs": disk}
            for each in range(12)
        ],
        "cpu": cpu,
        "memory": memory,
    }


def _card(number: int) -> dict[str, object]:
    figures = ("memory", "memoryUsage", "memoryUtilization", "coresUtilization", "temperature", "powerUsage")
    return {
        "id": f"GPU-{number}",
        "index": number,
        "name": "A card",
        "absent": dict.fromkeys(figures, "unsupported"),
    }


def _slice(manufacturer: str, number: int) -> dict[str, object]:
    return {
        "manufacturer": manufacturer,
        "podUID": f"uid-{number}",
        "container": "main",
        "deviceID": f"GPU-{number % 1024}",
        "memoryUsedMiB": 1,
    }
