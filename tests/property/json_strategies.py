"""JSON as anyone might send it."""

import json
from typing import Any

from hypothesis import strategies as st

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["2026-01-01T10:05:00Z", "0001-01-01T00:00:00Z", "250m", "1Gi", "GPU-1", "\ud800"])
)
anything: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def objects(keys: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """Objects with some of the keys, each of which may hold something else than it should."""
    return st.fixed_dictionaries({}, optional={key: values | anything for key, values in keys.items()})


def bodies(documents: st.SearchStrategy[Any]) -> st.SearchStrategy[bytes]:
    """Documents as bytes, some of them cut short, some no JSON at all."""
    whole = documents.map(lambda document: json.dumps(document).encode())
    return st.one_of(
        whole,
        st.builds(lambda body, end: body[:end], whole, st.integers(0, 60)),
        st.binary(max_size=60),
    )
