"""What clusters differ in, and the values that meet it."""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.chart.binaries import Helm
from tests.chart.cases import FILES
from tests.chart.conftest import CHART, Document, Render, run
from tests.chart.fitting import fits
from tests.chart.installed import the
from tests.chart.strict import documents
from tests.chart.test_policy import CERT_MANAGER, OPENSHIFT, of, pods


def worker_of(documents: Sequence[Document]) -> Mapping[str, Any]:
    """The spec of its pods."""
    (deployment,) = of(documents, "Deployment")
    spec: Mapping[str, Any] = deployment["spec"]["template"]["spec"]
    return spec


def device_manager_of(documents: Sequence[Document], manufacturer: str = "nvidia") -> Mapping[str, Any]:
    """The spec of its pods."""
    spec: Mapping[str, Any] = the(documents, "DaemonSet", f"-{manufacturer}")["spec"]["template"]["spec"]
    return spec


# Scheduling: quotas, drains, autoscalers, rollouts


def test_a_quota_admits_the_priority_classes_that_the_pods_have(render: Render) -> None:
    made = render(**FILES["gke"])
    (quota,) = of(made, "ResourceQuota")
    (scope,) = quota["spec"]["scopeSelector"]["matchExpressions"]
    used = {pod["priorityClassName"] for _, pod in pods(made)}
    assert (scope["scopeName"], scope["operator"], set(scope["values"])) == ("PriorityClass", "In", used)
    assert int(quota["spec"]["hard"]["pods"].replace("G", "0" * 9)) > 10_000


def test_a_quota_names_no_class_that_no_pod_has(render: Render) -> None:
    (quota,) = of(
        render(tls=CERT_MANAGER, priorityClassQuota={"create": True}, worker={"enabled": False}), "ResourceQuota"
    )
    assert quota["spec"]["scopeSelector"]["matchExpressions"][0]["values"] == ["system-node-critical"]
    without = {"worker": {"priorityClassName": ""}, "deviceManager": {"priorityClassName": None}}
    assert not list(of(render(tls=CERT_MANAGER, priorityClassQuota={"create": True}, **without), "ResourceQuota"))


@pytest.mark.parametrize("replicas", [1, 2, 7])
def test_a_drain_can_always_take_a_worker(replicas: int, render: Render) -> None:
    (budget,) = of(render(tls=CERT_MANAGER, worker={"replicas": replicas}), "PodDisruptionBudget")
    assert budget["spec"]["maxUnavailable"] == 1
    assert "minAvailable" not in budget["spec"]


def test_a_budget_may_be_a_share_and_a_value_of_the_earlier_chart_is_let_lie(render: Render) -> None:
    given = {"podDisruptionBudget": {"maxUnavailable": "50%", "minAvailable": 1}}
    (budget,) = of(render(tls=CERT_MANAGER, worker=given), "PodDisruptionBudget")
    assert budget["spec"].keys() == {"maxUnavailable", "selector"}
    assert budget["spec"]["maxUnavailable"] == "50%"


def test_without_replicas_there_is_no_api_that_nobody_answers_for(render: Render) -> None:
    made = render(tls=CERT_MANAGER, worker={"replicas": 0})
    assert not list(of(made, "APIService", "PodDisruptionBudget"))
    assert next(of(made, "Deployment"))["spec"]["replicas"] == 0


def test_the_autoscaler_may_move_a_worker_though_it_has_a_local_volume(render: Render) -> None:
    (deployment,) = of(render(tls=CERT_MANAGER), "Deployment")
    annotations = deployment["spec"]["template"]["metadata"]["annotations"]
    assert annotations == {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}


def test_one_dead_node_does_not_hold_up_the_device_managers_of_the_others(render: Render) -> None:
    (daemon_set,) = of(render(tls=CERT_MANAGER), "DaemonSet")
    assert daemon_set["spec"]["updateStrategy"]["rollingUpdate"] == {"maxUnavailable": "10%", "maxSurge": 0}


def test_workers_can_be_spread_over_zones_without_repeating_their_labels(render: Render) -> None:
    made = render(**FILES["everything"])
    (spread,) = worker_of(made)["topologySpreadConstraints"]
    (deployment,) = of(made, "Deployment")
    assert spread["labelSelector"] == deployment["spec"]["selector"]
    own = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"a": "b"}},
    }
    given = render(tls=CERT_MANAGER, worker={"topologySpreadConstraints": [own]})
    assert worker_of(given)["topologySpreadConstraints"] == [own]


@pytest.mark.parametrize("part", ["worker", "deviceManager"])
def test_pods_carry_labels_of_the_users_and_are_found_by_their_own(part: str, render: Render) -> None:
    made = render(
        tls=CERT_MANAGER, **{part: {"podLabels": {"example.org/team": "a", "app.kubernetes.io/version": "mine"}}}
    )
    (workload,) = of(made, "Deployment" if part == "worker" else "DaemonSet")
    labels = workload["spec"]["template"]["metadata"]["labels"]
    assert workload["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert (labels["example.org/team"], labels["app.kubernetes.io/version"]) == ("a", "mine")
    assert "example.org/team" not in workload["spec"]["selector"]["matchLabels"]


# Users, groups, SELinux, device files


def test_a_platform_that_chooses_users_and_groups_is_told_none(render: Render) -> None:
    made = render(**FILES["openshift"])
    for _, pod in pods(made):
        assert pod["securityContext"].keys() <= {"runAsNonRoot", "seccompProfile", "seLinuxOptions"}
        assert pod["securityContext"]["runAsNonRoot"] is True
    assert device_manager_of(made)["securityContext"]["seLinuxOptions"] == {"type": "container_device_plugin_t"}


@pytest.mark.parametrize("part", ["worker", "deviceManager"])
def test_every_key_of_a_security_context_can_be_taken_away(part: str, render: Render) -> None:
    keys = ("runAsNonRoot", "runAsUser", "runAsGroup", "fsGroup", "seccompProfile")
    hardened = ("allowPrivilegeEscalation", "readOnlyRootFilesystem", "capabilities")
    bare = {"podSecurityContext": dict.fromkeys(keys), "securityContext": dict.fromkeys(hardened)}
    made = render(tls=CERT_MANAGER, **{part: bare})
    pod = worker_of(made) if part == "worker" else device_manager_of(made)
    assert "securityContext" not in pod
    assert "securityContext" not in pod["containers"][0]


def test_a_manufacturer_differs_in_single_keys_and_keeps_the_rest(render: Render) -> None:
    own = {
        "supplementalGroups": [44, 109],
        "seLinuxOptions": {"type": "spc_t"},
        "podSecurityContext": {"fsGroup": None, "runAsUser": 1000},
        "securityContext": {"readOnlyRootFilesystem": False},
    }
    made = render(tls=CERT_MANAGER, manufacturers={"nvidia": own, "simulated": {"enabled": True}})
    nvidia, simulated = (device_manager_of(made, name) for name in ("nvidia", "simulated"))
    assert nvidia["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 1000,
        "runAsGroup": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
        "supplementalGroups": [44, 109],
        "seLinuxOptions": {"type": "spc_t"},
    }
    context = nvidia["containers"][0]["securityContext"]
    assert context == {
        "readOnlyRootFilesystem": False,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    assert simulated["securityContext"]["runAsUser"] == 65532
    assert simulated["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True


def test_a_privileged_device_manager_is_root_and_drops_nothing(render: Render) -> None:
    made = render(tls=CERT_MANAGER, manufacturers={"nvidia": {"privileged": True}})
    assert device_manager_of(made)["containers"][0]["securityContext"] == {
        "privileged": True,
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": False,
        "runAsUser": 0,
    }


def test_a_host_mount_may_say_what_must_be_there(render: Render) -> None:
    mounts = device_manager_of(render(**FILES["everything"]), "amd")["volumes"]
    types = {volume["name"]: volume["hostPath"].get("type") for volume in mounts if "hostPath" in volume}
    assert types == {"rocm": "Directory", "kfd": "CharDevice"}
    untyped = device_manager_of(render(**FILES["everything"]), "hygon")["volumes"]
    assert all("type" not in volume["hostPath"] for volume in untyped if "hostPath" in volume)


# Networks


def test_on_the_hosts_network_pods_resolve_services_and_can_be_replaced_where_they_are(render: Render) -> None:
    made = render(**FILES["host-network"])
    pod = worker_of(made)
    assert (pod["hostNetwork"], pod["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
    (deployment,) = of(made, "Deployment")
    assert deployment["spec"]["strategy"]["rollingUpdate"] == {"maxUnavailable": 1, "maxSurge": 1}
    assert pod["containers"][0]["ports"][0]["containerPort"] == 10261


def test_on_the_pod_network_nothing_of_it_is_said(render: Render) -> None:
    pod = worker_of(render(tls=CERT_MANAGER))
    assert not {"hostNetwork", "dnsPolicy"} & pod.keys()
    assert worker_of(render(tls=CERT_MANAGER, worker={"dnsPolicy": "Default"}))["dnsPolicy"] == "Default"


PORT = [{"protocol": "TCP", "port": 10250}]
CONTROL_PLANE = [{"ipBlock": {"cidr": "192.0.2.0/28"}}]
SCRAPER = [{"podSelector": {"matchLabels": {"app": "prometheus"}}}]
RULE = {"from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}


@pytest.mark.parametrize(
    ("values", "ingress"),
    [
        ({}, [{"ports": PORT}]),
        ({"scrapers": SCRAPER}, [{"ports": PORT}]),
        ({"controlPlane": CONTROL_PLANE}, [{"from": CONTROL_PLANE, "ports": PORT}]),
        ({"controlPlane": CONTROL_PLANE, "scrapers": SCRAPER}, [{"from": CONTROL_PLANE + SCRAPER, "ports": PORT}]),
        ({"extraIngress": [RULE]}, [RULE]),
        ({"extraIngress": [RULE], "scrapers": SCRAPER}, [{"from": SCRAPER, "ports": PORT}, RULE]),
    ],
    ids=lambda each: "+".join(each) if isinstance(each, dict) else "",
)
def test_a_policy_admits_the_control_plane_by_itself_and_as_narrow_as_it_is_told(
    values: Mapping[str, Any], ingress: Sequence[Mapping[str, Any]], render: Render
) -> None:
    policy = the(
        render(tls=CERT_MANAGER, worker={"networkPolicy": {"enabled": True, **values}}), "NetworkPolicy", "-worker"
    )
    assert policy["spec"]["ingress"] == ingress
    fits(policy)


# Images and plug-ins


def test_a_plug_ins_device_manager_has_its_own_image_and_flags(render: Render) -> None:
    made = render(**FILES["plug-in"])
    pod = device_manager_of(made, "acme")
    (container,) = pod["containers"]
    assert container["image"] == "registry.example.org/device-manager-acme:1.2"
    assert {"--manufacturer=acme", "--open-timeout=60s"} <= set(container["args"])
    assert pod["nodeSelector"] == {"example.org/acme": "true"}
    assert (
        the(made, "DaemonSet", "-acme")["spec"]["template"]["metadata"]["labels"]["gpustack.ai/manufacturer"]
        == "acme"
    )
    assert the(made, "Service", "-acme")["spec"]["selector"]["gpustack.ai/manufacturer"] == "acme"
    assert worker_of(made)["containers"][0]["image"] == "ghcr.io/gpustack/device-manager:0.1.0"


DIGEST = f"sha256:{'0' * 64}"


@pytest.mark.parametrize(
    ("shared", "own", "image"),
    [
        ({}, {}, "ghcr.io/gpustack/device-manager:0.1.0"),
        ({"tag": "1"}, {}, "ghcr.io/gpustack/device-manager:1"),
        ({"digest": DIGEST}, {}, f"ghcr.io/gpustack/device-manager@{DIGEST}"),
        ({"digest": DIGEST}, {"tag": "2"}, "ghcr.io/gpustack/device-manager:2"),
        ({"digest": DIGEST}, {"repository": "other"}, "other:0.1.0"),
        ({"tag": "1"}, {"repository": "other"}, "other:1"),
        ({"tag": "1"}, {"digest": DIGEST}, f"ghcr.io/gpustack/device-manager@{DIGEST}"),
        ({"tag": "1"}, {"repository": "other", "tag": "2", "digest": DIGEST}, f"other@{DIGEST}"),
    ],
    ids=str,
)
def test_a_manufacturers_image_is_never_a_digest_of_another_repository(
    shared: Mapping[str, str], own: Mapping[str, str], image: str, render: Render
) -> None:
    made = render(tls=CERT_MANAGER, image=shared, manufacturers={"nvidia": {"image": own}})
    assert device_manager_of(made)["containers"][0]["image"] == image


def test_a_variable_that_is_given_twice_has_the_value_that_came_last(render: Render) -> None:
    (container,) = device_manager_of(render(**FILES["everything"]))["containers"]
    values = {each["name"]: each.get("value") for each in container["env"]}
    assert len(values) == len(container["env"])
    assert values["NVIDIA_VISIBLE_DEVICES"] == "0"


# Trust


def test_with_a_bundle_both_sides_trust_it_and_not_their_own_secret_alone(render: Render) -> None:
    made = render(**FILES["trust-bundle"])
    for pod, flag in ((device_manager_of(made), "--client-ca-file"), (worker_of(made), "--device-manager-ca-file")):
        (container,) = pod["containers"]
        assert f"{flag}=/etc/devicemanager/trust/ca.crt" in container["args"]
        (volume,) = (each for each in pod["volumes"] if each["name"] == "trust")
        assert volume["configMap"] == {
            "name": "company-authorities",
            "items": [{"key": "bundle.pem", "path": "ca.crt"}],
        }
    (monitor,) = of(made, "PodMonitor")
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint["tlsConfig"]["ca"] == {"configMap": {"name": "company-authorities", "key": "bundle.pem"}}
    (registration,) = of(made, "APIService")
    assert registration["metadata"]["annotations"] == {
        "cert-manager.io/inject-ca-from-secret": "accelerators/company-authorities"
    }


def test_the_authority_that_the_chart_asks_cert_manager_for_keeps_its_key(render: Render) -> None:
    certificates = [d["spec"] for d in of(render(tls=CERT_MANAGER), "Certificate")]
    keys = {spec.get("isCA", False): spec["privateKey"]["rotationPolicy"] for spec in certificates}
    assert keys == {True: "Never", False: "Always"}


def test_without_one_each_trusts_the_authority_in_its_secret(render: Render) -> None:
    made = render(tls=CERT_MANAGER)
    assert "--client-ca-file=/etc/devicemanager/tls/ca.crt" in device_manager_of(made)["containers"][0]["args"]
    assert "--device-manager-ca-file=/etc/devicemanager/client/ca.crt" in worker_of(made)["containers"][0]["args"]
    for _, pod in pods(made):
        assert "trust" not in {volume["name"] for volume in pod["volumes"]}


def test_the_workers_api_service_carries_the_label_that_the_worker_looks_for(rendered: Sequence[Document]) -> None:
    for registration in of(rendered, "APIService"):
        owner = registration["metadata"]["labels"]["devicemanager.gpustack.ai/owner"]
        assert f"--api-service-owner={owner}" in worker_of(rendered)["containers"][0]["args"]


def test_one_that_somebody_else_makes_need_not_carry_it(render: Render) -> None:
    made = render(tls=CERT_MANAGER, worker={"apiService": {"create": False}})
    assert not [word for word in worker_of(made)["containers"][0]["args"] if word.startswith("--api-service-owner")]


def test_no_restart_helps_a_pod_whose_sources_are_away(rendered: Sequence[Document]) -> None:
    """An API server that is down for minutes, or cards that take minutes to wake up: no restart mends that."""
    for _, pod in pods(rendered):
        (container,) = pod["containers"]
        for probe in ("startupProbe", "livenessProbe"):
            assert container[probe]["httpGet"]["path"] == "/livez"
        assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"


def test_another_chart_may_depend_on_it_under_a_name_and_a_condition(helms: Sequence[Helm], tmp_path: Path) -> None:
    """What such a chart passes down beside the values: its globals, and its own switch for this one."""
    shutil.copytree(CHART, tmp_path / "charts" / CHART.name)
    dependency = {
        "name": CHART.name,
        "version": "0.1.0",
        "alias": "gpu-metrics",
        "condition": "gpu-metrics.enabled",
    }
    parent = {"apiVersion": "v2", "name": "platform", "version": "1.0.0", "dependencies": [dependency]}
    (tmp_path / "Chart.yaml").write_text(json.dumps(parent))
    own = {"enabled": True, "tls": CERT_MANAGER, "worker": {"apiService": {"ours": True}, **OPENSHIFT}}
    values = json.dumps({"gpu-metrics": own, "global": {"imageRegistry": "registry.example.org"}})
    for helm in helms:
        made = documents(run(helm, "template", "p", str(tmp_path), "-n", "ns", "-f", "-", stdin=values))
        assert the(made, "Deployment", "-worker")["metadata"]["name"] == "p-gpu-metrics-worker"
        assert "runAsUser" not in worker_of(made)["securityContext"]
