"""What must hold of every object the chart renders, whatever the values."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from devicemanager.worker.credentials import SERVICE_ACCOUNT
from tests.chart import pod_security
from tests.chart.cases import FILES
from tests.chart.conftest import NAMESPACE, Document, Render
from tests.chart.installed import the

CERT_MANAGER = {"mode": "certManager"}
OPENSHIFT = {"podSecurityContext": dict.fromkeys(("runAsUser", "runAsGroup", "fsGroup"))}


def _manufacturer(**values: Any) -> Mapping[str, Any]:
    return {"manufacturers": {"nvidia": values}}


def of(documents: Sequence[Document], *kinds: str) -> Iterator[Document]:
    return (document for document in documents if document["kind"] in kinds)


def pods(documents: Sequence[Document]) -> Iterator[tuple[Document, Mapping[str, Any]]]:
    for document in of(documents, "DaemonSet", "Deployment"):
        yield document, document["spec"]["template"]["spec"]


@pytest.mark.parametrize(
    ("values", "worker", "device_manager"),
    [
        ({}, "restricted", "restricted"),
        ({"worker": {"hostNetwork": True, "securePort": 10261}}, "privileged", "restricted"),
        (_manufacturer(hostMounts=[{"name": "lib", "hostPath": "/opt/lib"}]), "restricted", "privileged"),
        (_manufacturer(privileged=True), "restricted", "privileged"),
        (_manufacturer(seLinuxOptions={"type": "container_device_plugin_t"}), "restricted", "privileged"),
        (_manufacturer(seLinuxOptions={"type": "container_t"}), "restricted", "restricted"),
        (_manufacturer(supplementalGroups=[44]), "restricted", "restricted"),
        (_manufacturer(securityContext={"readOnlyRootFilesystem": False}), "restricted", "restricted"),
        (_manufacturer(podSecurityContext={"runAsUser": 0, "runAsNonRoot": False}), "restricted", "baseline"),
        (_manufacturer(securityContext={"runAsUser": 0, "runAsNonRoot": False}), "restricted", "baseline"),
        (dict.fromkeys(("worker", "deviceManager"), OPENSHIFT), "restricted", "restricted"),
    ],
    ids=str,
)
def test_pods_are_admitted_at_the_level_that_the_page_names(
    values: Mapping[str, Any], worker: str, device_manager: str, render: Render
) -> None:
    found = {d["kind"]: pod_security.level(pod) for d, pod in pods(render(tls=CERT_MANAGER, **values))}
    assert found == {"Deployment": worker, "DaemonSet": device_manager}


def test_no_pod_needs_a_higher_level_than_its_values_ask_for(rendered: Sequence[Document]) -> None:
    for document, pod in pods(rendered):
        reasons = list(pod_security.baseline(pod))
        if document["kind"] == "Deployment":
            assert set(reasons) <= {"hostNetwork"}, reasons
        else:
            asked = {"privileged", "seLinuxOptions", *(r for r in reasons if r.startswith("hostPath "))}
            assert set(reasons) <= asked, reasons
        if not reasons:
            assert list(pod_security.restricted(pod)) == []


def test_what_the_host_lends_is_lent_for_reading(rendered: Sequence[Document]) -> None:
    for _, pod in pods(rendered):
        for volume in pod["volumes"]:
            if "hostPath" in volume:
                mount = next(m for m in pod["containers"][0]["volumeMounts"] if m["name"] == volume["name"])
                assert mount["readOnly"] is True


def test_device_managers_hold_no_credential_of_kubernetes(rendered: Sequence[Document]) -> None:
    accounts = {d["metadata"]["name"]: d for d in of(rendered, "ServiceAccount")}
    for document in of(rendered, "DaemonSet"):
        pod = document["spec"]["template"]["spec"]
        assert pod["automountServiceAccountToken"] is False
        if pod["serviceAccountName"] in accounts:
            assert accounts[pod["serviceAccountName"]]["automountServiceAccountToken"] is False
        bound = [
            subject["name"]
            for binding in of(rendered, "ClusterRoleBinding", "RoleBinding")
            for subject in binding["subjects"]
        ]
        assert pod["serviceAccountName"] not in bound


def test_the_workers_token_is_for_an_hour_and_lies_where_it_looks(rendered: Sequence[Document]) -> None:
    for document in of(rendered, "Deployment"):
        pod = document["spec"]["template"]["spec"]
        assert pod["automountServiceAccountToken"] is False
        (volume,) = (v for v in pod["volumes"] if "projected" in v)
        (mount,) = (m for m in pod["containers"][0]["volumeMounts"] if m["name"] == volume["name"])
        assert mount["mountPath"] == str(SERVICE_ACCOUNT)
        token, authority = volume["projected"]["sources"]
        # 3607 would be taken for the default, which kube-apiserver stretches to a year.
        assert token["serviceAccountToken"] == {"path": "token", "expirationSeconds": 3600}
        assert authority["configMap"] == {
            "name": "kube-root-ca.crt",
            "items": [{"key": "ca.crt", "path": "ca.crt"}],
        }


def test_every_container_has_resources_and_probes_on_the_serving_port(rendered: Sequence[Document]) -> None:
    for _, pod in pods(rendered):
        for container in pod["containers"]:
            assert container["resources"]["requests"].keys() == {"cpu", "memory"}
            assert "memory" in container["resources"]["limits"]
            for probe, path in (
                ("startupProbe", "/livez"),
                ("readinessProbe", "/readyz"),
                ("livenessProbe", "/livez"),
            ):
                assert container[probe]["httpGet"] == {"path": path, "port": "https", "scheme": "HTTPS"}


def test_no_rule_is_a_wildcard_or_writes(rendered: Sequence[Document]) -> None:
    for role in of(rendered, "ClusterRole", "Role"):
        for rule in role["rules"]:
            assert "*" not in rule["apiGroups"] + rule["resources"] + rule["verbs"]
            assert set(rule["verbs"]) <= {"get", "list", "watch"}
            assert "secrets" not in rule["resources"]


def test_the_worker_may_use_one_way_to_the_kubelet_only(render: Render) -> None:
    def resources(**values: Any) -> set[str]:
        role = next(d for d in of(render(**values), "ClusterRole") if d["metadata"]["name"].endswith("-worker"))
        return {resource for rule in role["rules"] for resource in rule["resources"]}

    assert "nodes/proxy" in resources()
    assert not {"nodes", "nodes/stats"} & resources()
    direct = resources(worker={"kubelet": {"mode": "direct"}})
    assert {"nodes", "nodes/stats"} <= direct
    assert "nodes/proxy" not in direct


def test_termination_leaves_time_for_the_shutdown_the_worker_was_told(rendered: Sequence[Document]) -> None:
    for document in of(rendered, "Deployment"):
        pod = document["spec"]["template"]["spec"]
        arguments = dict(argument.split("=", 1) for argument in pod["containers"][0]["args"] if "=" in argument)
        told = sum(int(arguments[flag].rstrip("s")) for flag in ("--shutdown-delay", "--shutdown-timeout"))
        assert pod["terminationGracePeriodSeconds"] > told


def test_device_managers_carry_the_labels_and_port_that_workers_look_for(rendered: Sequence[Document]) -> None:
    for document in of(rendered, "DaemonSet"):
        template = document["spec"]["template"]
        manufacturer = document["metadata"]["name"].split("-device-manager-")[1]
        assert template["metadata"]["labels"]["app.kubernetes.io/component"] == "device-manager"
        assert template["metadata"]["labels"]["gpustack.ai/manufacturer"] == manufacturer
        assert template["spec"]["containers"][0]["ports"] == [
            {"name": "https", "containerPort": 32443, "protocol": "TCP"}
        ]
        assert f"--manufacturer={manufacturer}" in template["spec"]["containers"][0]["args"]


def test_the_loud_values_are_off_unless_set(render: Render) -> None:
    quiet = [argument for _, pod in pods(render()) for argument in pod["containers"][0]["args"]]
    assert not [argument for argument in quiet if "insecure" in argument or "anonymous" in argument]
    assert any(argument.startswith("--client-ca-file=") for argument in quiet)
    loud = [
        argument for _, pod in pods(render(**FILES["beside-operator"])) for argument in pod["containers"][0]["args"]
    ]
    assert {"--allow-anonymous", "--device-manager-insecure-skip-verify", "--kubelet-insecure-skip-verify"} <= set(
        loud
    )


def test_user_roles_reach_exactly_the_two_reads(render: Render) -> None:
    role = next(d for d in of(render(), "ClusterRole") if d["metadata"]["name"].endswith("reader"))
    assert {k: v for k, v in role["metadata"]["labels"].items() if "aggregate-to" in k} == {
        f"rbac.authorization.k8s.io/aggregate-to-{name}": "true" for name in ("view", "edit", "admin")
    }
    assert role["rules"] == [
        {"apiGroups": ["worker.gpustack.ai"], "resources": ["instancemetrics"], "verbs": ["get", "list"]},
        {"apiGroups": ["worker.gpustack.ai"], "resources": ["instances/metrics"], "verbs": ["get"]},
    ]


def test_everything_namespaced_is_in_the_release_or_where_it_must_be(rendered: Sequence[Document]) -> None:
    elsewhere = {
        (d["kind"], d["metadata"]["namespace"])
        for d in rendered
        if d["metadata"].get("namespace", NAMESPACE) != NAMESPACE
    }
    assert elsewhere <= {
        ("RoleBinding", "kube-system"),
        ("Role", "gpustack-system"),
        ("RoleBinding", "gpustack-system"),
    }


def test_a_manufacturer_can_take_a_limit_away(render: Render) -> None:
    values = {"simulated": {"enabled": True, "resources": {"limits": {"cpu": None, "memory": "1Gi"}}}}
    shared = {"resources": {"limits": {"cpu": "1"}}}
    made = the(render(manufacturers=values, deviceManager=shared), "DaemonSet", "-simulated")
    (container,) = made["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == {"memory": "1Gi"}
