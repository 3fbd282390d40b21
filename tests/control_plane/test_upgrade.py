"""From the chart of the version before to this one and back on a real API server, with each helm.

What only it can tell: that nothing immutable changes, and that fields which are gone are gone.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.chart.binaries import Helm
from tests.chart.conftest import CHART
from tests.chart.previous import previous_tree
from tests.control_plane.cluster import ControlPlane, Object
from tests.control_plane.release import GROUP, NAMESPACE, RELEASE, VALUES, WORKER, flags, helm

WITHOUT_DEFINITION = {**VALUES, "instanceCrd.create": "false"}
"""It stays when its release goes, and another test's release may own it."""


@pytest.fixture(params=[0, -1], ids=["first", "last"])
def binary(helms: Sequence[Helm], request: pytest.FixtureRequest) -> Helm:
    """The newest helm, and the oldest."""
    number: int = request.param
    return helms[number]


@pytest.fixture
def installed(cluster: ControlPlane, binary: Helm, tmp_path: Path) -> Iterator[None]:
    """A release of the chart before; none is left behind."""
    earlier = previous_tree(tmp_path / "previous") / "charts" / CHART.name
    helm(cluster, binary, "install", RELEASE, str(earlier), "--create-namespace", *flags(WITHOUT_DEFINITION))
    yield
    helm(cluster, binary, "uninstall", RELEASE)


def found(cluster: ControlPlane, kind: str, name: str) -> Object:
    """One object that must be there."""
    it = cluster.get(kind, name, NAMESPACE)
    assert it is not None, (kind, name)
    return it


def budget(cluster: ControlPlane) -> set[str]:
    """What the disruption budget says."""
    return set(found(cluster, "poddisruptionbudget", WORKER)["spec"]) - {"selector"}


def roles(cluster: ControlPlane) -> set[str]:
    """Names of the release's cluster-wide roles."""
    selector = f"app.kubernetes.io/instance={RELEASE}"
    return set(cluster.kubectl("get", "clusterroles", "-l", selector, "-o", "name").split())


@pytest.mark.usefixtures("installed")
def test_each_way_leaves_what_its_chart_asks_for_and_nothing_of_the_other(
    cluster: ControlPlane, binary: Helm
) -> None:
    def identities() -> dict[tuple[str, str], str]:
        kinds = (("deployment", WORKER), ("daemonset", f"{RELEASE}-device-manager-simulated"), ("service", WORKER))
        return {of: found(cluster, *of)["metadata"]["uid"] for of in (*kinds, ("apiservice", f"v1.{GROUP}"))}

    before, earlier_roles = identities(), roles(cluster)
    assert budget(cluster) == {"minAvailable"}
    for _ in range(2):
        helm(cluster, binary, "upgrade", RELEASE, str(CHART), "--reuse-values")
        assert budget(cluster) == {"maxUnavailable"}
        assert roles(cluster).isdisjoint(earlier_roles)
        owner = found(cluster, "apiservice", f"v1.{GROUP}")["metadata"]["labels"]["devicemanager.gpustack.ai/owner"]
        (container,) = found(cluster, "deployment", WORKER)["spec"]["template"]["spec"]["containers"]
        assert f"--api-service-owner={owner}" in container["args"]
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert identities() == before

        helm(cluster, binary, "rollback", RELEASE, "1")
        assert budget(cluster) == {"minAvailable"}
        assert roles(cluster) == earlier_roles
        (container,) = found(cluster, "deployment", WORKER)["spec"]["template"]["spec"]["containers"]
        assert not [word for word in container["args"] if word.startswith("--api-service-owner")]
        assert identities() == before
