"""What the chart renders, over a matrix of values, by every helm."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from tests.chart.binaries import Helm
from tests.chart.conftest import CHART, ChartError, Render, documents, run, template

HERE = Path(__file__).parent
SCHEMAS = {path.stem: json.loads(path.read_text()) for path in (HERE / "schemas").glob("*.json")}
CASES = {path.stem: yaml.safe_load(path.read_text()) or {} for path in sorted((HERE / "values").glob("*.yaml"))}

SECRETS = re.compile(r"^(\s*(?:caBundle|[a-z]+\.(?:crt|key)): )[A-Za-z0-9+/=]{64,}$", re.MULTILINE)
MOMENTS = re.compile(r'^(\s*devicemanager\.gpustack\.ai/(?:next-)?not-after(?:-epoch)?: )"[^"]+"$', re.MULTILINE)


def masked(text: str) -> str:
    """The same rendering without what differs each time: key material and dates. Sources are named once a file."""
    text = SECRETS.sub(r"\1<masked>", text)
    text = MOMENTS.sub(r'\1"<masked>"', text)
    return "\n".join(line.rstrip() for line in text.splitlines() if line.strip()) + "\n"


@pytest.mark.parametrize("case", CASES)
def test_every_helm_renders_the_golden_file(
    case: str, helms: Sequence[Helm], request: pytest.FixtureRequest
) -> None:
    golden = HERE / "golden" / f"{case}.yaml"
    if request.config.getoption("--update-golden", default=False):
        golden.write_text(masked(template(helms[0], CASES[case])))
    for helm in helms:
        assert masked(template(helm, CASES[case])) == golden.read_text(), helm.name


def test_no_golden_file_holds_key_material() -> None:
    for path in (HERE / "golden").glob("*.yaml"):
        assert not re.search(r"[A-Za-z0-9+/]{100,}", path.read_text()), path.name


def test_lint(helms: Sequence[Helm]) -> None:
    for helm in helms:
        assert "0 chart(s) failed" in run(helm, "lint", str(CHART), "--strict")


@pytest.mark.parametrize("case", CASES)
def test_every_object_fits_its_schema(case: str, helms: Sequence[Helm]) -> None:
    rendered = documents(template(helms[0], CASES[case]))
    assert rendered
    for document in rendered:
        kind = document["kind"]
        if kind in SCHEMAS:
            jsonschema.validate(document, SCHEMAS[kind])
        else:
            kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)


def sections(values: Mapping[str, Any], prefix: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every map in the values, the whole first."""
    yield prefix
    for key, value in values.items():
        if isinstance(value, dict):
            yield from sections(value, (*prefix, key))


DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text())


@pytest.mark.parametrize("section", tuple(sections(DEFAULTS)), ids=lambda section: ".".join(section) or "all")
@pytest.mark.parametrize("what", ["itself", "each"])
def test_any_value_may_be_null(section: tuple[str, ...], what: str, helms: Sequence[Helm]) -> None:
    """Null removes a default; so do values reused from a chart that did not know the key yet."""
    values: Any = None
    if what == "each" or not section:
        inside = DEFAULTS
        for key in section:
            inside = inside[key]
        values = dict.fromkeys(inside)
    for key in reversed(section):
        values = {key: values}
    if section[:1] != ("tls",) and section:
        values["tls"] = {"mode": "certManager"}  # making keys is the slow part of a rendering
    # The helms take turns: both were seen to agree on every path.
    assert documents(template(helms[len(section) % len(helms)], values))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"worker": {"replicaz": 2}}, "replicaz"),
        ({"worker": {"kubelet": {"mode": "fast"}}}, "mode"),
        ({"worker": {"apiService": {"group": "nodots"}}}, "group"),
        ({"worker": {"securePort": 443}}, "securePort"),
        ({"deviceManager": {"monitorPeriod": "15"}}, "monitorPeriod"),
        ({"deviceManager": {"allowAnonymous": "yes"}}, "allowAnonymous"),
        ({"manufacturers": {"nvidea": {"enabled": True}}}, "nvidea"),
        ({"tls": {"mode": "none"}}, "mode"),
        ({"image": {"digest": "sha256:short"}}, "digest"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_value_that_does_not_fit_is_refused_by_name(
    values: Mapping[str, Any], words: str, helms: Sequence[Helm]
) -> None:
    for helm in helms:
        with pytest.raises(ChartError, match=words):
            template(helm, values)


@pytest.mark.parametrize("role", ["deviceManager", "worker", "workerClient", "caBundle"])
def test_existing_secrets_must_all_be_named(role: str, helms: Sequence[Helm]) -> None:
    given = {"deviceManager": "a", "worker": "b", "workerClient": "c", "caBundle": "PEM", role: ""}
    for helm in helms:
        with pytest.raises(ChartError, match=f"tls.existingSecret.{role} must"):
            template(helm, {"tls": {"mode": "existingSecret", "existingSecret": given}})


def test_zero_is_a_value(render: Render) -> None:
    worker = next(d for d in render(worker={"replicas": 0, "shutdownDelaySeconds": 0}) if d["kind"] == "Deployment")
    assert worker["spec"]["replicas"] == 0
    assert "--shutdown-delay=0s" in worker["spec"]["template"]["spec"]["containers"][0]["args"]
