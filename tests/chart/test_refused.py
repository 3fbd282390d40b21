"""Values that cannot work are refused before anything is installed: by the schema, or in a sentence."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from devicemanager.serving.budget import DEVICE_MANAGER, WORKER, BudgetError, Program, split
from devicemanager.serving.limits import MIB
from tests.chart.binaries import Helm
from tests.chart.cases import PEM, together
from tests.chart.conftest import CHART, NAMESPACE, RELEASE, ChartError, run, template
from tests.chart.strict import documents


def value(path: str, given: Any) -> Mapping[str, Any]:
    """One value, by its path."""
    for key in reversed(path.split(".")):
        given = {key: given}
    made: Mapping[str, Any] = given
    return made


BY_THE_SCHEMA = [
    ("worker.replicaz", 2, "replicaz"),
    ("worker.kubelet.mode", "fast", "mode"),
    ("worker.apiService.group", "nodots", "group"),
    ("worker.apiService.group", f"{'a' * 64}.example.org", "group"),
    ("worker.securePort", 443, "securePort"),
    ("worker.shutdownDelaySeconds", 301, "shutdownDelaySeconds"),
    ("worker.resources", {"limits": {"memory": "lots"}}, "memory"),
    ("worker.resources", {"limit": {"memory": "1Gi"}}, "limit"),
    ("worker.podDisruptionBudget.minAvailable", 5, "minAvailable"),
    ("worker.podDisruptionBudget.minAvailable", "all", "minAvailable"),
    ("worker.podDisruptionBudget.maxUnavailable", 0, "maxUnavailable"),
    ("worker.podDisruptionBudget.maxUnavailable", "half", "maxUnavailable"),
    ("worker.podLabels", {"team": "a b"}, "team"),
    ("worker.podSecurityContext", {"runAsuser": 1}, "runAsuser"),
    ("worker.tolerations", [{"operators": "Exists"}], "operators"),
    ("worker.extraEnv", [{"name": "A", "value": 1}], "value"),
    ("worker.kubelet.certificateAuthority", "PEM", "certificateAuthority"),
    ("worker.networkPolicy.controlPlane", [{"cidr": "192.0.2.0/28"}], "cidr"),
    ("worker.networkPolicy.egress.apiServer", ["192.0.2.1"], "apiServer"),
    ("deviceManager.networkPolicy.scrapers", [{"ipBlock": {"cidr": "192.0.2.1"}}], "cidr"),
    ("worker.networkPolicy.egress.apiServerPorts", [], "apiServerPorts"),
    ("worker.networkPolicy.egress.apiServerPorts", ["https"], "apiServerPorts"),
    ("worker.networkPolicy.egress.kubeletPort", 0, "kubeletPort"),
    ("worker.networkPolicy.egress.extra", [{"from": []}], "from"),
    ("manufacturers.amd.resources", {"limits": {"memory": "lots"}}, "memory"),
    ("deviceManager.monitorPeriod", "15", "monitorPeriod"),
    ("deviceManager.allowAnonymous", "yes", "allowAnonymous"),
    ("deviceManager.updateStrategy", {"rollingUpdate": {"maxUnavailable": "ten"}}, "maxUnavailable"),
    ("deviceManager.priorityClassName", "System", "priorityClassName"),
    ("manufacturers.acme", {"enabled": True, "image": {"tag": "1"}}, "repository"),
    ("manufacturers.Acme", {"enabled": True, "image": {"repository": "a"}}, "Acme"),
    ("manufacturers.acme", {"image": {"repository": "a"}, "flags": []}, "flags"),
    ("manufacturers.amd.hostMounts", [{"name": "a", "hostPath": "/a", "type": "Folder"}], "type"),
    ("manufacturers.amd.supplementalGroups", ["render"], "supplementalGroups"),
    ("tls.mode", "none", "mode"),
    ("tls.certManager.issuerRef", {"named": "x"}, "named"),
    ("tls.certManager.issuerRef", {"kind": "ClusterIssuer"}, "issuerRef"),
    ("tls.existingSecret.caBundle", "PEM", "caBundle"),
    ("image.digest", "sha256:short", "digest"),
    ("image.tag", "v 1", "tag"),
    ("nameOverride", "a.b", "nameOverride"),
    ("priorityClassQuota.pods", "many", "pods"),
]


def batches() -> Sequence[Sequence[tuple[str, Any, str]]]:
    """All of them in few renderings: helm lists everything that it refuses. One value of a path in each."""
    made: list[list[tuple[str, Any, str]]] = []
    for case in BY_THE_SCHEMA:
        free = (batch for batch in made if case[0] not in {path for path, _, _ in batch})
        batch = next(free, None)
        if batch is None:
            made.append(batch := [])
        batch.append(case)
    return made


@pytest.mark.parametrize("batch", batches(), ids=len)
def test_values_that_do_not_fit_are_refused_by_name(
    batch: Sequence[tuple[str, Any, str]], helms: Sequence[Helm]
) -> None:
    for helm in helms:
        with pytest.raises(ChartError) as refused:
            template(helm, together([value(path, given) for path, given, _ in batch]))
        said = [line.replace("/", ".") for line in str(refused.value).splitlines()]
        for path, _, word in batch:
            # Of a key that has no legal form, helm 4 does not say where it stands.
            places = (path.rpartition(".")[0], "invalid propertyName")
            assert any(word in line and any(place in line for place in places) for line in said), (path, said)


IN_A_SENTENCE = [
    ({"manufacturers": {"nvida": {"enabled": True}}}, "Did you mean manufacturers.nvidia"),
    (
        {"worker": {"resources": {"limits": {"memory": "200Mi"}}}},
        "worker.resources.limits.memory is 200Mi; below 245Mi the program does not start",
    ),
    ({"worker": {"resources": {"limits": {"memory": 1}}}}, "is 1; below"),
    ({"deviceManager": {"resources": {"limits": {"memory": "192m"}}}}, "is 192m; below 97Mi"),
    ({"deviceManager": {"resources": {"limits": {"memory": "0.09Gi"}}}}, "is 0.09Gi; below 97Mi"),
    (
        {"manufacturers": {"nvidia": {"enabled": True, "resources": {"limits": {"memory": "64M"}}}}},
        "manufacturers.nvidia.resources.limits.memory is 64M; below 97Mi",
    ),
    (
        {"worker": {"resources": {"requests": {"memory": "1Gi"}}}},
        "the request for memory .1Gi. must not be above the limit .512Mi.",
    ),
    (
        {"worker": {"networkPolicy": {"controlPlane": [{"ipBlock": {"cidr": "192.0.2.0/28"}}]}}},
        "controlPlane has no effect without worker.networkPolicy.enabled",
    ),
    (
        {"worker": {"networkPolicy": {"egress": {"apiServer": [{"ipBlock": {"cidr": "192.0.2.0/28"}}]}}}},
        "egress has no effect without egress.enabled",
    ),
    ({"manufacturers": {"zzz": {"enabled": True}}}, "zzz is none of nvidia, .* needs its image\\.\n"),
    ({"deviceManager": {"monitorPeriod": "500ms"}}, "monitorPeriod is 500ms; the device manager takes 1s to 1h"),
    ({"deviceManager": {"monitorPeriod": "1h0m1s"}}, "takes 1s to 1h"),
    (
        {"deviceManager": {"podMonitor": {"enabled": True, "interval": "10s", "scrapeTimeout": "1m"}}},
        "scrapeTimeout .1m. must not be above interval .10s.",
    ),
    (
        {"tls": {"certManager": {"renewBefore": "90h", "duration": "90h"}}},
        "renewBefore .90h. must be below duration",
    ),
    ({"tls": {"certManager": {"renewBefore": "10m", "duration": "30m"}}}, "no duration below 1h"),
    ({"tls": {"helm": {"validityDays": 100, "renewBeforeDays": 100}}}, "renewBeforeDays .100. must be below"),
    ({"tls": {"helm": {"validityDays": 5000}}}, "not above caValidityDays .3650."),
    ({"tls": {"trustBundle": {"configMap": "all"}}}, "the chart keeps the bundle itself"),
    (
        {"tls": {"workerClientName": "node-devicemanager-worker.accelerators.svc"}},
        "must not be node-devicemanager-worker.accelerators.svc",
    ),
    ({"worker": {"extraArgs": ["--secure-port=1"]}}, "worker.extraArgs must not hold --secure-port=1"),
    (
        {"manufacturers": {"nvidia": {"extraArgs": ["--manufacturer", "amd"]}}},
        "manufacturers.nvidia.extraArgs must not hold --manufacturer",
    ),
    ({"worker": {"hostNetwork": True}}, "another worker.securePort than 10250"),
    (
        {"worker": {"hostNetwork": True, "securePort": 10261, "networkPolicy": {"enabled": True}}},
        "no effect on pods of the host's network",
    ),
    (
        {
            "worker": {"hostNetwork": True, "securePort": 10261},
            "deviceManager": {"networkPolicy": {"scrapers": [{"podSelector": {}}]}},
        },
        "name the nodes in deviceManager.networkPolicy.extraIngress",
    ),
    (
        {"worker": {"hostNetwork": True, "securePort": 10261, "networkPolicy": {"egress": {"enabled": True}}}},
        "egress has no effect on pods of the host's network",
    ),
    ({"worker": {"networkPolicy": {"egress": {"enabled": True}}}}, "egress needs apiServer"),
    (
        {
            "worker": {
                "kubelet": {"mode": "direct"},
                "networkPolicy": {
                    "egress": {"enabled": True, "apiServer": [{"ipBlock": {"cidr": "192.0.2.1/32"}}]}
                },
            }
        },
        "egress needs kubelets in direct mode",
    ),
    ({"worker": {"podLabels": {"app.kubernetes.io/name": "x"}}}, "worker.podLabels must not set"),
    ({"deviceManager": {"podLabels": {"gpustack.ai/manufacturer": "x"}}}, "deviceManager.podLabels must not set"),
    (
        {"manufacturers": {"amd": {"hostMounts": [{"name": "tmp", "hostPath": "/opt"}]}}},
        "name tmp or path /opt is taken",
    ),
    (
        {
            "manufacturers": {
                "amd": {"hostMounts": [{"name": "a", "hostPath": "/a"}, {"name": "a", "hostPath": "/b"}]}
            }
        },
        "name a or path /b is taken",
    ),
]


@pytest.mark.parametrize(("values", "words"), IN_A_SENTENCE, ids=lambda each: each if isinstance(each, str) else "")
def test_values_that_do_not_go_together_are_refused_in_a_sentence(
    values: Mapping[str, Any], words: str, helms: Sequence[Helm]
) -> None:
    # The helms take turns, and make no keys, which is the slow part of a rendering.
    with pytest.raises(ChartError, match=words):
        template(helms[len(words) % len(helms)], values if "tls" in values else {**CERT_MANAGER, **values})


CERT_MANAGER = {"tls": {"mode": "certManager"}}


def rendered_without_a_cluster(helm: Helm, values: Mapping[str, Any]) -> Sequence[Any]:
    """As ``helm template`` does by itself."""
    command = ("template", RELEASE, str(CHART), "-n", NAMESPACE, "-f", "-")
    return documents(run(helm, *command, stdin=json.dumps({**CERT_MANAGER, **values})))


def test_without_a_cluster_to_look_at_the_group_is_not_taken_without_a_word(helms: Sequence[Helm]) -> None:
    for helm in helms:
        with pytest.raises(ChartError, match=r"no cluster to look at .* worker\.apiService\.ours=true") as refused:
            rendered_without_a_cluster(helm, {})
        for way_out in ("worker.apiService.group", "worker.apiService.takeOver=true"):
            assert way_out in str(refused.value)


@pytest.mark.parametrize(
    "worker",
    [
        {"apiService": {"ours": True}},
        {"apiService": {"takeOver": True}},
        {"apiService": {"group": "metrics.example.org"}},
        {"apiService": {"create": False}},
        {"replicas": 0},
        {"enabled": False},
    ],
    ids=str,
)
def test_a_value_that_says_whose_the_group_is_is_enough(worker: Mapping[str, Any], helms: Sequence[Helm]) -> None:
    assert rendered_without_a_cluster(helms[0], {"worker": worker})


def test_authorities_may_be_given_as_pem(helms: Sequence[Helm]) -> None:
    given = {"mode": "direct", "certificateAuthority": PEM}
    assert template(helms[0], {**CERT_MANAGER, "worker": {"kubelet": given}})


@pytest.mark.parametrize(("where", "program"), [("deviceManager", DEVICE_MANAGER), ("worker", WORKER)])
def test_the_least_memory_is_what_the_program_needs(where: str, program: Program, helms: Sequence[Helm]) -> None:
    with pytest.raises(BudgetError) as too_little:
        split(program, 1)
    least = too_little.value.smallest_bytes // MIB
    requests = {"memory": "1Mi"}

    def rendered_with(mib: int) -> Sequence[Any]:
        resources = {"requests": requests, "limits": {"memory": f"{mib}Mi"}}
        return template(helms[0], {**CERT_MANAGER, **value(f"{where}.resources", resources)})

    assert rendered_with(least)
    with pytest.raises(ChartError, match=f"below {least}Mi the program does not start"):
        rendered_with(least - 1)
