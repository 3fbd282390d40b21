"""Toys: ConfigMaps, each with a pod that names it in a label. As unlike Instances as a kind can be."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from typing_extensions import override

from devicemanager.model.accelerator import Reason
from devicemanager.model.allocation import Allocation
from devicemanager.model.usage import WorkloadUsage
from devicemanager.wire import workload_objects
from devicemanager.wire.pods import Pod
from devicemanager.wire.workload_objects import WorkloadObject
from devicemanager.worker.workloads.workload import (
    API_VERSION,
    Column,
    Located,
    NotLocated,
    PodQuery,
    Resource,
    SourceObject,
    Workload,
)

LABEL: Final = "toys.example.org/name"


class ToyWorkload(Workload):
    """Found by a label, of the core group, and no owner in ours."""

    resource = Resource(
        kind="ToyUsage",
        list_kind="ToyUsageList",
        plural="toyusages",
        singular="toyusage",
        source=SourceObject("", "v1", "ConfigMap", "configmaps", "configmap"),
        short_names=("toy",),
    )
    columns = (Column("Name", 0, "Name of the toy."), Column("Cores", 0, "CPU in use, in cores."))

    @override
    def parse(self, body: bytes) -> WorkloadObject:
        return workload_objects.parse(body, kind="ConfigMap")

    @override
    def pods_of(self, name: str) -> PodQuery:
        return PodQuery(label_selector=f"{LABEL}={name}")

    @override
    def pods_of_many(self, sources: Sequence[WorkloadObject]) -> str:
        return f"{LABEL} in ({','.join(source.name for source in sources)})"

    @override
    def name_of(self, pod: Pod) -> str:
        return pod.labels[LABEL]

    @override
    def locate(self, source: WorkloadObject, pods: Sequence[Pod]) -> Located | NotLocated:
        for pod in pods:
            if pod.node_name is not None:
                return Located(source, pod, pod.node_name, Allocation())
        return NotLocated(f"toy {source.name} is in its box")

    @override
    def document(self, usage: WorkloadUsage, *, api_group: str) -> dict[str, object]:
        return {
            "kind": self.resource.kind,
            "apiVersion": f"{api_group}/{API_VERSION}",
            "metadata": {"name": usage.name, "namespace": usage.namespace, "uid": usage.uid},
            "cores": _cores(usage),
        }

    @override
    def schemas(self, *, api_group: str, ref_prefix: str) -> Mapping[str, Mapping[str, object]]:
        package = ".".join([*reversed(api_group.split(".")), API_VERSION])
        return {
            f"{package}.{kind}": {
                "type": "object",
                "description": "A toy at play.",
                "x-kubernetes-group-version-kind": [{"group": api_group, "version": API_VERSION, "kind": kind}],
            }
            for kind in (self.resource.kind, self.resource.list_kind)
        }

    @override
    def cells(self, usage: WorkloadUsage, now: datetime) -> Sequence[str]:
        return [usage.name, _cores(usage)]


def _cores(usage: WorkloadUsage) -> str:
    used = Reason.NOT_YET if usage.sample is None else usage.sample.cpu_usage_nanocores
    return "unknown" if isinstance(used, Reason) else f"{used / 1e9:.3f}"


TOY: Final = ToyWorkload()
