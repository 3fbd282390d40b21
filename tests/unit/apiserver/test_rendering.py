"""The forms of an answer, all made of the one."""

import json
from functools import partial
from typing import Any

import pytest
import yaml

from devicemanager.wire import instance_metrics
from devicemanager.worker.apiserver.negotiation import Encoding, Representation, Shape
from devicemanager.worker.apiserver.rendering import Continuation, Form, Renderer
from devicemanager.worker.apiserver.table import IncludeObject
from tests.unit.apiserver.room import GROUPS, NOW, card, usage

ONE = usage(cards=[card()], labels={"b": "2", "a": "1"})
END = Continuation()


@pytest.fixture(params=GROUPS)
def renderer(request: pytest.FixtureRequest) -> Renderer:
    group = str(request.param)
    return Renderer(group, partial(instance_metrics.encode, api_group=group))


def form(shape: Shape = Shape.OBJECT, encoding: Encoding = Encoding.JSON, version: str = "v1", **rest: Any) -> Form:
    return Form(Representation(encoding, shape, version), **rest)


def plain(renderer: Renderer) -> Any:
    return json.loads(renderer.one(ONE, Form(), NOW))


def test_yaml_and_pretty_are_the_same_object(renderer: Renderer) -> None:
    assert yaml.safe_load(renderer.one(ONE, form(encoding=Encoding.YAML), NOW)) == plain(renderer)
    pretty = renderer.one(ONE, form(pretty=True), NOW)
    assert json.loads(pretty) == plain(renderer)
    assert pretty.count(b"\n") > 10


def test_a_time_in_yaml_stays_text(renderer: Renderer) -> None:
    document = yaml.safe_load(renderer.one(ONE, form(encoding=Encoding.YAML), NOW))
    assert document["sample"]["timestamp"] == "2026-08-12T09:14:58Z"


def test_lists(renderer: Renderer) -> None:
    listed = json.loads(renderer.many([ONE, ONE], Form(), NOW, END))
    assert listed == {
        "kind": "InstanceMetricsList",
        "apiVersion": f"{renderer.api_group}/v1",
        "metadata": {"resourceVersion": ""},
        "items": [plain(renderer), plain(renderer)],
    }
    for other in (form(pretty=True), form(encoding=Encoding.YAML)):
        assert yaml.safe_load(renderer.many([ONE, ONE], other, NOW, END)) == listed
    assert json.loads(renderer.many([], Form(), NOW, END))["items"] == []


def test_a_page_says_how_to_go_on(renderer: Renderer) -> None:
    for shape in (Shape.OBJECT, Shape.TABLE, Shape.METADATA_LIST):
        metadata = json.loads(renderer.many([ONE], form(shape), NOW, Continuation("t", 7)))["metadata"]
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
    assert json.loads(renderer.one(ONE, form(Shape.METADATA, version=version), NOW)) == partial_object
    assert json.loads(renderer.many([ONE], form(Shape.METADATA_LIST, version=version), NOW, END)) == {
        "kind": "PartialObjectMetadataList",
        "apiVersion": f"meta.k8s.io/{version}",
        "metadata": {"resourceVersion": ""},
        "items": [partial_object],
    }
    bare = json.loads(renderer.one(usage(labels={}), form(Shape.METADATA), NOW))
    assert "labels" not in bare["metadata"]


def test_what_comes_with_a_row(renderer: Renderer) -> None:
    def row_object(include: IncludeObject) -> Any:
        table = json.loads(renderer.many([ONE], form(Shape.TABLE, include=include), NOW, END))
        return table["rows"][0]["object"]

    assert row_object(IncludeObject.NONE) is None
    assert row_object(IncludeObject.OBJECT) == plain(renderer)
    assert row_object(IncludeObject.METADATA)["kind"] == "PartialObjectMetadata"


def test_an_empty_table_has_columns_and_no_rows(renderer: Renderer) -> None:
    table = json.loads(renderer.many([], form(Shape.TABLE, version="v1beta1"), NOW, END))
    assert (table["kind"], table["apiVersion"], table["rows"]) == ("Table", "meta.k8s.io/v1beta1", [])
    assert len(table["columnDefinitions"]) == 15
