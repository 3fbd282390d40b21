"""Objects of workloads as the API server sends them."""

import json
from datetime import UTC, datetime

import pytest

from devicemanager.errors import DocumentError
from devicemanager.wire import workload_objects
from devicemanager.wire.workload_objects import WorkloadObject

METADATA = {"namespace": "team-a", "name": "demo", "uid": "u-1"}


def parse(**document: object) -> WorkloadObject:
    body = json.dumps({"metadata": METADATA, **document}).encode()
    return workload_objects.parse(body, kind="Instance", node_name_at=("status", "nodeName"))


def test_reads_what_the_metrics_need() -> None:
    metadata = {**METADATA, "creationTimestamp": "2026-01-01T10:00:00Z", "labels": {"app": "web"}}
    assert parse(
        metadata=metadata, status={"nodeName": "node-a", "phase": "Ready"}, spec={"type": "x"}
    ) == WorkloadObject("team-a", "demo", "u-1", datetime(2026, 1, 1, 10, tzinfo=UTC), {"app": "web"}, "node-a")


@pytest.mark.parametrize("status", [None, {}, {"nodeName": ""}, {"nodeName": None}, {"nodeName": 5}, []])
def test_an_object_that_is_not_placed_has_no_node(status: object) -> None:
    assert parse(status=status) == WorkloadObject("team-a", "demo", "u-1")


@pytest.mark.parametrize("key", ["namespace", "name", "uid"])
@pytest.mark.parametrize("bad", [None, "", 5])
def test_an_object_without_an_identity_is_refused(key: str, bad: object) -> None:
    with pytest.raises(DocumentError, match="namespace, name or uid"):
        parse(metadata={**METADATA, key: bad})


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b"{}", b"\xff"])
def test_what_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(DocumentError):
        workload_objects.parse(body, kind="Instance")


def test_a_kind_that_names_no_node_has_none() -> None:
    body = json.dumps({"metadata": METADATA, "status": {"nodeName": "node-a"}}).encode()
    assert workload_objects.parse(body, kind="Workspace").node_name is None
