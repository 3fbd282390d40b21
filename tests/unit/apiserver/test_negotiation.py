"""Which form is chosen of what a caller accepts."""

import pytest

from devicemanager.worker.apiserver.negotiation import (
    Discovery,
    Encoding,
    Representation,
    Shape,
    for_discovery,
    for_document,
    for_error,
    for_list,
    for_object,
)

JSON, YAML = Encoding.JSON, Encoding.YAML
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
TABLE_BETA = "application/json;as=Table;v=v1beta1;g=meta.k8s.io"
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
V2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
V2BETA1 = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"
PROTOBUF = "application/vnd.kubernetes.protobuf"


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("", Representation(JSON)),
        ("*/*", Representation(JSON)),
        ("*", Representation(JSON)),
        ("application/*", Representation(JSON)),
        ("application/json, */*", Representation(JSON)),
        ("Application/JSON; charset=utf-8", Representation(JSON)),
        ("application/yaml", Representation(YAML)),
        ("application/yaml;q=0.5, application/json;q=0.4", Representation(YAML)),
        (f"{TABLE},{TABLE_BETA},application/json", Representation(JSON, Shape.TABLE, "v1")),
        (f"{TABLE_BETA},application/json", Representation(JSON, Shape.TABLE, "v1beta1")),
        (TABLE.replace("json", "yaml"), Representation(YAML, Shape.TABLE, "v1")),
        (METADATA, Representation(JSON, Shape.METADATA, "v1")),
        (f"{PROTOBUF};as=Table;v=v1;g=meta.k8s.io,application/json", Representation(JSON)),
        (f"{PROTOBUF},application/json", Representation(JSON)),
        (f"{METADATA_LIST},application/json", Representation(JSON)),
        (f"{TABLE};q=0.1,application/json", Representation(JSON)),
        ("application/json;q=nonsense", Representation(JSON)),
    ],
)
def test_one_object(accept: str, expected: Representation) -> None:
    assert for_object(accept) == expected


@pytest.mark.parametrize(
    "accept",
    [
        PROTOBUF,
        "text/html",
        "application/json;q=0",
        "application/json;q=0.0",
        METADATA_LIST,
        "application/json;as=Table;v=v2;g=meta.k8s.io",
        "application/json;as=Table;v=v1;g=other",
        "nonsense",
    ],
)
def test_one_object_in_no_form_that_we_can_make(accept: str) -> None:
    assert for_object(accept) is None


def test_a_list_has_its_own_metadata_form() -> None:
    assert for_list(METADATA_LIST) == Representation(JSON, Shape.METADATA_LIST, "v1")
    assert for_list(METADATA) is None


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("", (Discovery.LEGACY, JSON)),
        ("application/json, */*", (Discovery.LEGACY, JSON)),
        (f"{V2},{V2BETA1},application/json", (Discovery.V2, JSON)),
        (f"{V2BETA1},application/json", (Discovery.V2BETA1, JSON)),
        (f"{V2},application/json", (Discovery.V2, JSON)),
        (f"{V2.replace('v=v2', 'v=v3')},application/json", (Discovery.LEGACY, JSON)),
        (V2.replace("v=v2", "v=v3"), None),
        (V2.replace(";as=APIGroupDiscoveryList", ""), None),
        (V2.replace("json", "yaml"), None),
        (f"{V2};q=0.5,{V2BETA1}", (Discovery.V2BETA1, JSON)),
        ("application/yaml", (Discovery.LEGACY, YAML)),
        (PROTOBUF, None),
    ],
)
def test_discovery(accept: str, expected: tuple[Discovery, Encoding] | None) -> None:
    assert for_discovery(accept) == expected


def test_documents_of_one_shape() -> None:
    assert for_document("application/json") is JSON
    assert for_document("application/yaml") is YAML
    assert for_document(V2) is None
    assert for_document(f"{V2},application/yaml") is YAML


def test_errors_are_readable_whatever_is_accepted() -> None:
    assert for_error(PROTOBUF) is JSON
    assert for_error("text/html") is JSON
    assert for_error(TABLE) is JSON
    assert for_error("application/yaml") is YAML
