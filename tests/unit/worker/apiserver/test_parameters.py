"""The query, refused as a whole or understood."""

import pytest

from devicemanager.worker.apiserver.negotiation import IncludeObject, Shape
from devicemanager.worker.apiserver.parameters import list_parameters, read_parameters
from devicemanager.worker.apiserver.status import StatusError

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


@pytest.mark.parametrize(
    ("text", "include"),
    [
        ("", IncludeObject.METADATA),
        ("Metadata", IncludeObject.METADATA),
        ("Object", IncludeObject.OBJECT),
        ("None", IncludeObject.NONE),
    ],
)
def test_include_object(text: str, include: IncludeObject) -> None:
    assert list_parameters({"includeObject": text}, TABLE).form.include is include


def test_include_object_matters_to_tables_alone() -> None:
    assert read_parameters({"includeObject": "Bogus"}, "").form.shape is Shape.OBJECT
    with pytest.raises(StatusError) as refused:
        read_parameters({"includeObject": 'Bo"gus\n'}, TABLE)
    assert 'Invalid value: "Bo?gus?"' in refused.value.message


@pytest.mark.parametrize(
    ("query", "accept", "code"),
    [
        ({}, "text/html", 406),
        ({"limit": "x"}, "", 400),
        ({"continue": "x"}, "", 400),
        ({"labelSelector": "a b"}, "", 400),
        ({"fieldSelector": "a=b"}, "", 400),
        ({"timeout": "-1s"}, "", 400),
        ({"timeout": "5"}, "", 400),
    ],
)
def test_refusals(query: dict[str, str], accept: str, code: int) -> None:
    with pytest.raises(StatusError) as refused:
        list_parameters(query, accept)
    assert refused.value.code == code


def test_unknown_parameters_are_left_alone() -> None:
    parameters = list_parameters({"resourceVersion": "0", "resourceVersionMatch": "x", "dryRun": "All"}, "")
    assert parameters.page.limit == 0
