"""From the chart of the version before to this one and back, by each helm: at no moment is a reader cut off.

Every write that helm sends is one moment. tests/chart/test_upgrade_live.py runs the programs meanwhile.
"""

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509

from tests.chart.api import serving
from tests.chart.binaries import Helm
from tests.chart.conftest import CHART, Document
from tests.chart.installed import the
from tests.chart.previous import previous_tree
from tests.chart.releases import Release, objects_of
from tests.chart.test_rbac import rights


@pytest.fixture(params=[0, -1], ids=["first", "last"])
def helm(helms: Sequence[Helm], request: pytest.FixtureRequest) -> Helm:
    index: int = request.param
    return helms[index]


@pytest.fixture
def previous_chart(tmp_path: Path) -> Path:
    return previous_tree(tmp_path / "previous") / "charts" / CHART.name


def certificates(pem: bytes) -> Sequence[x509.Certificate]:
    return x509.load_pem_x509_certificates(pem)


def vouched_for(leaf: bytes, bundle: bytes) -> bool:
    """Whether an authority of the bundle signed the leaf."""
    for authority in certificates(bundle):
        try:
            certificates(leaf)[0].verify_directly_issued_by(authority)
        except Exception:  # noqa: BLE001 - any refusal is the answer "not this one"
            continue
        return True
    return False


def secret(objects: Sequence[Document], suffix: str) -> Mapping[str, bytes]:
    return {key: base64.b64decode(value) for key, value in the(objects, "Secret", suffix)["data"].items()}


def cut_off(objects: Sequence[Document], needed: set[Any]) -> Iterator[str]:
    """Why a reader would be refused at this moment."""
    registration = the(objects, "APIService", "v1.worker.gpustack.ai")
    service = the(objects, "Service", registration["spec"]["service"]["name"])
    worker = the(objects, "Deployment", "-worker")
    if not service["spec"]["selector"].items() <= worker["spec"]["template"]["metadata"]["labels"].items():
        yield "the Service selects no worker"
    server, client = (secret(objects, suffix) for suffix in ("-worker-tls", "-worker-client-tls"))
    device_manager = secret(objects, "-device-manager-tls")
    if not vouched_for(server["tls.crt"], base64.b64decode(registration["spec"]["caBundle"])):
        yield "kube-apiserver does not trust the worker"
    if not vouched_for(client["tls.crt"], device_manager["ca.crt"]):
        yield "device managers do not trust the worker"
    if not vouched_for(device_manager["tls.crt"], client["ca.crt"]):
        yield "the worker does not trust device managers"
    missing = needed - {str(right.rule) for right in rights(objects)}
    yield from (f"the worker may no longer: {rule}" for rule in missing)


def test_no_moment_of_an_upgrade_or_a_rollback_cuts_a_reader_off(
    helm: Helm, previous_chart: Path, tmp_path: Path
) -> None:
    with serving() as cluster:
        release = Release(helm, cluster, tmp_path)
        release.install(previous_chart)
        before = release.objects
        needed = {str(right.rule) for right in rights(before)}
        steps: Sequence[Callable[[], None]] = (
            lambda: release.upgrade(CHART),
            lambda: release.roll_back(1),
            lambda: release.upgrade(CHART),
        )
        for step in steps:
            cluster.moments.clear()
            step()
            written = len(cluster.moments)
            assert written > 3  # the record of a release is three of them
            for number, moment in enumerate(cluster.moments):
                assert list(cut_off(objects_of(moment), needed)) == [], f"after write {number + 1} of {written}"
        after = release.objects
        owner = the(after, "APIService", "v1.worker.gpustack.ai")["metadata"]["labels"][
            "devicemanager.gpustack.ai/owner"
        ]
        (container,) = the(after, "Deployment", "-worker")["spec"]["template"]["spec"]["containers"]
        assert f"--api-service-owner={owner}" in container["args"]
        gone = {path.split("/")[-2] for path in cluster.deleted if "sh.helm.release" not in path}
    assert gone <= {"clusterroles", "clusterrolebindings", "roles", "rolebindings"}
    assert unchanging(after) == unchanging(before)


def unchanging(objects: Sequence[Document]) -> Mapping[str, Any]:
    """What Kubernetes refuses to change, or what pods of both versions must agree on."""
    made = [d for d in objects if d["kind"] in {"DaemonSet", "Deployment"}]
    workloads = {d["metadata"]["name"]: d["spec"]["selector"]["matchLabels"] for d in made}
    services = {d["metadata"]["name"]: d["spec"]["selector"] for d in objects if d["kind"] == "Service"}
    secrets = {d["metadata"]["name"]: d["data"] for d in objects if d["kind"] == "Secret"}
    return {"workloads": workloads, "services": services, "secrets": secrets}


def policies(documents: Sequence[Document]) -> set[str]:
    return {d["metadata"]["name"] for d in documents if d["kind"] == "NetworkPolicy"}


def test_an_upgrade_takes_no_protection_away_and_a_worker_at_a_time(
    helm: Helm, previous_chart: Path, tmp_path: Path
) -> None:
    """Reused values lack what this chart added: it must not be lost with them. But nobody is cut off by them."""
    with serving() as cluster:
        release = Release(helm, cluster, tmp_path)
        release.install(previous_chart)
        before = release.manifest()
        release.upgrade(CHART)
        made = release.manifest()
    assert policies(made) == policies(before)
    worker = the(made, "Deployment", "-worker")["spec"]
    device_manager = the(made, "DaemonSet", "-simulated")["spec"]
    budget = the(made, "PodDisruptionBudget", "-worker")["spec"]
    for pod in (worker["template"]["spec"], device_manager["template"]["spec"]):
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] == 65532
        context = pod["containers"][0]["securityContext"]
        assert (context["readOnlyRootFilesystem"], context["allowPrivilegeEscalation"]) == (True, False)
        assert context["capabilities"] == {"drop": ["ALL"]}
    assert worker["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
    assert budget.get("maxUnavailable") == 1
    assert "minAvailable" not in budget
