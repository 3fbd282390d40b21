"""PodMetrics, Pods and Instances: whatever the bytes."""

import json
from functools import partial
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from devicemanager.errors import DocumentError
from devicemanager.model.accelerator import Figure, Reason
from devicemanager.rules.pod_metrics import pod_usage
from devicemanager.wire import pod_metrics, pods, workload_objects
from tests.property.json_strategies import anything, bodies, objects

quantities = st.sampled_from(["0", "250m", "20Mi", "-1", "", "NaN", "1e99", "9Ei"]) | st.integers(-5, 2**64)
documents = objects(
    {
        "kind": st.just("PodMetrics"),
        "timestamp": st.sampled_from([None, "2026-01-01T10:05:00Z"]),
        "containers": st.lists(
            objects({"name": st.text(max_size=3), "usage": objects({"cpu": quantities, "memory": quantities})}),
            max_size=3,
        ),
    }
)
metadata = objects(
    {"namespace": st.just("team-a"), "name": st.just("demo"), "uid": st.just("u-1"), "labels": anything}
)
statuses = st.lists(objects({"name": st.just("main"), "state": anything}), max_size=2)
resources = objects({"limits": objects({"cpu": quantities, "memory": quantities}), "requests": anything})
kubernetes_objects = objects(
    {
        "metadata": metadata,
        "spec": objects({"containers": st.lists(objects({"resources": resources, "ports": anything}), max_size=2)}),
        "status": objects({"conditions": anything, "containerStatuses": statuses, "nodeName": st.text()}),
    }
)


def is_figure(figure: Figure) -> bool:
    return isinstance(figure, Reason) or (type(figure) is int and 0 <= figure <= 2**63 - 1)


@given(bodies(documents | anything))
def test_any_bytes_are_pod_metrics_or_our_own_error(body: bytes) -> None:
    try:
        found = pod_metrics.parse(body)
    except DocumentError:
        return
    assert all(is_figure(entry.cpu_nanocores) and is_figure(entry.memory_bytes) for entry in found.containers)
    usage = pod_usage(found, pod_created_at=None)
    assert not hasattr(usage, "cpu_nanocores") or is_figure(usage.cpu_nanocores)


@given(
    st.lists(st.fixed_dictionaries({"cpu": quantities, "memory": quantities}), max_size=4),
    st.permutations(range(4)),
)
def test_the_order_of_the_containers_does_not_matter(usages: list[dict[str, Any]], order: list[int]) -> None:
    containers = [{"name": f"c{index}", "usage": usage} for index, usage in enumerate(usages)]
    document = {"timestamp": "2026-01-01T10:05:00Z", "containers": containers}
    shuffled = {**document, "containers": [containers[i] for i in order if i < len(containers)]}
    one, two = (pod_metrics.parse(json.dumps(entry).encode()) for entry in (document, shuffled))
    assert pod_usage(one, pod_created_at=None) == pod_usage(two, pod_created_at=None)


@given(bodies(kubernetes_objects | anything))
def test_any_bytes_are_a_pod_and_an_instance_or_our_own_error(body: bytes) -> None:
    for parse in (
        pods.parse,
        partial(workload_objects.parse, kind="Instance", node_name_at=("status", "nodeName")),
    ):
        try:
            found = parse(body)
        except DocumentError:
            continue
        assert (found.namespace, found.name) != ("", "")
        json.dumps(dict(found.labels), ensure_ascii=False).encode()
