"""Pods as the API server sends them."""

import json
from datetime import UTC, datetime

import pytest

from devicemanager.errors import DocumentError
from devicemanager.model.pod_stats import ContainerState
from devicemanager.wire import pods
from devicemanager.wire.pods import Pod

METADATA = {"namespace": "team-a", "name": "demo", "uid": "u-1"}


def parse(**document: object) -> Pod:
    return pods.parse(json.dumps({"metadata": METADATA, **document}).encode())


def test_reads_identity_place_and_condition() -> None:
    found = parse(
        metadata={
            **METADATA,
            "creationTimestamp": "2026-01-01T10:00:00Z",
            "deletionTimestamp": "2026-01-01T11:00:00Z",
            "resourceVersion": "17",
            "labels": {"app.kubernetes.io/part-of": "i-1"},
            "annotations": {"a": "b", "kubernetes.io/config.hash": "beef"},
        },
        spec={
            "nodeName": "node-a",
            "containers": [{"name": "main", "ports": [{"name": "https", "containerPort": 32443}]}],
        },
        status={
            "phase": "Running",
            "podIP": "fd00::7",
            "podIPs": [{"ip": "fd00::7"}, {"ip": "10.0.0.7"}, {"ip": 5}, 5],
            "containerStatuses": [
                {"name": "main", "state": {"running": {"startedAt": "2026-01-01T10:00:09Z"}}},
                {"name": "sshd", "state": {"running": {"startedAt": "2026-01-01T10:00:07Z"}}},
                {"name": "log", "state": {"running": {"startedAt": "1970-01-01T00:00:00Z"}}},
                {"name": "ended", "state": {"terminated": {"startedAt": "2026-01-01T10:09:00Z"}}},
            ],
            "conditions": [{"type": "Initialized", "status": "True"}, {"type": "Ready", "status": "True"}],
        },
    )
    assert found.created_at == datetime(2026, 1, 1, 10, tzinfo=UTC)
    assert found.started_at == datetime(2026, 1, 1, 10, 0, 9, tzinfo=UTC)
    assert found.labels == {"app.kubernetes.io/part-of": "i-1"}
    assert (found.annotations["a"], found.kubelet_uids) == ("b", ("u-1", "beef"))
    assert (found.node_name, found.phase, found.pod_ips) == ("node-a", "Running", ("fd00::7", "10.0.0.7"))
    assert found.ready
    assert found.terminating
    assert found.ports == {"https": 32443}


def test_a_pod_just_created_has_nothing_yet() -> None:
    assert parse() == Pod("team-a", "demo", "u-1")
    assert parse().kubelet_uids == ("u-1",)


@pytest.mark.parametrize(
    ("annotations", "uids"),
    [
        ({"kubernetes.io/config.hash": "h"}, ("u-1", "h")),
        ({"kubernetes.io/config.mirror": "m"}, ("u-1", "m")),
        ({"kubernetes.io/config.hash": "h", "kubernetes.io/config.mirror": "m"}, ("u-1", "h", "m")),
        ({"kubernetes.io/config.hash": "h", "kubernetes.io/config.mirror": "h"}, ("u-1", "h")),
        ({"kubernetes.io/config.hash": "", "kubernetes.io/config.mirror": "u-1"}, ("u-1",)),
    ],
)
def test_a_static_pod_may_be_listed_under_three_uids(annotations: dict[str, str], uids: tuple[str, ...]) -> None:
    assert parse(metadata={**METADATA, "annotations": annotations}).kubelet_uids == uids


@pytest.mark.parametrize(
    "conditions",
    [
        None,
        [],
        {},
        [5],
        [{"type": "Ready"}],
        [{"type": "Ready", "status": "False"}],
        [{"type": "Ready", "status": True}],
    ],
)
def test_a_pod_is_ready_only_when_it_says_so(conditions: object) -> None:
    assert not parse(status={"conditions": conditions}).ready


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ({"state": {"running": {"startedAt": "2026-01-01T10:00:00Z"}}}, ContainerState.RUNNING),
        ({"state": {"running": {}}, "lastState": {"terminated": {"exitCode": 1}}}, ContainerState.RUNNING),
        ({"state": {"terminated": {"exitCode": 0}}}, ContainerState.ENDED),
        (
            {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": {"exitCode": 1}}},
            ContainerState.ENDED,
        ),
        ({"state": {"waiting": {"reason": "ContainerCreating"}}}, ContainerState.WAITING),
        ({"state": {}}, ContainerState.WAITING),
        ({}, ContainerState.WAITING),
    ],
)
@pytest.mark.parametrize("key", ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"])
def test_the_state_of_every_kind_of_container(key: str, status: dict[str, object], state: ContainerState) -> None:
    assert parse(status={key: [{"name": "main", **status}, 5, {}]}).containers == {"main": state}


@pytest.mark.parametrize("port", [0, 65536, "https", None, 1.5])
def test_an_invalid_port_is_left_out(port: object) -> None:
    ports = [{"name": "https", "containerPort": port}, {"containerPort": 80}]
    assert parse(spec={"containers": [{"ports": ports}]}).ports == {}


@pytest.mark.parametrize("bad", [5, [], "x", None])
def test_malformed_parts_read_as_absent(bad: object) -> None:
    assert parse(spec=bad, status=bad) == Pod("team-a", "demo", "u-1")


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"null", b"{}", b'{"metadata":{"name":"a","namespace":"b"}}', b"\xff"]
)
def test_what_is_no_pod_is_refused(body: bytes) -> None:
    with pytest.raises(DocumentError):
        pods.parse(body)
