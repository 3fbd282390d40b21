"""Who may connect to device managers, and to whom the worker may: policies, and what the notes say of them."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.chart.api import serving
from tests.chart.binaries import Helm
from tests.chart.conftest import CHART, NAMESPACE, RELEASE, Document, Render, run
from tests.chart.fitting import fits
from tests.chart.installed import the
from tests.chart.test_policy import CERT_MANAGER, of

MONITORING = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
NODES = {"ipBlock": {"cidr": "192.0.2.0/24"}}
API_SERVER = {"ipBlock": {"cidr": "198.51.100.1/32"}}
HOST = {"worker": {"hostNetwork": True, "securePort": 10261}}
ALONE = {"worker": {"enabled": False}}


def labels(documents: Sequence[Document], kind: str) -> Mapping[str, str]:
    """Of the pods of the only object of a kind."""
    (document,) = of(documents, kind)
    found: Mapping[str, str] = document["spec"]["template"]["metadata"]["labels"]
    return found


def admitted(peers: Sequence[Mapping[str, Any]] | None, pod: Mapping[str, str], namespace: str) -> bool:
    """Whether a rule's ``from`` or ``to`` holds a pod; the subset of Kubernetes' rules that the chart writes."""
    return peers is None or any(
        (not peer.get("podSelector") or peer["podSelector"].get("matchLabels", {}).items() <= pod.items())
        and (
            peer["namespaceSelector"].get("matchLabels", {}).items()
            <= {"kubernetes.io/metadata.name": namespace}.items()
            if "namespaceSelector" in peer
            else namespace == NAMESPACE
        )
        for peer in peers
        if "ipBlock" not in peer
    )


def may_connect(documents: Sequence[Document], pod: Mapping[str, str], namespace: str, port: int) -> bool:
    """Whether the policy of the device managers lets a pod in."""
    policy = the(documents, "NetworkPolicy", "-device-manager")
    fits(policy)
    selected = policy["spec"]["podSelector"]["matchLabels"].items() <= labels(documents, "DaemonSet").items()
    assert selected
    assert policy["spec"]["policyTypes"] == ["Ingress"]
    return any(
        admitted(rule.get("from"), pod, namespace) and {"protocol": "TCP", "port": port} in rule["ports"]
        for rule in policy["spec"]["ingress"]
    )


def test_by_default_workers_alone_may_connect_to_device_managers(render: Render) -> None:
    made = render(tls=CERT_MANAGER)
    worker = labels(made, "Deployment")
    assert may_connect(made, worker, NAMESPACE, 32443)
    assert not may_connect(made, worker, NAMESPACE, 22)
    assert not may_connect(made, worker, "elsewhere", 32443)
    assert not may_connect(made, {"app": "stranger"}, NAMESPACE, 32443)
    assert not may_connect(made, labels(made, "DaemonSet"), NAMESPACE, 32443)


def test_a_policy_that_is_turned_off_is_not_there(render: Render) -> None:
    assert not list(
        of(render(tls=CERT_MANAGER, deviceManager={"networkPolicy": {"enabled": False}}), "NetworkPolicy")
    )


WHO_READS_IS_NOT_KNOWN: Mapping[str, Mapping[str, Any]] = {
    "deviceManager.podMonitor.enabled": {"deviceManager": {"podMonitor": {"enabled": True}}},
    "deviceManager.allowAnonymous": {"deviceManager": {"allowAnonymous": True}},
    "worker.hostNetwork": HOST,
    "worker.enabled=false": ALONE,
}


@pytest.mark.parametrize("because", WHO_READS_IS_NOT_KNOWN)
def test_where_no_label_tells_who_reads_the_port_is_open_and_no_other(because: str, render: Render) -> None:
    made = render(tls=CERT_MANAGER, **WHO_READS_IS_NOT_KNOWN[because])
    assert may_connect(made, {"app": "prometheus"}, "monitoring", 32443)
    assert not may_connect(made, {"app": "prometheus"}, "monitoring", 22)


@pytest.mark.parametrize("because", WHO_READS_IS_NOT_KNOWN)
def test_once_somebody_is_named_the_port_is_closed_to_all_others(because: str, render: Render) -> None:
    extra = {"extraIngress": [{"from": [NODES], "ports": [{"protocol": "TCP", "port": 32443}]}]}
    values = WHO_READS_IS_NOT_KNOWN[because]
    given = {
        **values.get("deviceManager", {}),
        "networkPolicy": {"scrapers": [MONITORING], **(extra if values is HOST else {})},
    }
    made = render(tls=CERT_MANAGER, **{**values, "deviceManager": given})
    assert may_connect(made, {"app": "prometheus"}, "monitoring", 32443)
    assert not may_connect(made, {"app": "prometheus"}, "elsewhere", 32443)


def notes(helm: Helm, values: Mapping[str, Any]) -> str:
    """What helm prints after an installation."""
    with serving() as cluster:
        where = (
            "-n",
            NAMESPACE,
            "--kube-apiserver",
            cluster.url,
            "--dry-run=server",
            "--disable-openapi-validation",
        )
        given = json.dumps({"tls": CERT_MANAGER, **values})
        printed = run(helm, "install", RELEASE, str(CHART), *where, "-f", "-", stdin=given)
    return printed.partition("NOTES:")[2]


def test_the_notes_say_that_the_port_is_open_for_what_and_how_to_close_it(helms: Sequence[Helm]) -> None:
    for helm in helms:
        said = notes(helm, {"deviceManager": {"podMonitor": {"enabled": True}, "allowAnonymous": True}})
        assert (
            "admits everybody to port 32443, for deviceManager.podMonitor.enabled, deviceManager.allowAnonymous"
            in said
        )
        assert "deviceManager.networkPolicy.scrapers=" in said


def test_the_notes_say_that_the_port_is_closed(helms: Sequence[Helm]) -> None:
    said = notes(helms[0], {})
    assert "admits this release's workers and who is named in deviceManager.networkPolicy" in said
    assert "admits everybody to port 32443" not in said
    off = notes(helms[0], {"deviceManager": {"networkPolicy": {"enabled": False}}})
    assert "device managers' NetworkPolicy" not in off


def egress(render: Render, **worker: Any) -> Sequence[Mapping[str, Any]]:
    policy = the(render(tls=CERT_MANAGER, worker=worker), "NetworkPolicy", "-worker-egress")
    fits(policy)
    assert policy["spec"]["policyTypes"] == ["Egress"]
    rules: Sequence[Mapping[str, Any]] = policy["spec"]["egress"]
    return rules


def ports(rule: Mapping[str, Any]) -> set[tuple[str, int]]:
    return {(port["protocol"], port["port"]) for port in rule["ports"]}


OUTBOUND = {"enabled": True, "apiServer": [API_SERVER], "kubelets": [NODES]}


def test_outbound_the_worker_is_free_unless_asked_for(render: Render) -> None:
    assert not [d for d in of(render(tls=CERT_MANAGER), "NetworkPolicy") if "Egress" in d["spec"]["policyTypes"]]


def test_outbound_the_worker_reaches_the_api_server_device_managers_and_names(render: Render) -> None:
    rules = egress(render, networkPolicy={"egress": OUTBOUND})
    api_server, device_managers, names = rules
    assert api_server["to"] == [API_SERVER]
    assert ports(api_server) == {("TCP", 443), ("TCP", 6443)}
    theirs = labels(render(tls=CERT_MANAGER), "DaemonSet")
    assert admitted(device_managers["to"], theirs, NAMESPACE)
    assert not admitted(device_managers["to"], theirs, "elsewhere")
    assert not admitted(device_managers["to"], {"app": "stranger"}, NAMESPACE)
    assert ports(device_managers) == {("TCP", 32443)}
    assert admitted(names["to"], {"k8s-app": "kube-dns"}, "kube-system")
    assert ports(names) == {("UDP", 53), ("TCP", 53)}


def test_outbound_kubelets_are_reached_in_direct_mode_alone(render: Render) -> None:
    rules = egress(render, kubelet={"mode": "direct"}, networkPolicy={"egress": OUTBOUND})
    assert [ports(rule) for rule in rules if rule["to"] == [NODES]] == [{("TCP", 10250)}]
    assert not [rule for rule in egress(render, networkPolicy={"egress": OUTBOUND}) if rule["to"] == [NODES]]


def test_outbound_device_managers_of_another_namespace_are_reached_there(render: Render) -> None:
    rules = egress(render, deviceManagers={"namespace": "gpustack-system"}, networkPolicy={"egress": OUTBOUND})
    theirs = {"app.kubernetes.io/component": "device-manager"}
    assert admitted(rules[1]["to"], theirs, "gpustack-system")
    assert not admitted(rules[1]["to"], theirs, NAMESPACE)


def test_outbound_further_rules_are_added_as_they_stand(render: Render) -> None:
    rule = {"to": [{"ipBlock": {"cidr": "169.254.20.10/32"}}], "ports": [{"protocol": "UDP", "port": 53}]}
    rules = egress(render, networkPolicy={"egress": {**OUTBOUND, "dns": [], "extra": [rule]}})
    assert rules[2:] == [rule]


@pytest.mark.parametrize(
    ("shared", "own", "limits"),
    [
        ({}, {}, {"memory": "480Mi"}),
        ({"limits": {"memory": "256Mi"}}, {}, {"memory": "256Mi"}),
        ({}, {"limits": {"memory": "512Mi"}}, {"memory": "512Mi"}),
        ({}, {"limits": {"cpu": "1"}}, {"memory": "480Mi", "cpu": "1"}),
    ],
    ids=str,
)
def test_a_manufacturer_may_have_a_memory_limit_of_its_own(
    shared: Mapping[str, Any], own: Mapping[str, Any], limits: Mapping[str, str], render: Render
) -> None:
    made = render(
        tls=CERT_MANAGER,
        deviceManager={"resources": shared},
        manufacturers={"nvidia": {"resources": own}, "simulated": {"enabled": True}},
    )
    (container,) = the(made, "DaemonSet", "-nvidia")["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == limits
    assert container["resources"]["requests"] == {"cpu": "10m", "memory": "80Mi"}
    (other,) = the(made, "DaemonSet", "-simulated")["spec"]["template"]["spec"]["containers"]
    assert other["resources"]["limits"] == {"memory": "480Mi", **shared.get("limits", {})}
