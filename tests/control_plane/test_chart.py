"""What the chart renders, judged by a real API server: each object strictly, each pod by Pod Security admission."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from tests.chart import pod_security
from tests.chart.binaries import Helm
from tests.chart.cases import CASES
from tests.chart.conftest import NAMESPACE, Document, template
from tests.chart.strict import documents
from tests.control_plane.cluster import CommandError, ControlPlane

FOREIGN = ("cert-manager.io/", "monitoring.coreos.com/")
"""Groups of other projects' definitions, which are not installed here; tests/chart/schemas stands for them."""


@pytest.fixture(scope="module")
def rendered(helms: Sequence[Helm], cluster: ControlPlane) -> Sequence[Document]:
    """Every object of every case, each once; the namespaces that they are in are there."""
    for name in (NAMESPACE, "gpustack-system", *pod_security.LEVELS):
        labels = {"pod-security.kubernetes.io/enforce": name} if name in pod_security.LEVELS else {}
        cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    texts = {
        json.dumps(d, sort_keys=True) for values in CASES.values() for d in documents(template(helms[0], values))
    }
    return [json.loads(text) for text in sorted(texts)]


def listed(items: Sequence[Mapping[str, Any]]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(items)})


@pytest.mark.timeout(300)
def test_the_api_server_takes_every_object_strictly_and_warns_of_none(
    rendered: Sequence[Document], cluster: ControlPlane
) -> None:
    own = [document for document in rendered if not document["apiVersion"].startswith(FOREIGN)]
    assert len(own) > 100
    flags = ("--server-side", "--dry-run=server", "--validate=strict", "--warnings-as-errors", "--force-conflicts")
    said = cluster.kubectl("apply", *flags, "-f", "-", stdin=listed(own))
    assert said.count("server dry run") == len(own)


def pods(rendered: Sequence[Document]) -> Iterator[Mapping[str, Any]]:
    """The pods of the workloads, each once, less what admission looks up before it comes to their security."""
    seen = set()
    for document in rendered:
        if document["kind"] in {"DaemonSet", "Deployment"}:
            spec = dict(document["spec"]["template"]["spec"])
            for key in ("serviceAccountName", "runtimeClassName"):
                spec.pop(key, None)
            text = json.dumps(spec, sort_keys=True)
            if text not in seen:
                seen.add(text)
                yield {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {"name": f"pod-{len(seen)}"},
                    "spec": spec,
                }


@pytest.mark.timeout(300)
def test_pod_security_admits_each_pod_at_the_level_that_the_rules_find_and_no_stricter(
    rendered: Sequence[Document], cluster: ControlPlane
) -> None:
    found = {
        level: [pod for pod in pods(rendered) if pod_security.level(pod["spec"]) == level]
        for level in pod_security.LEVELS
    }
    assert found["restricted"]
    assert found["privileged"]
    for level, admitted in found.items():
        if admitted:
            command = ("create", "-n", level, "--dry-run=server", "-f", "-")
            assert cluster.kubectl(*command, stdin=listed(admitted)).count("server dry run") == len(admitted)
        for stricter in pod_security.LEVELS[: pod_security.LEVELS.index(level)]:
            for pod in admitted:
                with pytest.raises(CommandError, match=f'violates PodSecurity "{stricter}'):
                    cluster.kubectl("create", "-n", stricter, "--dry-run=server", "-f", "-", stdin=json.dumps(pod))
