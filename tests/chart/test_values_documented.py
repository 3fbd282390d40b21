"""docs/values.md names every value with its true default, and no value that is gone."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.chart.conftest import CHART

PAGE = (Path(__file__).parents[2] / "docs" / "values.md").read_text()
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
FREE_FORM = re.compile(
    r"(nodeSelector|resources|updateStrategy|[pP]odSecurityContext|securityContext|podAnnotations)$"
)
"""Maps that are passed on as they stand."""


def leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, dict) and value and not FREE_FORM.search(key):
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def test_every_value_is_documented_with_its_default_and_none_is_made_up() -> None:
    documented = dict(re.findall(r"^\| `([^`<]+)` \| `([^`]+)` \| \S", PAGE, re.MULTILINE))
    actual = {k: json.dumps(v) for k, v in leaves(VALUES) if not k.startswith("manufacturers.")}
    assert documented == actual


def test_every_setting_of_a_manufacturer_is_documented() -> None:
    documented = set(re.findall(r"^\| `manufacturers\.<name>\.(\w+)` \| \S", PAGE, re.MULTILINE))
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert documented == set(schema["definitions"]["manufacturer"]["properties"])


def test_the_schema_knows_every_value() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    for path, _ in leaves(VALUES):
        here: Any = schema
        for key in path.split("."):
            assert key in here["properties"], path
            here = here["properties"][key]
            if "$ref" in here:
                here = schema["definitions"][here["$ref"].rpartition("/")[2]]
            if "properties" not in here:
                break
