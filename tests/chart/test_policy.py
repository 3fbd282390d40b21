"""What must hold of every object the chart renders, whatever the values."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from devicemanager.worker.credentials import SERVICE_ACCOUNT
from tests.chart.conftest import NAMESPACE, Document, Render

CASES = {
    path.stem: yaml.safe_load(path.read_text()) or {}
    for path in sorted((Path(__file__).parent / "values").glob("*.yaml"))
}


@pytest.fixture(params=CASES)
def rendered(request: pytest.FixtureRequest, render: Render) -> Sequence[Document]:
    return render(**CASES[request.param])


def of(documents: Sequence[Document], *kinds: str) -> Iterator[Document]:
    return (document for document in documents if document["kind"] in kinds)


def pods(documents: Sequence[Document]) -> Iterator[tuple[Document, Mapping[str, Any]]]:
    for document in of(documents, "DaemonSet", "Deployment"):
        yield document, document["spec"]["template"]["spec"]


def explicitly_privileged(document: Document) -> bool:
    return bool(document["metadata"]["labels"].get("gpustack.ai/manufacturer") == "amd")


def test_no_container_is_privileged_unless_a_value_says_so(rendered: Sequence[Document]) -> None:
    for document, pod in pods(rendered):
        for container in pod["containers"]:
            context = container["securityContext"]
            assert context["readOnlyRootFilesystem"] is True
            if explicitly_privileged(document):
                assert context["privileged"] is True
                continue
            assert "privileged" not in context
            assert context["allowPrivilegeEscalation"] is False
            assert context["runAsNonRoot"] is True
            assert context["capabilities"] == {"drop": ["ALL"]}


def test_pods_share_nothing_with_the_host_but_what_the_values_mount(rendered: Sequence[Document]) -> None:
    for _, pod in pods(rendered):
        assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["securityContext"]["runAsUser"] > 0
        for volume in pod["volumes"]:
            if "hostPath" in volume:
                mount = next(m for m in pod["containers"][0]["volumeMounts"] if m["name"] == volume["name"])
                assert mount["readOnly"] is True


def test_device_managers_hold_no_credential_of_kubernetes(rendered: Sequence[Document]) -> None:
    accounts = {d["metadata"]["name"]: d for d in of(rendered, "ServiceAccount")}
    for document in of(rendered, "DaemonSet"):
        pod = document["spec"]["template"]["spec"]
        assert pod["automountServiceAccountToken"] is False
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
                ("startupProbe", "/readyz"),
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
        argument for _, pod in pods(render(**CASES["beside-operator"])) for argument in pod["containers"][0]["args"]
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
