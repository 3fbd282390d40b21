"""Instances: how their pods are found, and how they answer.

An Instance is the operator's custom resource. Its pod has the same namespace and name, and carries the Instance's
UID in a label. A pod with another UID there belongs to an earlier Instance of that name, or to something else.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from typing_extensions import override

from devicemanager.errors import excerpt
from devicemanager.model.allocation import Allocation
from devicemanager.model.usage import WorkloadUsage
from devicemanager.wire import allocation_annotation, instance_metrics, workload_objects
from devicemanager.wire.instance_metrics_schema import KIND, LIST_KIND
from devicemanager.wire.pods import Pod
from devicemanager.wire.workload_objects import WorkloadObject
from devicemanager.worker.workloads.instance import table
from devicemanager.worker.workloads.workload import (
    Located,
    NotLocated,
    PodQuery,
    Resource,
    SourceObject,
    Workload,
)

PART_OF_LABEL: Final = "app.kubernetes.io/part-of"

_LABEL_VALUE: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", re.ASCII)


class InstanceWorkload(Workload):
    """The one kind with a UID in its pod's label, and a node in its status that only the operator writes."""

    resource = Resource(
        kind=KIND,
        list_kind=LIST_KIND,
        plural="instancemetrics",
        singular="instancemetrics",
        # The operator's group, whatever group our own API is served under.
        source=SourceObject("worker.gpustack.ai", "v1alpha1", "Instance", "instances", "instance", is_owner=True),
        short_names=("im",),
        categories=("gpustack",),
    )
    columns = table.COLUMNS

    @override
    def parse(self, body: bytes) -> WorkloadObject:
        return workload_objects.parse(body, kind="Instance", node_name_at=("status", "nodeName"))

    @override
    def pods_of(self, name: str) -> PodQuery:
        return PodQuery(name=name)

    @override
    def pods_of_many(self, sources: Sequence[WorkloadObject]) -> str:
        """By their UIDs: half of the programs in a cluster have this label, with values of their own."""
        uids = (source.uid for source in sources if _LABEL_VALUE.fullmatch(source.uid))
        return f"{PART_OF_LABEL} in ({','.join(uids)})"

    @override
    def name_of(self, pod: Pod) -> str:
        return pod.name

    @override
    def locate(self, source: WorkloadObject, pods: Sequence[Pod]) -> Located | NotLocated:
        title = f"Instance {source.namespace}/{source.name}"
        if source.node_name is None:
            return NotLocated(f"{title} is not scheduled to a node")
        if not pods:
            return NotLocated(f"{title} has no backing pod")
        pod = pods[0]
        if pod.labels.get(PART_OF_LABEL) != source.uid:
            return NotLocated(f"{title} has no backing pod: the pod of that name belongs to an earlier incarnation")
        if pod.node_name is None:
            return NotLocated(f"{title} is not scheduled to a node")
        return Located(source, pod, pod.node_name, _allocation(source, pod))

    @override
    def document(self, usage: WorkloadUsage, *, api_group: str) -> dict[str, object]:
        return instance_metrics.document(usage, api_group=api_group)

    @override
    def schemas(self, *, api_group: str, ref_prefix: str) -> Mapping[str, Mapping[str, object]]:
        return instance_metrics.schemas(api_group=api_group, ref_prefix=ref_prefix)

    @override
    def cells(self, usage: WorkloadUsage, now: datetime) -> Sequence[str]:
        return table.cells(usage, now)


def _allocation(source: WorkloadObject, pod: Pod) -> Allocation:
    """The cards given to the pod, as its annotation says; none on another node than the Instance's.

    Whoever may make pods chooses their node and writes their annotations, and could so ask for the cards of any
    node. The Instance's status is written by the operator alone, so only the node that it names counts.
    """
    allocation = allocation_annotation.parse(pod.annotations.get(allocation_annotation.ANNOTATION))
    if not allocation.cards or pod.node_name == source.node_name:
        return allocation
    problem = (
        f"the pod runs on node {excerpt(pod.node_name or '', 64)}, and the Instance's status names "
        f"{excerpt(source.node_name or '', 64)}: cards of another node than the Instance's are not shown"
    )
    return Allocation(problem=problem)


INSTANCE: Final = InstanceWorkload()
