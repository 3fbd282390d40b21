"""OpenAPI: valid, explained, and the same models as the answers."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from openapi_schema_validator import OAS30Validator
from openapi_spec_validator import validate
from referencing import Registry
from referencing.jsonschema import DRAFT4

from devicemanager.model.accelerator import Reason
from devicemanager.model.usage import SourceReport, SourceState
from devicemanager.worker.apiserver import status
from devicemanager.worker.apiserver.negotiation import Form
from devicemanager.worker.apiserver.openapi import OpenApiDocuments
from devicemanager.worker.apiserver.rendering import Continuation, Renderer
from devicemanager.worker.workloads.instance.workload import INSTANCE
from tests.unit.worker.apiserver.api_server import GROUPS, NOW, card, usage

OF_GROUP = {"worker.gpustack.ai": "ai.gpustack.worker.v1", "metrics.example.org": "org.example.metrics.v1"}


def v3_of(documents: OpenApiDocuments) -> Any:
    return json.loads(documents.v3("", NOW).body)


@pytest.mark.parametrize("group", GROUPS)
def test_both_documents_are_valid(group: str) -> None:
    documents = OpenApiDocuments(group, [INSTANCE])
    validate(v3_of(documents))
    validate(json.loads(documents.v2.body))


@pytest.mark.parametrize("group", GROUPS)
def test_explain_finds_the_kind(group: str) -> None:
    kind = {"group": group, "version": "v1", "kind": "InstanceMetrics"}
    documents = OpenApiDocuments(group, [INSTANCE])
    v3, v2 = v3_of(documents), json.loads(documents.v2.body)
    name = f"{OF_GROUP[group]}.InstanceMetrics"
    assert kind in v3["components"]["schemas"][name]["x-kubernetes-group-version-kind"]
    assert kind in v2["definitions"][name]["x-kubernetes-group-version-kind"]
    for document in (v3, v2):
        actions = {path: item["get"]["x-kubernetes-action"] for path, item in document["paths"].items()}
        assert actions == {
            f"/apis/{group}/v1/instancemetrics": "list",
            f"/apis/{group}/v1/namespaces/{{namespace}}/instancemetrics": "list",
            f"/apis/{group}/v1/namespaces/{{namespace}}/instancemetrics/{{name}}": "get",
            f"/apis/{group}/v1/namespaces/{{namespace}}/instances/{{name}}/metrics": "get",
        }
        for item in document["paths"].values():
            assert item["get"]["x-kubernetes-group-version-kind"] == kind


def undescribed(schemas: Mapping[str, Any]) -> Iterator[str]:
    for name, schema in schemas.items():
        if not schema.get("description"):
            yield name
        for key, value in schema.get("properties", {}).items():
            if not value.get("description"):
                yield f"{name}.{key}"


def test_every_key_has_a_description() -> None:
    assert list(undescribed(v3_of(OpenApiDocuments(GROUPS[0], [INSTANCE]))["components"]["schemas"])) == []


def test_the_index_lists_our_version_alone_with_the_hash_of_its_document() -> None:
    documents = OpenApiDocuments(GROUPS[1], [INSTANCE])
    digest = hashlib.sha512(documents.v3("", NOW).body).hexdigest().upper()
    path = f"/openapi/v3/apis/{GROUPS[1]}/v1"
    assert json.loads(documents.index.body) == {
        "paths": {f"apis/{GROUPS[1]}/v1": {"serverRelativeURL": f"{path}?hash={digest}"}}
    }
    assert documents.path == path
    assert documents.hash == digest


def test_a_document_asked_for_by_its_hash_may_be_kept_for_a_year() -> None:
    documents = OpenApiDocuments(GROUPS[0], [INSTANCE])
    held = documents.v3(documents.hash, NOW)
    assert held.headers == {
        "Vary": "Accept",
        "Cache-Control": "public, immutable",
        "Expires": "Thu, 12 Aug 2027 09:15:05 GMT",
    }
    assert held.etag == f'"{documents.hash}"'
    other = documents.v3("0000", NOW)
    assert (other.body, other.headers) == (held.body, {"Vary": "Accept"})


@pytest.mark.parametrize("group", GROUPS)
def test_answers_are_what_the_schemas_say(group: str) -> None:
    document = v3_of(OpenApiDocuments(group, [INSTANCE]))
    renderer = Renderer(group, INSTANCE)
    absent = card(2, memory_used=Reason.LOST, unhealthy=Reason.PERMISSION)
    sources = [SourceReport("kubelet", SourceState.OK, 5), SourceReport("device-manager/amd", SourceState.STALE)]
    one = usage(cards=[card(), absent], cpu_nanocores=Reason.NOT_YET, sources=sources)
    many = renderer.collection([renderer.item(one, Form(), NOW)], Form(), Continuation("token", 3))
    failure = status.too_many_requests("later").document()
    for name, answer in (
        ("InstanceMetrics", json.loads(renderer.one(one, Form(), NOW))),
        ("InstanceMetricsList", json.loads(many)),
        ("Status", failure),
    ):
        schema = {
            "$ref": f"#/components/schemas/{OF_GROUP[group]}.{name}",
            "components": document["components"],
        }
        registry: Registry[Any] = Registry().with_resource("", DRAFT4.create_resource(schema))
        OAS30Validator(schema, registry=registry).validate(answer)
