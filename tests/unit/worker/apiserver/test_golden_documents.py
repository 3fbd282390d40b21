"""Discovery and OpenAPI of the default API group, byte for byte as clients have always been given them.

The OpenAPI schemas of the answers are left out but for their names: figures come and go there by themselves.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from devicemanager import __version__
from devicemanager.worker.apiserver.discovery import DiscoveryDocuments
from devicemanager.worker.apiserver.negotiation import Discovery
from devicemanager.worker.apiserver.openapi import OpenApiDocuments
from devicemanager.worker.workloads.instance.workload import INSTANCE
from tests.unit.worker.apiserver.api_server import GROUPS, NOW

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("form", list(Discovery))
def test_the_list_of_groups_is_what_it_was(form: Discovery) -> None:
    found = DiscoveryDocuments(GROUPS[0], [INSTANCE.resource]).groups[form]

    assert (GOLDEN / f"groups-{form or 'legacy'}.json").read_bytes() == found.body


def test_the_group_and_its_resources_are_what_they_were() -> None:
    documents = DiscoveryDocuments(GROUPS[0], [INSTANCE.resource])

    assert (GOLDEN / "group.json").read_bytes() == documents.group.body
    assert (GOLDEN / "resources.json").read_bytes() == documents.resources.body


@pytest.mark.parametrize("version", ["v2", "v3"])
def test_openapi_is_what_it_was(version: str) -> None:
    documents = OpenApiDocuments(GROUPS[0], [INSTANCE])
    body = documents.v2.body if version == "v2" else documents.v3("", NOW).body

    assert (GOLDEN / f"openapi-{version}.json").read_text() == outline(body)


def outline(body: bytes) -> str:
    """A document in the order of its keys, without our version and what the answers' schemas say."""
    document: dict[str, Any] = json.loads(body)
    assert document["info"].pop("version") == __version__
    schemas = document["definitions"] if "definitions" in document else document["components"]["schemas"]
    for name, schema in schemas.items():
        if not name.endswith(".Status"):
            schemas[name] = {key: value for key, value in schema.items() if key.startswith("x-kubernetes-")}
    return json.dumps(document, indent=1) + "\n"
