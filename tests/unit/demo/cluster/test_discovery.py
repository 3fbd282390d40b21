"""What the stand-in says it serves."""

import pytest

from devicemanager.demo.cluster.discovery import (
    RESOURCES,
    aggregated,
    api_resource_list,
    negotiate,
    own_group_versions,
)

V2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
V2BETA1 = V2.replace("v=v2", "v=v2beta1")
PROTOBUF = "application/vnd.kubernetes.protobuf"


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("", ""),
        ("*/*", ""),
        ("application/json, */*", ""),
        (f"{V2},application/json", "v2"),
        (f"{V2BETA1},application/json", "v2beta1"),
        (f"{V2},{V2BETA1},application/json", "v2"),
        ("application/json;g=x;v=v2;as=Other,application/json", ""),
        (f"{PROTOBUF},application/json", ""),
        (PROTOBUF, None),
        ("application/json;g=x;v=v2;as=Other", None),
    ],
)
def test_accept(accept: str, expected: str | None) -> None:
    assert negotiate(accept) == expected


def test_the_core_group_has_no_name_and_the_subresource_is_listed_under_its_parent() -> None:
    core = [entry for entry in own_group_versions(RESOURCES) if not entry.group]
    (item,) = aggregated(core, "v2")["items"]
    assert item["metadata"] == {}
    (version,) = item["versions"]
    nodes = next(entry for entry in version["resources"] if entry["resource"] == "nodes")
    assert (nodes["scope"], nodes["shortNames"]) == ("Cluster", ["no"])
    assert [sub["subresource"] for sub in nodes["subresources"]] == ["proxy"]


def test_the_old_form_names_the_same_resources() -> None:
    document = api_resource_list("worker.gpustack.ai", "v1alpha1", RESOURCES)
    assert document is not None
    assert document["resources"] == [
        {
            "name": "instances",
            "singularName": "instance",
            "namespaced": True,
            "kind": "Instance",
            "verbs": ["get", "list", "watch"],
            "shortNames": ["inst"],
            "categories": ["gpustack"],
        }
    ]
    assert api_resource_list("nobody.example", "v1", RESOURCES) is None
