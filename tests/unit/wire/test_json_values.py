"""Reading JSON that may hold anything."""

import pytest

from devicemanager.errors import DocumentError
from devicemanager.wire import json_values
from devicemanager.wire.json_values import UNREADABLE


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


@pytest.mark.parametrize("body", [b"", b"{", b"\xff\xfe", b'"\xc3"', b"[" * 200_000, b"[1,]"])
def test_what_is_no_json_is_refused(body: bytes) -> None:
    with pytest.raises(DocumentError, match="pod is not JSON"):
        json_values.load(body, "pod")


@pytest.mark.parametrize("body", [b"[]", b"null", b"5"])
def test_another_value_than_an_object_is_refused(body: bytes) -> None:
    with pytest.raises(DocumentError, match="pod is not an object"):
        json_values.load_object(body, "pod")
