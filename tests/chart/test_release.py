"""A release from its installation to its end, by each helm, against a stand-in that keeps what helm sends."""

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chart.api import HeldObjects, serving
from tests.chart.binaries import Helm
from tests.chart.conftest import CHART, NAMESPACE, RELEASE, run
from tests.chart.test_render import DEFAULTS

API_SERVICE = "/apis/apiregistration.k8s.io/v1/apiservices/v1.worker.gpustack.ai"


@pytest.fixture(params=[0, -1], ids=["first", "last"])
def helm(helms: Sequence[Helm], request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., str]:
    """``helm(cluster, *arguments)``: runs it there, with nothing of this machine's own settings."""
    binary = helms[request.param]

    def helm(cluster: HeldObjects, *arguments: str) -> str:
        return run(
            binary,
            *arguments,
            "--namespace",
            NAMESPACE,
            "--kube-apiserver",
            cluster.url,
            environment={**os.environ, "HOME": str(tmp_path), "KUBECONFIG": os.devnull},
        )

    return helm


def earlier_chart(folder: Path) -> Path:
    """The chart as an earlier version of it, which knew only the values that the first ones needed."""
    chart = folder / "earlier"
    shutil.copytree(CHART, chart)
    known: Mapping[str, Any] = {key: DEFAULTS[key] for key in ("image", "manufacturers")}
    (chart / "values.yaml").write_text(yaml.safe_dump(known))
    (chart / "Chart.yaml").write_text(
        yaml.safe_dump({**yaml.safe_load((CHART / "Chart.yaml").read_text()), "version": "0.0.1"})
    )
    return chart


def installed(cluster: HeldObjects) -> set[str]:
    """What there is, but helm's own records."""
    return {path for path in cluster.objects if "sh.helm.release" not in path}


def test_uninstalling_takes_the_api_service_away_first_and_leaves_nothing(helm: Callable[..., str]) -> None:
    with serving() as cluster:
        helm(cluster, "install", RELEASE, str(CHART), "--disable-openapi-validation")
        there = installed(cluster)
        assert API_SERVICE in there
        helm(cluster, "uninstall", RELEASE)
        deleted = [path for path in cluster.deleted if "sh.helm.release" not in path]

    assert deleted[0] == API_SERVICE
    assert set(deleted) == there
    assert installed(cluster) == set()


def test_values_reused_from_an_earlier_chart_lack_nothing(helm: Callable[..., str], tmp_path: Path) -> None:
    with serving() as cluster:
        helm(cluster, "install", RELEASE, str(earlier_chart(tmp_path)), "--disable-openapi-validation")
        helm(cluster, "upgrade", RELEASE, str(CHART), "--reuse-values", "--disable-openapi-validation")
        upgraded = installed(cluster)
    with serving() as cluster:
        helm(cluster, "install", RELEASE, str(CHART), "--disable-openapi-validation")
        assert upgraded == installed(cluster)
