"""Discovery documents, word for word as clients and the aggregator need them."""

import json
from typing import Any

import pytest

from devicemanager.worker.apiserver.discovery import DiscoveryDocuments
from devicemanager.worker.apiserver.negotiation import Discovery
from devicemanager.worker.workloads.instance.workload import INSTANCE
from tests.unit.worker.apiserver.api_server import GROUPS

RESOURCES = [INSTANCE.resource]


def legacy_group(group: str) -> dict[str, Any]:
    version = {"groupVersion": f"{group}/v1", "version": "v1"}
    return {"name": group, "versions": [version], "preferredVersion": version}


@pytest.mark.parametrize("group", GROUPS)
def test_legacy(group: str) -> None:
    documents = DiscoveryDocuments(group, RESOURCES)
    assert json.loads(documents.groups[Discovery.LEGACY].body) == {
        "kind": "APIGroupList",
        "apiVersion": "v1",
        "groups": [legacy_group(group)],
    }
    assert json.loads(documents.group.body) == {
        "kind": "APIGroup",
        "apiVersion": "v1",
        **legacy_group(group),
    }
    assert json.loads(documents.resources.body) == {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group}/v1",
        "resources": [
            {
                "name": "instancemetrics",
                "singularName": "instancemetrics",
                "namespaced": True,
                "kind": "InstanceMetrics",
                "verbs": ["get", "list"],
                "shortNames": ["im"],
                "categories": ["gpustack"],
            },
            {"name": "instances", "singularName": "instance", "namespaced": True, "kind": "Instance", "verbs": []},
            {
                "name": "instances/metrics",
                "singularName": "",
                "namespaced": True,
                "kind": "InstanceMetrics",
                "verbs": ["get"],
            },
        ],
    }


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("version", ["v2", "v2beta1"])
def test_aggregated(group: str, version: str) -> None:
    found = DiscoveryDocuments(group, RESOURCES).groups[Discovery(version)]
    assert found.content_type == f"application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"
    document = json.loads(found.body)
    assert document["apiVersion"] == f"apidiscovery.k8s.io/{version}"
    (item,) = document["items"]
    assert item["metadata"] == {"name": group}
    (served,) = item["versions"]
    assert (served["version"], served["freshness"]) == ("v1", "Current")
    metrics, instances = served["resources"]
    kind = {"group": group, "version": "v1", "kind": "InstanceMetrics"}
    assert metrics == {
        "resource": "instancemetrics",
        "responseKind": kind,
        "scope": "Namespaced",
        "singularResource": "instancemetrics",
        "verbs": ["get", "list"],
        "shortNames": ["im"],
        "categories": ["gpustack"],
    }
    # Hidden from people by having no verbs, and there for clients that resolve instances/metrics.
    assert instances["verbs"] == []
    assert instances["subresources"] == [{"subresource": "metrics", "responseKind": kind, "verbs": ["get"]}]


def response_kinds(value: object) -> list[object]:
    if isinstance(value, dict):
        own = [value["responseKind"]] if "responseKind" in value else []
        missing = [None] if ("resource" in value or "subresource" in value) and not own else []
        return own + missing + [kind for one in value.values() for kind in response_kinds(one)]
    return [kind for one in value for kind in response_kinds(one)] if isinstance(value, list) else []


def test_no_response_kind_is_null_for_that_crashed_clients() -> None:
    document = json.loads(DiscoveryDocuments(GROUPS[0], RESOURCES).groups[Discovery.V2].body)
    assert len(response_kinds(document)) == 3
    assert all(isinstance(kind, dict) and kind["kind"] for kind in response_kinds(document))


def test_replicas_of_one_version_agree_and_forms_differ() -> None:
    first, second = DiscoveryDocuments(GROUPS[0], RESOURCES), DiscoveryDocuments(GROUPS[0], RESOURCES)
    tags = set()
    for version in (Discovery.V2, Discovery.V2BETA1):
        assert first.groups[version] == second.groups[version]
        tags.add(first.groups[version].etag)
    tags.add(DiscoveryDocuments(GROUPS[1], RESOURCES).groups[Discovery.V2].etag)
    assert len(tags) == 3
    assert all(tag is not None and tag.startswith('"') and tag.endswith('"') for tag in tags)
