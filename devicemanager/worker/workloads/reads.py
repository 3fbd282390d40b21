"""Reading workloads of one kind, and the pods behind them, from the API server."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Final, Self, TypeAlias, TypeVar

from devicemanager.clock import Clock
from devicemanager.errors import DocumentError, FetchError
from devicemanager.model.usage import SourceState
from devicemanager.wire import pods
from devicemanager.wire.pods import Pod
from devicemanager.wire.workload_objects import WorkloadObject
from devicemanager.worker.cluster import Cluster, object_path
from devicemanager.worker.reflector import Listing, list_objects
from devicemanager.worker.shared_reads import Pending, SharedReads
from devicemanager.worker.transport import attempt
from devicemanager.worker.workloads.workload import Workload

READ_DEADLINE_S: Final = 5.0

_ANY_VERSION: Final = {"resourceVersion": "0"}
"""Answered from the API server's memory: no older than what its own watchers have seen."""

Name: TypeAlias = tuple[str, str]
"""A namespace, and a name in it."""

T = TypeVar("T")


class WorkloadReads:
    """Reads the objects of one kind, and their pods. To be entered before use.

    Concurrent readers of one workload share both reads; nothing is kept once they are answered.
    """

    def __init__(self, workload: Workload, cluster: Cluster, clock: Clock) -> None:
        self.workload = workload
        self._source = workload.resource.source
        self._cluster = cluster
        self._objects: SharedReads[Name, WorkloadObject] = SharedReads(self._read_object, clock, max_age_s=0)
        self._pods: SharedReads[Name, Sequence[Pod]] = SharedReads(self._read_pods, clock, max_age_s=0)
        self._resources = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._resources.enter_async_context(self._objects)
        await self._resources.enter_async_context(self._pods)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._resources.aclose()

    def source(self, name: Name, *, deadline_s: float) -> Pending[WorkloadObject]:
        """One workload's object, being read; the error ``says_missing`` where there is none of that name."""
        return self._objects.begin(name, deadline_s=deadline_s)

    def pods(self, name: Name, *, deadline_s: float) -> Pending[Sequence[Pod]]:
        """The pods that may be those of the workload of that name, being read."""
        return self._pods.begin(name, deadline_s=deadline_s)

    async def all(
        self, namespace: str | None, *, deadline_s: float
    ) -> tuple[Mapping[Name, WorkloadObject], Mapping[Name, Sequence[Pod]]]:
        """Every workload and the pods that may be theirs, in one namespace or in all for None.

        One object that cannot be read is left out.

        Raises:
            FetchError: Either cannot be listed.
        """
        async with asyncio.TaskGroup() as tasks:
            objects_read = tasks.create_task(
                attempt(
                    list_objects(
                        self._cluster, self._source.path(namespace), self.workload.parse, deadline_s=deadline_s
                    )
                )
            )
            pods_read = tasks.create_task(
                attempt(self._list_pods(namespace, self.workload.all_pods, deadline_s=deadline_s))
            )
        listed, backing = objects_read.result(), pods_read.result()
        if isinstance(listed, FetchError):
            raise listed
        if isinstance(backing, FetchError):
            raise backing
        by_name: dict[Name, list[Pod]] = {}
        for pod in backing.items:
            by_name.setdefault((pod.namespace, self.workload.name_of(pod)), []).append(pod)
        return {(each.namespace, each.name): each for each in listed.items}, by_name

    async def _read_object(self, name: Name) -> WorkloadObject:
        """One object. That there is none is believed only of a read that no cache answered.

        The garbage collector deletes what names a missing InstanceMetrics as its owner, and a cache may not know of
        one that was just made.
        """
        path = self._source.path(*name)
        try:
            body = await self._cluster.get(path, _ANY_VERSION, deadline_s=READ_DEADLINE_S)
        except FetchError as error:
            if not error.says_missing(name[1]):
                raise
            body = await self._cluster.get(path, deadline_s=READ_DEADLINE_S)
        return _parsed(body, self.workload.parse)

    async def _read_pods(self, name: Name) -> Sequence[Pod]:
        namespace, query = name[0], self.workload.pods_of(name[1])
        if query.name is None:
            return (await self._list_pods(namespace, query.label_selector, deadline_s=READ_DEADLINE_S)).items
        path = object_path("/api/v1/namespaces", namespace, "pods", query.name)
        try:
            body = await self._cluster.get(path, _ANY_VERSION, deadline_s=READ_DEADLINE_S)
        except FetchError as error:
            if error.status == 404:
                return ()
            raise
        return (_parsed(body, pods.parse),)

    async def _list_pods(self, namespace: str | None, label_selector: str, *, deadline_s: float) -> Listing[Pod]:
        within = "" if namespace is None else object_path("/namespaces", namespace)
        params = {"labelSelector": label_selector} if label_selector else {}
        return await list_objects(self._cluster, f"/api/v1{within}/pods", pods.parse, params, deadline_s=deadline_s)


def _parsed(body: bytes, parse: Callable[[bytes], T]) -> T:
    try:
        return parse(body)
    except DocumentError as error:
        raise FetchError(SourceState.INVALID, str(error)) from error
