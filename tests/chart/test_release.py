"""A release from its installation to its end, by each helm, against a stand-in that keeps what helm sends."""

import base64
import gzip
import json
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chart.api import HeldObjects, serving
from tests.chart.binaries import Helm
from tests.chart.conftest import CHART, NAMESPACE, RELEASE, ChartError, run
from tests.chart.test_arguments import NOT_BUILT
from tests.chart.test_render import DEFAULTS

DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/instances.worker.gpustack.ai"
CERT_MANAGER = ("--set", "tls.mode=certManager", "--disable-openapi-validation")
API_SERVICE = "/apis/apiregistration.k8s.io/v1/apiservices/v1.worker.gpustack.ai"


@pytest.fixture(params=[0, -1], ids=["first", "last"])
def helm(helms: Sequence[Helm], request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., str]:
    """``helm(cluster, *arguments)``: runs it there, with nothing of this machine's own settings."""
    binary = helms[request.param]

    def helm(cluster: HeldObjects, *arguments: str, namespace: str = NAMESPACE) -> str:
        return run(
            binary,
            *arguments,
            "--namespace",
            namespace,
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


def test_one_release_name_in_two_namespaces(helm: Callable[..., str]) -> None:
    with serving() as cluster:
        helm(cluster, "install", RELEASE, str(CHART), *CERT_MANAGER)
        first = installed(cluster)
        group = ("--set", "worker.apiService.group=metrics.example.org")
        helm(cluster, "install", RELEASE, str(CHART), *CERT_MANAGER, *group, namespace="team-b")
        assert first < installed(cluster)
        helm(cluster, "uninstall", RELEASE, namespace="team-b")
        assert installed(cluster) == first


def test_the_definition_that_is_kept_is_taken_over_by_the_flag_that_the_notes_name(
    helm: Callable[..., str],
) -> None:
    flags = (*CERT_MANAGER, "--set", "instanceCrd.create=true")
    with serving() as cluster:
        notes = helm(cluster, "install", "first", str(CHART), *flags)
        assert "--take-ownership" in notes
        helm(cluster, "uninstall", "first")
        assert installed(cluster) == {DEFINITION}
        with pytest.raises(ChartError, match="invalid ownership metadata"):
            helm(cluster, "install", "second", str(CHART), *flags)
        helm(cluster, "install", "third", str(CHART), *flags, "--take-ownership")
        owner = cluster.objects[DEFINITION]["metadata"]["annotations"]["meta.helm.sh/release-name"]
    assert owner == "third"


def recorded(cluster: HeldObjects) -> Sequence[str]:
    """The manifest of each revision that helm keeps a record of."""
    records = [held for path, held in cluster.objects.items() if "sh.helm.release" in path]
    packed = [base64.b64decode(base64.b64decode(record["data"]["release"])) for record in records]
    return [json.loads(gzip.decompress(each))["manifest"] for each in packed]


def test_helms_record_of_each_revision_holds_the_keys_until_the_history_is_cut(helm: Callable[..., str]) -> None:
    with serving() as cluster:
        helm(cluster, "install", RELEASE, str(CHART), "--disable-openapi-validation")
        key = next(held for path, held in cluster.objects.items() if path.endswith("-ca"))["data"]["issuer.key"]
        upgrade = ("upgrade", RELEASE, str(CHART), "--reuse-values", "--disable-openapi-validation")
        helm(cluster, *upgrade)
        assert [key in manifest for manifest in recorded(cluster)] == [True, True]
        for _ in range(2):
            helm(cluster, *upgrade, "--set", "tls.mode=certManager", "--history-max", "1")
        assert not any(key in manifest for manifest in recorded(cluster))


def test_helms_records_hold_no_key_where_cert_manager_makes_them(helm: Callable[..., str]) -> None:
    with serving() as cluster:
        helm(cluster, "install", RELEASE, str(CHART), *CERT_MANAGER)
        (manifest,) = recorded(cluster)
    assert "kind: Certificate" in manifest
    assert not re.search(r"PRIVATE KEY|^kind: Secret$|\.key:", manifest, re.M)


def test_without_the_definition_another_release_needs_no_flag(helm: Callable[..., str]) -> None:
    with serving() as cluster:
        helm(cluster, "install", "first", str(CHART), *CERT_MANAGER, "--set", "instanceCrd.create=true")
        helm(cluster, "uninstall", "first")
        helm(cluster, "install", "second", str(CHART), *CERT_MANAGER)
        assert DEFINITION in installed(cluster)


def test_the_notes_call_no_plug_in_and_no_simulated_cards_unbuilt(helm: Callable[..., str]) -> None:
    unbuilt = sorted(NOT_BUILT)[:1]
    names = ["simulated-east", *unbuilt]
    flags = [word for name in names for word in ("--set", f"manufacturers.{name}.enabled=true")]
    plug_in = ("--set", "manufacturers.acme.enabled=true,manufacturers.acme.image.repository=acme")
    with serving() as cluster:
        notes = helm(cluster, "install", RELEASE, str(CHART), *CERT_MANAGER, *flags, *plug_in)
    assert re.findall(r"the collector for (\S+) is not built yet", notes) == unbuilt
