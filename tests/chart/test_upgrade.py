"""What an upgrade finds in the cluster, and what it makes of it: certificates kept, renewed, and handed over."""

import base64
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509

from tests.chart.api import serving
from tests.chart.binaries import Helm
from tests.chart.conftest import ChartError, Document
from tests.chart.upgrades import PREFIX, let_time_pass, name, pem, upgrade

LEAVES = ("device-manager-tls", "worker-tls", "worker-client-tls")


@pytest.fixture(params=[0, -1], ids=["first", "last"])
def helm(helms: Sequence[Helm], request: pytest.FixtureRequest) -> Helm:
    index: int = request.param
    return helms[index]


def signed_by(leaf: Document, issuer_pem: bytes) -> bool:
    certificate = x509.load_pem_x509_certificate(pem(leaf, "tls.crt"))
    try:
        certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(issuer_pem))
    except Exception:  # noqa: BLE001 - any refusal is the answer "no"
        return False
    return True


def test_an_upgrade_keeps_every_certificate(helm: Helm, tmp_path: Path) -> None:
    with serving() as cluster:
        before = upgrade(helm, cluster, tmp_path)
        after = upgrade(helm, cluster, tmp_path)
    assert {key: d.get("data") for key, d in after.items()} == {key: d.get("data") for key, d in before.items()}
    assert after["v1.worker.gpustack.ai"]["spec"]["caBundle"] == before["v1.worker.gpustack.ai"]["spec"]["caBundle"]
    assert (
        after[name("worker-tls")]["metadata"]["annotations"]
        == before[name("worker-tls")]["metadata"]["annotations"]
    )


def test_the_recorded_end_is_the_certificates_own(helm: Helm, tmp_path: Path) -> None:
    with serving() as cluster:
        made = upgrade(helm, cluster, tmp_path)
    for suffix in LEAVES:
        certificate = x509.load_pem_x509_certificate(pem(made[name(suffix)], "tls.crt"))
        recorded = int(made[name(suffix)]["metadata"]["annotations"][f"{PREFIX}/not-after-epoch"])
        assert abs(certificate.not_valid_after_utc.timestamp() - recorded) < 120


def test_a_leaf_near_its_end_is_renewed_alone(helm: Helm, tmp_path: Path) -> None:
    with serving() as cluster:
        before = upgrade(helm, cluster, tmp_path)
        let_time_pass(cluster, "worker-tls", timedelta(days=30))
        after = upgrade(helm, cluster, tmp_path)
    assert after[name("worker-tls")]["data"]["tls.crt"] != before[name("worker-tls")]["data"]["tls.crt"]
    for suffix in ("device-manager-tls", "worker-client-tls", "ca"):
        assert after[name(suffix)]["data"] == before[name(suffix)]["data"]
    assert signed_by(after[name("worker-tls")], pem(before[name("ca")], "issuer.crt"))


def test_a_leaf_whose_names_change_is_made_anew(helm: Helm, tmp_path: Path) -> None:
    with serving() as cluster:
        before = upgrade(helm, cluster, tmp_path)
        after = upgrade(helm, cluster, tmp_path, "--set", "tls.workerClientName=other")
    assert (
        after[name("worker-client-tls")]["data"]["tls.crt"] != before[name("worker-client-tls")]["data"]["tls.crt"]
    )
    assert after[name("worker-tls")]["data"] == before[name("worker-tls")]["data"]


def test_the_next_authority_is_announced_first_and_signs_on_a_later_upgrade(helm: Helm, tmp_path: Path) -> None:
    with serving() as cluster:
        first = upgrade(helm, cluster, tmp_path)
        let_time_pass(cluster, "ca", timedelta(days=1825 + 90))
        announced = upgrade(helm, cluster, tmp_path)
        issuer, following = (pem(announced[name("ca")], key) for key in ("issuer.crt", "next.crt"))
        assert issuer == pem(first[name("ca")], "issuer.crt")
        for suffix in LEAVES:
            assert announced[name(suffix)]["data"]["tls.crt"] == first[name(suffix)]["data"]["tls.crt"]
            assert pem(announced[name(suffix)], "ca.crt") == issuer + following

        again = upgrade(helm, cluster, tmp_path)
        assert again[name("ca")]["data"] == announced[name("ca")]["data"], "it signs only when it must"

        let_time_pass(cluster, "ca", timedelta(days=1800))
        handed_over = upgrade(helm, cluster, tmp_path)
    assert pem(handed_over[name("ca")], "issuer.crt") == following
    assert "next.crt" not in handed_over[name("ca")]["data"]
    for suffix in LEAVES:
        assert signed_by(handed_over[name(suffix)], following)
        assert pem(handed_over[name(suffix)], "ca.crt") == following + issuer
    assert base64.b64decode(handed_over["v1.worker.gpustack.ai"]["spec"]["caBundle"]) == following + issuer


def test_an_authority_found_at_its_end_is_replaced_at_once(helm: Helm, tmp_path: Path) -> None:
    with serving() as cluster:
        before = upgrade(helm, cluster, tmp_path)
        let_time_pass(cluster, "ca", timedelta(days=30))
        after = upgrade(helm, cluster, tmp_path)
    new = pem(after[name("ca")], "issuer.crt")
    assert new != pem(before[name("ca")], "issuer.crt")
    for suffix in LEAVES:
        assert signed_by(after[name(suffix)], new)
        assert pem(after[name(suffix)], "ca.crt") == new + pem(before[name("ca")], "issuer.crt")


def test_a_group_that_is_another_services_is_refused_with_the_two_ways_out(helm: Helm, tmp_path: Path) -> None:
    owned = {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": "v1.worker.gpustack.ai"},
        "spec": {"service": {"name": "gpustack-operator", "namespace": "gpustack-system"}},
    }
    with serving() as cluster:
        cluster.keep(owned)
        with pytest.raises(ChartError, match=r"worker\.apiService\.group .* worker\.apiService\.takeOver=true"):
            upgrade(helm, cluster, tmp_path)
        assert upgrade(helm, cluster, tmp_path, "--set", "worker.apiService.group=metrics.example.org")
        taken = upgrade(helm, cluster, tmp_path, "--set", "worker.apiService.takeOver=true", "--take-ownership")
        assert taken["v1.worker.gpustack.ai"]["spec"]["service"]["name"] == name("worker")
