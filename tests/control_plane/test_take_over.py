"""Taking over a group's APIService from another backend, and giving up without harm to it, with each helm."""

import contextlib
import json
from collections.abc import Iterator, Sequence

import pytest

from tests.chart.binaries import Helm
from tests.chart.conftest import CHART
from tests.control_plane.cluster import CommandError, ControlPlane, Object, run
from tests.control_plane.release import GROUP, NAMESPACE, RELEASE, WORKER, helm, install

NAME = f"v1.{GROUP}"
FOREIGN = {"namespace": "gpustack-system", "name": "gpustack-operator", "port": 443}
TAKE_OVER = ["--set", "worker.apiService.takeOver=true", "--take-ownership"]


@pytest.fixture(params=[0, -1], ids=["first", "last"])
def binary(helms: Sequence[Helm], request: pytest.FixtureRequest) -> Helm:
    """The newest helm, and the oldest."""
    number: int = request.param
    return helms[number]


@pytest.fixture(autouse=True)
def foreign(cluster: ControlPlane) -> Iterator[None]:
    """The APIService as the existing operator registers it: another backend's, and its certificate not verified."""
    spec = {
        "group": GROUP,
        "version": "v1",
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
        "insecureSkipTLSVerify": True,
        "service": FOREIGN,
    }
    document = {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": NAME},
        "spec": spec,
    }
    cluster.kubectl("create", "-f", "-", stdin=json.dumps(document))
    yield
    cluster.kubectl("delete", "apiservice", NAME, "--ignore-not-found")


@pytest.fixture(autouse=True)
def no_release(cluster: ControlPlane, binary: Helm) -> Iterator[None]:
    """None is left behind, whatever happens."""
    yield
    if RELEASE in helm(cluster, binary, "list", "--short"):
        helm(cluster, binary, "uninstall", RELEASE)


def service(cluster: ControlPlane) -> Object:
    """The backend that the APIService names now."""
    found = cluster.get("apiservice", NAME)
    assert found is not None
    backend: Object = found["spec"]["service"]
    return backend


def documented_flags(binary: Helm) -> list[str]:
    """What the install page says for this helm, beside those for both."""
    printed = run([str(binary.path), "version", "--short"], {})
    return ["--force"] if printed.startswith("v3.") else ["--force-conflicts"]


def test_unasked_it_is_refused(cluster: ControlPlane, binary: Helm) -> None:
    with pytest.raises(CommandError, match="gpustack-system/gpustack-operator"):
        install(cluster, binary)
    assert service(cluster) == FOREIGN


def test_the_documented_flags_take_it_over(cluster: ControlPlane, binary: Helm) -> None:
    install(cluster, binary, *TAKE_OVER, *documented_flags(binary))
    found = cluster.get("apiservice", NAME)
    assert found is not None
    assert found["spec"]["service"] == {"namespace": NAMESPACE, "name": WORKER, "port": 443}
    assert not found["spec"].get("insecureSkipTLSVerify")
    assert found["spec"]["caBundle"]


def test_uninstalling_after_a_failed_take_over_leaves_the_other_backend(
    cluster: ControlPlane, binary: Helm
) -> None:
    """An object that the API server refuses makes the installation fail; the release stays, and is uninstalled."""
    with pytest.raises(CommandError, match="-no-key-"):
        install(cluster, binary, *TAKE_OVER, *documented_flags(binary), "--set", "worker.podAnnotations.-no-key-=x")
    helm(cluster, binary, "uninstall", RELEASE)
    assert service(cluster) == FOREIGN


def test_a_take_over_without_the_flag_of_this_helm_loses_no_request(cluster: ControlPlane, binary: Helm) -> None:
    """helm 4 refuses; helm 3 marks the APIService and leaves it as it was."""
    with contextlib.suppress(CommandError):
        install(cluster, binary, *TAKE_OVER)
    assert service(cluster) == FOREIGN
    helm(cluster, binary, "uninstall", RELEASE)
    assert service(cluster) == FOREIGN


def test_once_taken_over_it_is_ours_to_delete(cluster: ControlPlane, binary: Helm) -> None:
    install(cluster, binary, *TAKE_OVER, *documented_flags(binary))
    helm(cluster, binary, "upgrade", RELEASE, str(CHART), "--reuse-values")
    helm(cluster, binary, "uninstall", RELEASE)
    assert cluster.get("apiservice", NAME) is None
