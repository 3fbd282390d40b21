"""An object that is read member by member is the object as read at once; what is refused is refused either way."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from devicemanager.errors import DocumentError
from devicemanager.wire import json_values

keys = st.sampled_from(["pods", "node", "a", ""]) | st.text(max_size=4)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=12,
)
objects = st.dictionaries(keys, values, max_size=5)


def rebuilt(body: bytes) -> dict[str, object] | None:
    """The object, put together again; None where it is refused."""
    built: dict[str, Any] = {}
    try:
        for key, value in json_values.members(body, "x", "pods"):
            if key == "pods":
                built.setdefault(key, []).append(value)
            else:
                built[key] = value
    except DocumentError:
        return None
    return built


@given(objects, st.sampled_from([None, 0, 1, "\t"]), st.booleans())
def test_in_parts_it_is_what_it_is_at_once(document: dict[str, Any], indent: int | None, ascii_only: bool) -> None:
    body = json.dumps(document, indent=indent, ensure_ascii=ascii_only).encode()
    expected = dict(document)
    if not isinstance(expected.get("pods"), list) or not expected["pods"]:
        expected.pop("pods", None)

    assert rebuilt(body) == expected


@given(objects, st.data())
def test_a_text_with_a_byte_changed_is_refused_by_both_or_by_neither(
    document: dict[str, Any], data: st.DataObject
) -> None:
    body = bytearray(json.dumps(document).encode())
    place = data.draw(st.integers(0, len(body) - 1))
    body[place] = data.draw(st.sampled_from(b'{}[]",:0 x'))
    try:
        at_once = json_values.load(bytes(body), "x")
    except DocumentError:
        at_once = None

    in_parts = rebuilt(bytes(body))

    assert (in_parts is None) is not isinstance(at_once, dict)
