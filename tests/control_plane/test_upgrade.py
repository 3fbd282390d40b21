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

DEVICE_MANAGER = f"{RELEASE}-device-manager-simulated"

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


def names(cluster: ControlPlane, kind: str) -> set[str]:
    """Of the release's objects of a kind."""
    selector = f"app.kubernetes.io/instance={RELEASE}"
    return set(cluster.kubectl("get", kind, "-A", "-l", selector, "-o", "name").split())


def memory_limit(cluster: ControlPlane) -> str:
    """Of a device manager."""
    (container,) = found(cluster, "daemonset", DEVICE_MANAGER)["spec"]["template"]["spec"]["containers"]
    limit: str = container["resources"]["limits"]["memory"]
    return limit


@pytest.mark.usefixtures("installed")
def test_each_way_leaves_what_its_chart_asks_for_and_nothing_of_the_other(
    cluster: ControlPlane, binary: Helm
) -> None:
    def identities() -> dict[tuple[str, str], str]:
        kinds = (("deployment", WORKER), ("daemonset", DEVICE_MANAGER), ("service", WORKER))
        return {of: found(cluster, *of)["metadata"]["uid"] for of in (*kinds, ("apiservice", f"v1.{GROUP}"))}

    before, earlier_roles = identities(), names(cluster, "clusterroles")
    assert (names(cluster, "networkpolicies"), memory_limit(cluster)) == (set(), "192Mi")
    for _ in range(2):
        helm(cluster, binary, "upgrade", RELEASE, str(CHART), "--reset-values", *flags(WITHOUT_DEFINITION))
        (policy,) = names(cluster, "networkpolicies")
        assert "device-manager" in policy
        assert memory_limit(cluster) == "480Mi"
        assert names(cluster, "clusterroles") == earlier_roles
        assert identities() == before

        helm(cluster, binary, "rollback", RELEASE, "1")
        assert (names(cluster, "networkpolicies"), memory_limit(cluster)) == (set(), "192Mi")
        assert names(cluster, "clusterroles") == earlier_roles
        assert identities() == before
