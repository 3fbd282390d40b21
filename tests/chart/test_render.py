"""What the chart renders: golden files, by every helm, and objects that fit their schemas, over a matrix."""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chart.api import HeldObjects, serving
from tests.chart.binaries import Helm
from tests.chart.cases import FILES, PEM
from tests.chart.conftest import CHART, NAMESPACE, RELEASE, ChartError, Document, Render, run, template
from tests.chart.fitting import fits
from tests.chart.strict import documents, repeated
from tests.chart.test_values_documented import FREE_FORM

HERE = Path(__file__).parent

SECRETS = re.compile(r"^(\s*(?:caBundle|[a-z]+\.(?:crt|key)): )[A-Za-z0-9+/=]{64,}$", re.MULTILINE)
MOMENTS = re.compile(r'^(\s*devicemanager\.gpustack\.ai/(?:next-)?not-after(?:-epoch)?: )"[^"]+"$', re.MULTILINE)


def masked(text: str) -> str:
    """The same rendering without what differs each time: key material and dates. Sources are named once a file."""
    text = SECRETS.sub(r"\1<masked>", text)
    text = MOMENTS.sub(r'\1"<masked>"', text)
    return "\n".join(line.rstrip() for line in text.splitlines() if line.strip()) + "\n"


@pytest.mark.parametrize("case", FILES)
def test_every_helm_renders_the_golden_file(
    case: str, helms: Sequence[Helm], request: pytest.FixtureRequest
) -> None:
    golden = HERE / "golden" / f"{case}.yaml"
    if request.config.getoption("--update-golden", default=False):
        golden.write_text(masked(template(helms[0], FILES[case])))
    for helm in helms:
        assert masked(template(helm, FILES[case])) == golden.read_text(), helm.name


def test_no_golden_file_holds_key_material() -> None:
    for path in (HERE / "golden").glob("*.yaml"):
        assert not re.search(r"[A-Za-z0-9+/]{100,}", path.read_text()), path.name


def test_lint(helms: Sequence[Helm]) -> None:
    for helm in helms:
        assert "0 chart(s) failed" in run(
            helm, "lint", str(CHART), "--strict", "--set", "worker.apiService.ours=true"
        )


def test_every_object_fits_its_schema(rendered: Sequence[Document]) -> None:
    assert rendered
    for document in rendered:
        fits(document)


def test_no_name_stands_twice_where_it_must_be_unique(rendered: Sequence[Document]) -> None:
    """Keys of maps are checked where documents are read: tests/chart/strict.py."""
    objects = [(d["kind"], d["metadata"].get("namespace"), d["metadata"]["name"]) for d in rendered]
    assert len(set(objects)) == len(objects)
    assert [place for document in rendered for place in repeated(document)] == []


def test_a_strict_parser_refuses_a_key_that_stands_twice() -> None:
    with pytest.raises(ValueError, match="line 2: twice in one map: a"):
        documents("labels:\n  a: 1\n  a: 2\n")
    assert list(repeated({"spec": {"env": [{"name": "A"}, {"name": "A"}]}})) == [".spec.env: A"]


def sections(values: Mapping[str, Any], prefix: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every map in the values that the chart looks into, the whole first; of the manufacturers that differ, two."""
    yield prefix
    for key, value in values.items():
        passed_on = FREE_FORM.search(key) or (prefix == ("manufacturers",) and key not in {"nvidia", "amd"})
        if isinstance(value, dict) and not passed_on:
            yield from sections(value, (*prefix, key))


DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text())


@pytest.mark.parametrize("section", tuple(sections(DEFAULTS)), ids=lambda section: ".".join(section) or "all")
@pytest.mark.parametrize("what", ["itself", "each"])
def test_any_value_may_be_null(section: tuple[str, ...], what: str, helms: Sequence[Helm], tmp_path: Path) -> None:
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
    helm = helms[len(section) % len(helms)]
    if section in {(), ("worker",), ("worker", "apiService")}:
        # Told on the command line whose the group is, these would not be null: there, it has a cluster to look at.
        with serving() as cluster:
            assert rendered_beside(cluster, helm, values, tmp_path)
    else:
        assert documents(template(helm, values))


def rendered_beside(cluster: HeldObjects, helm: Helm, values: Mapping[str, Any], home: Path) -> Sequence[Document]:
    """The chart rendered as an installation into a cluster would render it."""
    command = ("template", RELEASE, str(CHART), "-n", NAMESPACE, "-f", "-")
    there = ("--dry-run=server", "--disable-openapi-validation", "--kube-apiserver", cluster.url)
    environment = {**os.environ, "HOME": str(home), "KUBECONFIG": os.devnull}
    return documents(run(helm, *command, *there, stdin=json.dumps(values), environment=environment))


@pytest.mark.parametrize("role", ["deviceManager", "worker", "workerClient", "caBundle"])
def test_existing_secrets_must_all_be_named(role: str, helms: Sequence[Helm]) -> None:
    given = {"deviceManager": "a", "worker": "b", "workerClient": "c", "caBundle": PEM, role: ""}
    for helm in helms:
        with pytest.raises(ChartError, match=f"tls.existingSecret.{role} must"):
            template(helm, {"tls": {"mode": "existingSecret", "existingSecret": given}})


def test_zero_is_a_value(render: Render) -> None:
    worker = next(d for d in render(worker={"replicas": 0, "shutdownDelaySeconds": 0}) if d["kind"] == "Deployment")
    assert worker["spec"]["replicas"] == 0
    assert "--shutdown-delay=0s" in worker["spec"]["template"]["spec"]["containers"][0]["args"]
