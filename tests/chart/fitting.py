"""Whether an object fits its kind's schema."""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
from kubernetes_validate import latest_version, utils, validate

SCHEMAS = {path.stem: json.loads(path.read_text()) for path in (Path(__file__).parent / "schemas").glob("*.json")}
"""Kinds of other projects; Kubernetes' own come with the package."""

# It reads two files of some 100 KiB at each look.
utils.schema_contents = cache(utils.schema_contents)
_VERSION = latest_version()
_found: set[str] = set()


def fits(document: Mapping[str, Any]) -> None:
    """Pass one that does. Most are the same in many cases, and are looked at once.

    Raises:
        ValidationError: It does not, jsonschema's or the package's own.
    """
    text = json.dumps(document, sort_keys=True)
    if text in _found:
        return
    kind = document["kind"]
    if kind in SCHEMAS:
        jsonschema.validate(document, SCHEMAS[kind])
    else:
        validate(document, _VERSION, strict=True)
    _found.add(text)
