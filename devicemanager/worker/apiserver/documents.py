"""Documents as bytes: how they are encoded, and those that are made once and served as they are."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

JSON: Final = "application/json"


@dataclass(frozen=True, slots=True)
class StaticDocument:
    """Bytes ready to be sent.

    Attributes:
        content_type: Exactly as it must appear: clients compare the whole of it.
        etag: Quoted; None for documents that carry none.
        headers: To be sent beside.
    """

    body: bytes
    content_type: str = JSON
    etag: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


def encode(document: object) -> bytes:
    """One document as compact JSON, with a newline at the end as the API server sends it.

    A path or a header may hold bytes that are no UTF-8; they reach us as surrogates and leave as JSON escapes.
    """
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n"
    return text.encode("utf-8", "backslashreplace")
