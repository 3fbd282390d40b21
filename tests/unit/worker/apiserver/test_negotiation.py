"""Which form is chosen of what a caller accepts."""

import pytest

from devicemanager.worker.apiserver.negotiation import (
    Discovery,
    Form,
    Shape,
    accepts_json,
    for_discovery,
    for_list,
    for_object,
)

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
        ("", Form()),
        ("*/*", Form()),
        ("*", Form()),
        ("application/*", Form()),
        ("application/json, */*", Form()),
        ("Application/JSON; charset=utf-8", Form()),
        ("application/yaml;q=0.5, application/json;q=0.4", Form()),
        (f"{TABLE},{TABLE_BETA},application/json", Form(Shape.TABLE, "v1")),
        (f"{TABLE_BETA},application/json", Form(Shape.TABLE, "v1beta1")),
        (f"{TABLE.replace('json', 'yaml')},application/json", Form()),
        (METADATA, Form(Shape.METADATA, "v1")),
        (f"{PROTOBUF};as=Table;v=v1;g=meta.k8s.io,application/json", Form()),
        (f"{PROTOBUF},application/json", Form()),
        (f"{METADATA_LIST},application/json", Form()),
        (f"{TABLE};q=0.1,application/json", Form()),
        ("application/json;q=nonsense", Form()),
    ],
)
def test_one_object(accept: str, expected: Form) -> None:
    assert for_object(accept) == expected


@pytest.mark.parametrize(
    "accept",
    [
        PROTOBUF,
        "application/yaml",
        TABLE.replace("json", "yaml"),
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
    assert for_list(METADATA_LIST) == Form(Shape.METADATA_LIST, "v1")
    assert for_list(METADATA) is None


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("", Discovery.LEGACY),
        ("application/json, */*", Discovery.LEGACY),
        (f"{V2},{V2BETA1},application/json", Discovery.V2),
        (f"{V2BETA1},application/json", Discovery.V2BETA1),
        (f"{V2},application/json", Discovery.V2),
        (f"{V2.replace('v=v2', 'v=v3')},application/json", Discovery.LEGACY),
        (V2.replace("v=v2", "v=v3"), None),
        (V2.replace(";as=APIGroupDiscoveryList", ""), None),
        (V2.replace("json", "yaml"), None),
        (f"{V2};q=0.5,{V2BETA1}", Discovery.V2BETA1),
        ("application/yaml", None),
        (PROTOBUF, None),
    ],
)
def test_discovery(accept: str, expected: Discovery | None) -> None:
    assert for_discovery(accept) == expected


def test_documents_of_one_shape() -> None:
    assert accepts_json("application/json")
    assert accepts_json(f"{V2},application/json;q=0.1")
    assert not accepts_json("application/yaml")
    assert not accepts_json(V2)
