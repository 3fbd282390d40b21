"""Instances and the pods behind them, read from the API server.

An Instance is the operator's custom resource; its pod has the same namespace and name, and carries the Instance's
UID in a label. A pod with another UID there belongs to an earlier Instance of that name, or to somebody else.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self, TypeAlias, TypeVar

from devicemanager.clock import Clock
from devicemanager.errors import DocumentError, FetchError, excerpt
from devicemanager.model.allocation import Allocation
from devicemanager.model.usage import SourceState
from devicemanager.transport.failures import attempt
from devicemanager.wire import allocation_annotation, instances, pods
from devicemanager.wire.instances import Instance
from devicemanager.wire.pods import Pod
from devicemanager.worker.cluster import Cluster, object_path
from devicemanager.worker.reflector import list_objects
from devicemanager.worker.single_flight import Pending, SharedReads

INSTANCE_GROUP: Final = "worker.gpustack.ai"

INSTANCES: Final = f"/apis/{INSTANCE_GROUP}/v1alpha1"
"""The operator's custom resource, whatever group our own API is served under."""

PART_OF_LABEL: Final = "app.kubernetes.io/part-of"

READ_DEADLINE_S: Final = 5.0

_ANY_VERSION: Final = {"resourceVersion": "0"}
"""Answered from the API server's memory: no older than what its own watchers have seen."""

Name: TypeAlias = tuple[str, str]
"""A namespace, and a name in it."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Workload:
    """An Instance, and its own pod on a node.

    Attributes:
        node_name: Where the pod runs.
        allocation: From the pod's annotation; none of it counts on another node than the Instance's.
    """

    instance: Instance
    pod: Pod
    node_name: str
    allocation: Allocation


@dataclass(frozen=True, slots=True)
class Missing:
    """Why an Instance has nothing to measure now."""

    message: str


def workload(instance: Instance, pod: Pod | None) -> Workload | Missing:
    """Joins an Instance with the pod of the same namespace and name, if that is its own.

    Args:
        instance: As read.
        pod: None where there is none of that name.
    """
    title = f"Instance {instance.namespace}/{instance.name}"
    if instance.node_name is None:
        return Missing(f"{title} is not scheduled to a node")
    if pod is None:
        return Missing(f"{title} has no backing pod")
    if pod.labels.get(PART_OF_LABEL) != instance.uid:
        return Missing(f"{title} has no backing pod: the pod of that name belongs to an earlier incarnation")
    if pod.node_name is None:
        return Missing(f"{title} is not scheduled to a node")
    return Workload(instance, pod, pod.node_name, _allocation(instance, pod))


def _allocation(instance: Instance, pod: Pod) -> Allocation:
    """The cards given to the pod, as its annotation says.

    Whoever may make pods chooses their node and writes their annotations, and could so ask for the cards of any
    node. The Instance's status is written by the operator alone, so only the node that it names counts.
    """
    allocation = allocation_annotation.parse(pod.annotations.get(allocation_annotation.ANNOTATION))
    if not allocation.cards or pod.node_name == instance.node_name:
        return allocation
    problem = (
        f"the pod runs on node {excerpt(pod.node_name or '', 64)}, and the Instance's status names "
        f"{excerpt(instance.node_name or '', 64)}: cards of another node than the Instance's are not shown"
    )
    return Allocation(problem=problem)


class Workloads:
    """Reads Instances and pods. To be entered before use.

    Concurrent readers of one Instance share both reads; nothing is kept once they are answered.
    """

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self._cluster = cluster
        self._instances: SharedReads[Name, Instance] = SharedReads(self._read_instance, clock, max_age_s=0)
        self._pods: SharedReads[Name, Pod | None] = SharedReads(self._read_pod, clock, max_age_s=0)
        self._resources = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._resources.enter_async_context(self._instances)
        await self._resources.enter_async_context(self._pods)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._resources.aclose()

    def instance(self, name: Name, *, deadline_s: float) -> Pending[Instance]:
        """One Instance, being read; the error ``says_missing`` where there is none of that name."""
        return self._instances.begin(name, deadline_s=deadline_s)

    def pod(self, name: Name, *, deadline_s: float) -> Pending[Pod | None]:
        """The pod of that name, being read; None where there is none."""
        return self._pods.begin(name, deadline_s=deadline_s)

    async def all(
        self, namespace: str | None, *, deadline_s: float
    ) -> tuple[Mapping[Name, Instance], Mapping[Name, Pod], str]:
        """Every Instance and every pod that is part of something, in one namespace or in all for None.

        Returns:
            Instances, pods, and the version of the list of Instances. One that cannot be read is left out.

        Raises:
            FetchError: Either cannot be listed.
        """
        within = object_path("/namespaces", namespace) if namespace is not None else ""
        pods_query = {"labelSelector": PART_OF_LABEL}
        async with asyncio.TaskGroup() as tasks:
            instances_read = tasks.create_task(
                attempt(
                    list_objects(
                        self._cluster, f"{INSTANCES}{within}/instances", instances.parse, deadline_s=deadline_s
                    )
                )
            )
            pods_read = tasks.create_task(
                attempt(
                    list_objects(
                        self._cluster, f"/api/v1{within}/pods", pods.parse, pods_query, deadline_s=deadline_s
                    )
                )
            )
        listed, backing = instances_read.result(), pods_read.result()
        if isinstance(listed, FetchError):
            raise listed
        if isinstance(backing, FetchError):
            raise backing
        return (
            {(each.namespace, each.name): each for each in listed.items},
            {(each.namespace, each.name): each for each in backing.items},
            listed.resource_version,
        )

    async def _read_instance(self, name: Name) -> Instance:
        """One Instance. That there is none is believed only of a read that no cache answered.

        The garbage collector deletes what names a missing InstanceMetrics as its owner, and a cache may not know of
        one that was just made.
        """
        path = instance_path(*name)
        try:
            body = await self._cluster.get(path, _ANY_VERSION, deadline_s=READ_DEADLINE_S)
        except FetchError as error:
            if not error.says_missing(name[1]):
                raise
            body = await self._cluster.get(path, deadline_s=READ_DEADLINE_S)
        return _understood(body, instances.parse)

    async def _read_pod(self, name: Name) -> Pod | None:
        path = object_path("/api/v1/namespaces", name[0]) + object_path("/pods", name[1])
        try:
            return _understood(await self._cluster.get(path, _ANY_VERSION, deadline_s=READ_DEADLINE_S), pods.parse)
        except FetchError as error:
            if error.status == 404:
                return None
            raise


def instance_path(namespace: str, name: str) -> str:
    """Where the API server has an Instance.

    Raises:
        FetchError: As :func:`~devicemanager.worker.cluster.object_path` does.
    """
    return object_path(f"{INSTANCES}/namespaces", namespace) + object_path("/instances", name)


def _understood(body: bytes, parse: Callable[[bytes], T]) -> T:
    try:
        return parse(body)
    except DocumentError as error:
        raise FetchError(SourceState.INVALID, str(error)) from error
