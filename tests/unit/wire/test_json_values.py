"""Reading JSON that may hold anything."""

import pytest

from devicemanager.errors import DocumentError
from devicemanager.model.pod_stats import UNREADABLE
from devicemanager.wire import json_values


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b"null", None),
        (b"7", 7),
        (b"-7", -7),
        (b"9223372036854775808", 2**63),
        (b"1.0", UNREADABLE),
        (b"1e3", UNREADABLE),
        (b"NaN", UNREADABLE),
        (b"Infinity", UNREADABLE),
        (b"true", UNREADABLE),
        (b'"7"', UNREADABLE),
        (b"{}", UNREADABLE),
        (b"1" * 5000, UNREADABLE),
    ],
)
def test_an_integer_is_one_or_is_told_apart(body: bytes, value: int | None) -> None:
    assert json_values.integer(json_values.load(body, "x")) == value


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'"main"', "main"),
        (b'""', None),
        (b"1.5", None),
        (b"NaN", None),
        (b"5", None),
        (b"null", None),
        (b'"\\ud800"', None),
        (b'"\\ud83d\\ude00"', "\U0001f600"),
    ],
)
def test_text_is_a_string_that_can_be_written_again(body: bytes, text: str | None) -> None:
    assert json_values.text(json_values.load(body, "x")) == text


@pytest.mark.parametrize(
    ("body", "quantity"),
    [
        (b'"250m"', "250m"),
        (b"20", "20"),
        (b"0.5", "0.5"),
        (b"1e3", "1e3"),
        (b"NaN", "NaN"),
        (b"true", None),
        (b"[]", None),
    ],
)
def test_a_quantity_may_be_a_bare_number_as_written(body: bytes, quantity: str | None) -> None:
    assert json_values.quantity(json_values.load(body, "x")) == quantity


def test_members_of_what_is_no_object_are_missing() -> None:
    document = json_values.load(b'{"a":{"b":[1]},"c":5}', "x")
    assert json_values.member(document, "a", "b") == [1]
    assert json_values.member(document, "a", "b", "c") is None
    assert json_values.member(document, "c", "d") is None
    assert json_values.mapping(5) == {}
    assert list(json_values.items({"a": 1})) == []


def test_only_strings_are_kept_of_an_object_of_texts() -> None:
    document = json_values.load(b'{"a":"x","b":1,"c":null,"d":1.5,"e":"","f":"\\udfff"}', "x")
    assert json_values.texts(document) == {"a": "x", "e": ""}


@pytest.mark.parametrize("body", [b"", b"{", b"\xff\xfe", b'"\xc3"', b"[" * 100_000, b"[1,]"])
def test_what_is_no_json_is_refused(body: bytes) -> None:
    with pytest.raises(DocumentError, match="pod is not JSON"):
        json_values.load(body, "pod")


@pytest.mark.parametrize("body", [b"[]", b"null", b"5"])
def test_another_value_than_an_object_is_refused(body: bytes) -> None:
    with pytest.raises(DocumentError, match="pod is not an object"):
        json_values.load_object(body, "pod")


def parts(body: bytes) -> tuple[dict[str, object], list[object]]:
    """The members, and the elements of ``pods``."""
    others: dict[str, object] = {}
    pods: list[object] = []
    for key, value in json_values.members(body, "x", "pods"):
        if key == "pods":
            pods.append(value)
        else:
            others[key] = value
    return others, pods


@pytest.mark.parametrize(
    ("body", "others", "pods"),
    [
        (b"{}", {}, []),
        (b' { "a" : 1 , "pods" : [ {} , [2] , "x" ] , "b" : [ ] } \n', {"a": 1, "b": []}, [{}, [2], "x"]),
        (b'{"pods":[]}', {}, []),
        (b'{"pods":null,"a":2}', {"a": 2}, []),
        (b'{"pods":{"pods":[1]}}', {}, []),
        (b'{"a":{"pods":[1]}}', {"a": {"pods": [1]}}, []),
        (b'{"po\\u0064s":[1]}', {}, [1]),
        (b'{"a":1,"a":2}', {"a": 2}, []),
        ('{"ü":"\U0001f600"}'.encode(), {"ü": "\U0001f600"}, []),
    ],
)
def test_an_object_comes_in_its_members_and_one_array_in_its_elements(
    body: bytes, others: dict[str, object], pods: list[object]
) -> None:
    assert parts(body) == (others, pods)


def test_a_number_that_is_no_integer_stays_as_it_was_written() -> None:
    _, [nan, half] = parts(b'{"pods":[NaN,0.5]}')
    assert (json_values.integer(nan), json_values.integer(half)) == (UNREADABLE, UNREADABLE)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"null",
        b"{",
        b'{"a"}',
        b'{"a":}',
        b'{"a":1,}',
        b'{"a":1 "b":2}',
        b"{1:2}",
        b'{"pods":[1,]}',
        b'{"pods":[1 2]}',
        b'{"pods":[1',
        b'{"pods":[]]}',
        b'{"pods":[]} {}',
        b'{"pods":[],"pods":[]}',
        b'{"a":"\xff"}',
        b'{"pods":[' + b"[" * 50_000,
    ],
)
def test_what_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(DocumentError):
        parts(body)
