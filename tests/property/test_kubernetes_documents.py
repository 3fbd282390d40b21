"""Whatever bytes an API server sends, our parsers give a document or their own error."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devicemanager.errors import DocumentError, FetchError
from devicemanager.rules.object_names import is_name
from devicemanager.wire import kubernetes
from devicemanager.worker.api_errors import fetch_error
from devicemanager.worker.cluster import object_path

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["metadata", "items", "kind", "message", "reason", "code", "type", "object", "continue"]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)
BODIES = st.binary(max_size=64) | JSON.map(lambda value: json.dumps(value).encode())


@given(BODIES)
def test_parsers_raise_their_own_error_only(body: bytes) -> None:
    for parse in (kubernetes.parse_list_page, kubernetes.parse_watch_line, kubernetes.parse_metadata):
        with suppress(DocumentError):
            parse(body)


@given(st.integers(min_value=400, max_value=599), BODIES)
def test_any_error_answer_is_one_printable_line(status: int, body: bytes) -> None:
    error = fetch_error(status, body)

    assert error.status == status
    assert error.message.startswith(f"HTTP {status}")
    assert str(error).isprintable()
    assert len(str(error)) < 300


@given(st.text(max_size=12) | st.from_regex(r"[a-z0-9./%?#-]{0,12}"))
def test_no_segment_ever_leaves_its_place(name: str) -> None:
    if is_name(name):
        assert object_path("/api/v1/nodes", name) == f"/api/v1/nodes/{name}"
        assert not set(name) & set("/%?#\\")
        assert ".." not in name
    else:
        with pytest.raises(FetchError):
            object_path("/api/v1/nodes", name)
