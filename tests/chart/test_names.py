"""Names of objects and in certificates, whatever the release, the namespace and the manufacturer are called."""

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from tests.chart.binaries import Helm
from tests.chart.conftest import ChartError, Document, Render, template
from tests.chart.fitting import fits
from tests.chart.strict import documents

CERT_MANAGER = {"tls": {"mode": "certManager"}, "deviceManager": {"podMonitor": {"enabled": True}}}
LONG = "a-release-whose-name-has-forty-three-chars1"
LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
PATH_SEGMENT = re.compile(r"[^/%]+")


def form(document: Document) -> re.Pattern[str]:
    """What Kubernetes takes for the name of such an object."""
    kind = document["kind"]
    if kind == "Service":
        return LABEL
    return PATH_SEGMENT if kind in {"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"} else SUBDOMAIN


def labels(value: Any) -> Iterator[tuple[str, str]]:
    """Every label that is set or selected by."""
    if isinstance(value, dict):
        for key, inside in value.items():
            if key in {"labels", "matchLabels"}:
                yield from inside.items()
            yield from labels(inside)
    elif isinstance(value, list):
        for inside in value:
            yield from labels(inside)


def rendered(helm: Helm, values: Mapping[str, Any] = CERT_MANAGER, **where: str) -> Sequence[Document]:
    return documents(template(helm, values, **where))


@pytest.mark.parametrize(
    ("release", "namespace", "values"),
    [
        ("node", "accelerators", {}),
        (LONG, "n" * 63, {"manufacturers": {"cambricon": {"enabled": True}}}),
        ("a" * 53, "n" * 32, {"manufacturers": {f"simulated-{'x' * 53}": {"enabled": True}}}),
        ("node", "1234", {"fullnameOverride": "n" * 63}),
        ("1e3", "0x10", {"fullnameOverride": "yes", "nameOverride": "123"}),
        ("true", "null", {"worker": {"serviceAccount": {"name": "1e3"}, "priorityClassName": "123"}}),
    ],
    ids=["plain", "long-release", "longest", "numeric-namespace", "numeric-release", "words-of-yaml"],
)
def test_every_name_is_one_that_kubernetes_takes(
    release: str, namespace: str, values: Mapping[str, Any], helms: Sequence[Helm]
) -> None:
    for helm in helms:
        made = rendered(helm, {**CERT_MANAGER, **values}, release=release, namespace=namespace)
        for document in made:
            name = document["metadata"]["name"]
            assert form(document).fullmatch(name), (document["kind"], name)
            assert document["metadata"].get("namespace", namespace) in {namespace, "kube-system"}
            for key, label in labels(document):
                assert isinstance(label, str), (key, label)
                assert len(label) <= 63, (key, label)
            fits(document)


def test_a_short_name_is_as_it_was_and_a_long_one_ends_in_a_hash(helms: Sequence[Helm]) -> None:
    names = {
        d["metadata"]["name"] for d in rendered(helms[0]) if d["kind"] in {"Service", "DaemonSet", "Deployment"}
    }
    assert names == {"node-devicemanager-worker", "node-devicemanager-device-manager-nvidia"}
    long = {d["metadata"]["name"] for d in rendered(helms[0], release=LONG) if d["kind"] == "Service"}
    assert len(long) == 2
    assert all(re.fullmatch(rf"{LONG}-devicemana-[0-9a-f]{{8}}", name) for name in long)


def test_two_long_releases_of_one_namespace_share_no_name(helms: Sequence[Helm]) -> None:
    first, second = (
        {(d["kind"], d["metadata"]["name"]) for d in rendered(helms[0], release=f"{'a' * 52}{last}")}
        for last in "bc"
    )
    shared = {kind for kind, _ in first & second}
    assert shared == {"APIService"}


def test_a_release_in_another_namespace_has_cluster_wide_objects_of_its_own(helms: Sequence[Helm]) -> None:
    def outside(namespace: str) -> set[tuple[str, str]]:
        return {
            (d["kind"], d["metadata"]["name"])
            for d in rendered(helms[0], namespace=namespace)
            if d["metadata"].get("namespace") != namespace
        }

    first, second = outside("team-a"), outside("team-b")
    assert len(first) == len(second) > 1
    assert {kind for kind, _ in first & second} == {"APIService"}
    # Where a hyphen joined namespace and name, team-a/b-c and team-a-b/c would share them.
    assert all(":" in name for kind, name in first if kind != "APIService")


@pytest.mark.parametrize("release", ["gpu.metrics", "1gpu"])
def test_a_release_that_can_name_no_service_is_refused_in_a_sentence(release: str, helms: Sequence[Helm]) -> None:
    for helm in helms:
        with pytest.raises(ChartError, match=rf"The release name {release} .*set fullnameOverride"):
            template(helm, CERT_MANAGER, release=release)
        assert rendered(helm, {**CERT_MANAGER, "fullnameOverride": "gpu"}, release=release)


def test_no_common_name_is_longer_than_certificates_allow(helms: Sequence[Helm], render: Render) -> None:
    long = rendered(helms[0], release="a" * 53, namespace="n" * 32)
    certificates = [d["spec"] for d in long if d["kind"] == "Certificate"]
    assert len(certificates) == 5
    for certificate in certificates:
        assert len(certificate.get("commonName", "")) <= 64
        assert "client auth" not in certificate.get("usages", ()) or certificate["commonName"]
    made_by_the_chart = [d["data"] for d in render() if d["kind"] == "Secret"]
    for data in made_by_the_chart:
        for key in data.keys() & {"tls.crt", "issuer.crt"}:
            subject = x509.load_pem_x509_certificate(base64.b64decode(data[key])).subject
            assert all(len(str(name.value)) <= 40 for name in subject.get_attributes_for_oid(NameOID.COMMON_NAME))


def test_a_servers_certificate_is_no_pass_for_a_client(render: Render) -> None:
    """Helm puts both usages into every leaf, so names keep the roles apart: also of one named like a client."""
    for secret in (d for d in render(fullnameOverride="devicemanager") if d["kind"] == "Secret"):
        certificate = base64.b64decode(secret["data"].get("tls.crt", ""))
        if certificate and not secret["metadata"]["name"].endswith("client-tls"):
            assert (
                b"".join(
                    str(name.value).encode()
                    for name in x509.load_pem_x509_certificate(certificate).subject.get_attributes_for_oid(
                        NameOID.COMMON_NAME
                    )
                )
                == b""
            )
