"""The forms of an answer, all made of the one."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from devicemanager.model.usage import WorkloadUsage
from devicemanager.worker.apiserver.negotiation import Form, IncludeObject, Shape
from devicemanager.worker.apiserver.rendering import Continuation, Renderer
from devicemanager.worker.workloads.instance.workload import INSTANCE
from tests.unit.worker.apiserver.api_server import GROUPS, NOW, card, usage

ONE = usage(cards=[card()], labels={"b": "2", "a": "1"})
END = Continuation()


@pytest.fixture(params=GROUPS)
def renderer(request: pytest.FixtureRequest) -> Renderer:
    return Renderer(str(request.param), INSTANCE)


def plain(renderer: Renderer) -> Any:
    return json.loads(renderer.one(ONE, Form(), NOW))


def many(
    renderer: Renderer, usages: Sequence[WorkloadUsage], form: Form, continuation: Continuation = END
) -> bytes:
    return renderer.collection([renderer.item(usage, form, NOW) for usage in usages], form, continuation)


def test_lists(renderer: Renderer) -> None:
    listed = json.loads(many(renderer, [ONE, ONE], Form()))
    assert listed == {
        "kind": "InstanceMetricsList",
        "apiVersion": f"{renderer.api_group}/v1",
        "metadata": {"resourceVersion": ""},
        "items": [plain(renderer), plain(renderer)],
    }
    assert json.loads(many(renderer, [], Form()))["items"] == []


def test_a_page_says_how_to_go_on(renderer: Renderer) -> None:
    for shape in (Shape.OBJECT, Shape.TABLE, Shape.METADATA_LIST):
        metadata = json.loads(many(renderer, [ONE], Form(shape), Continuation("t", 7)))["metadata"]
        assert metadata == {"resourceVersion": "", "continue": "t", "remainingItemCount": 7}


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_metadata_alone(renderer: Renderer, version: str) -> None:
    partial_object = {
        "kind": "PartialObjectMetadata",
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": {
            "name": "web",
            "namespace": "team-a",
            "uid": "uid-of-team-a-web",
            "labels": {"a": "1", "b": "2"},
            "creationTimestamp": "2026-08-12T07:15:05Z",
        },
    }
    assert json.loads(renderer.one(ONE, Form(Shape.METADATA, version=version), NOW)) == partial_object
    assert json.loads(many(renderer, [ONE], Form(Shape.METADATA_LIST, version=version))) == {
        "kind": "PartialObjectMetadataList",
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": {"resourceVersion": ""},
        "items": [partial_object],
    }
    bare = json.loads(renderer.one(usage(labels={}), Form(Shape.METADATA), NOW))
    assert "labels" not in bare["metadata"]


def test_what_comes_with_a_row(renderer: Renderer) -> None:
    def row_object(include: IncludeObject) -> Any:
        table = json.loads(many(renderer, [ONE], Form(Shape.TABLE, include=include)))
        return table["rows"][0]["object"]

    assert row_object(IncludeObject.NONE) is None
    assert row_object(IncludeObject.OBJECT) == plain(renderer)
    assert row_object(IncludeObject.METADATA)["kind"] == "PartialObjectMetadata"


def test_an_empty_table_has_columns_and_no_rows(renderer: Renderer) -> None:
    table = json.loads(many(renderer, [], Form(Shape.TABLE, version="v1beta1")))
    assert (table["kind"], table["apiVersion"], table["rows"]) == ("Table", "meta.k8s.io/v1beta1", [])
    assert [column["format"] for column in table["columnDefinitions"]] == ["name", *[""] * 17]
