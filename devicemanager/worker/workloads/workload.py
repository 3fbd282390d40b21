"""What a kind of workload is: its names in the API, how its pods are found, and how it answers.

Each kind has a folder of its own here and a line in :mod:`devicemanager.worker.workloads.registry`. Discovery,
OpenAPI, routes, authorization, tables and the metrics of the worker follow from it. Reading a pod's figures is the
same for all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple, Protocol

from devicemanager.model.allocation import Allocation
from devicemanager.model.usage import WorkloadUsage
from devicemanager.wire.pods import Pod
from devicemanager.wire.workload_objects import WorkloadObject
from devicemanager.worker.cluster import object_path

API_VERSION: Final = "v1"
"""Of our group; every kind is served in it."""


@dataclass(frozen=True, slots=True)
class SourceObject:
    """The kind of object that a workload is, where the API server has it.

    Attributes:
        group: API group; empty for the core group.
        plural: As paths spell it.
        is_owner: Whether our group lists the kind too. Objects may then name it as their owner, and the garbage
            collector asks us for it: only for a kind whose definition is in our group.
    """

    group: str
    version: str
    kind: str
    plural: str
    singular: str
    is_owner: bool = False

    def path(self, namespace: str | None = None, name: str | None = None) -> str:
        """Where the API server has one object, those of a namespace, or all.

        Raises:
            FetchError: As :func:`~devicemanager.worker.cluster.object_path` does.
        """
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        within = "" if namespace is None else object_path("/namespaces", namespace)
        collection = f"{root}{within}/{self.plural}"
        return collection if name is None else object_path(collection, name)


@dataclass(frozen=True, slots=True)
class Resource:
    """The names under which our group serves the usage of one kind of workload.

    Attributes:
        kind: Of an answer.
        plural: The resource that can be got and listed.
        subresource: Below the plural of the source; the same answer as for a single object.
    """

    kind: str
    list_kind: str
    plural: str
    singular: str
    source: SourceObject
    short_names: Sequence[str] = ()
    categories: Sequence[str] = ()
    subresource: str = "metrics"


@dataclass(frozen=True, slots=True)
class PodQuery:
    """Which pods of a namespace may be a workload's: the one of that name, or those that a label selector finds."""

    name: str | None = None
    label_selector: str = ""


@dataclass(frozen=True, slots=True)
class Located:
    """A workload, and its own pod on a node.

    Attributes:
        node_name: Where the pod runs.
        allocation: The cards given to it.
    """

    source: WorkloadObject
    pod: Pod
    node_name: str
    allocation: Allocation


@dataclass(frozen=True, slots=True)
class NotLocated:
    """Why a workload has nothing to measure now."""

    message: str


class Column(NamedTuple):
    """A column of ``kubectl get``. Priority 1 shows with ``-o wide`` only."""

    name: str
    priority: int
    description: str


class Workload(Protocol):
    """One kind of workload. Pure: others do the reading."""

    @property
    def resource(self) -> Resource:
        """Its names."""
        ...

    @property
    def columns(self) -> Sequence[Column]:
        """Of its table; the first is the name."""
        ...

    def pods_of_many(self, sources: Sequence[WorkloadObject]) -> str:
        """Label selector for the pods of these workloads, at most a hundred. Others that it finds cost as much."""
        ...

    def parse(self, body: bytes) -> WorkloadObject:
        """The source object from its JSON.

        Raises:
            DocumentError: It is none.
        """
        ...

    def pods_of(self, name: str) -> PodQuery:
        """Which pods may be those of the workload of this name, in its namespace."""
        ...

    def name_of(self, pod: Pod) -> str:
        """The name of the workload that a pod may belong to, in its namespace."""
        ...

    def locate(self, source: WorkloadObject, pods: Sequence[Pod]) -> Located | NotLocated:
        """The pod that is this workload's own, among those that the query found."""
        ...

    def document(self, usage: WorkloadUsage, *, api_group: str) -> dict[str, object]:
        """The answer for one workload as JSON values."""
        ...

    def schemas(self, *, api_group: str, ref_prefix: str) -> Mapping[str, Mapping[str, object]]:
        """Schemas of the answer and its list, by name: ``ai.gpustack.worker.v1.InstanceMetrics``.

        Args:
            api_group: Whose kinds they are.
            ref_prefix: What references between them begin with.
        """
        ...

    def cells(self, usage: WorkloadUsage, now: datetime) -> Sequence[str]:
        """One row of the table, in the order of the columns."""
        ...
