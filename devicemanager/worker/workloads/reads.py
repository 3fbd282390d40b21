"""Reading workloads of one kind, and the pods behind them, from the API server."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from types import MappingProxyType, TracebackType
from typing import Final, Self, TypeAlias, TypeVar

from devicemanager.clock import Clock
from devicemanager.errors import DocumentError, FetchError
from devicemanager.model.usage import SourceState
from devicemanager.transport.body_memory import BodyMemory
from devicemanager.transport.document_limits import BODY_BYTES
from devicemanager.transport.failures import attempt, unreadable
from devicemanager.wire import pods
from devicemanager.wire.pods import Pod
from devicemanager.wire.workload_objects import WorkloadObject
from devicemanager.worker.cluster import Cluster, object_path
from devicemanager.worker.pages import Lister, Listing
from devicemanager.worker.single_flight import Pending, SharedReads
from devicemanager.worker.slices import Slices
from devicemanager.worker.workloads.workload import Workload

READ_DEADLINE_S: Final = 5.0

_ANY_VERSION: Final = {"resourceVersion": "0"}
"""Answered from the API server's memory: no older than what its own watchers have seen."""

BATCH: Final = 100
"""Workloads whose pods are asked for in one list: their UIDs make 4 KiB of a URL, which any proxy lets through."""

BATCHES_AT_ONCE: Final = 4

Name: TypeAlias = tuple[str, str]
"""A namespace, and a name in it."""

T = TypeVar("T")


class WorkloadReads:
    """Reads the objects of one kind, and their pods. To be entered before use.

    Concurrent readers of one workload share both reads; nothing is kept once they are answered.
    """

    def __init__(
        self,
        workload: Workload,
        cluster: Cluster,
        clock: Clock,
        slices: Slices | None = None,
        bodies: BodyMemory | None = None,
    ) -> None:
        """Args: ``slices`` and ``bodies`` are shared with whoever else reads; None for own ones."""
        self.workload = workload
        self._source = workload.resource.source
        self._cluster = cluster
        self._bodies = bodies or BodyMemory(BODY_BYTES)
        self._lister = Lister(cluster, clock, slices, self._bodies)
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

    async def all(self, namespace: str | None, *, deadline_s: float) -> Listing[WorkloadObject]:
        """Every workload in one namespace, or in all for None. One object that cannot be read is left out.

        Raises:
            FetchError: They cannot be listed.
        """
        return await self._lister.list(self._source.path(namespace), self.workload.parse, deadline_s=deadline_s)

    async def pods_of_many(
        self, namespace: str | None, sources: Sequence[WorkloadObject], *, deadline_s: float
    ) -> Mapping[Name, Sequence[Pod] | FetchError]:
        """The pods that may be these workloads', by workload; nothing for one without a pod.

        What is read grows with the workloads, whatever other pods there are.

        Raises:
            FetchError: No pod at all can be listed.
        """
        turns = asyncio.Semaphore(BATCHES_AT_ONCE)

        async def read(batch: Sequence[WorkloadObject]) -> Mapping[Name, Sequence[Pod] | FetchError]:
            async with turns:
                return await self._batch(namespace, batch, deadline_s=deadline_s)

        async with asyncio.TaskGroup() as tasks:
            reads = [
                tasks.create_task(read(sources[first : first + BATCH])) for first in range(0, len(sources), BATCH)
            ]
        found = {name: pods for each in reads for name, pods in each.result().items()}
        failures = [pods for pods in found.values() if isinstance(pods, FetchError)]
        if failures and len(failures) == len(sources):
            raise failures[0].again()
        return found

    async def _batch(
        self, namespace: str | None, sources: Sequence[WorkloadObject], *, deadline_s: float
    ) -> Mapping[Name, Sequence[Pod] | FetchError]:
        names = [(source.namespace, source.name) for source in sources]
        selector = self.workload.pods_of_many(sources)
        listed = await attempt(self._list_pods(namespace, selector, deadline_s=deadline_s, params=_ANY_VERSION))
        if not isinstance(listed, FetchError):
            by_name: dict[Name, list[Pod]] = {}
            for pod in listed:
                by_name.setdefault((pod.namespace, self.workload.name_of(pod)), []).append(pod)
            return by_name
        if listed.state is not SourceState.INVALID:
            return dict.fromkeys(names, listed)
        # More than is read at once, or a pod that spoils the whole list: it costs only its own workload.
        reads = [self.pods(name, deadline_s=deadline_s) for name in names]
        return {name: await read.outcome() for name, read in zip(names, reads, strict=True)}

    async def _read_object(self, name: Name) -> WorkloadObject:
        """One object. That there is none is believed only of a read that no cache answered.

        The garbage collector deletes what names a missing InstanceMetrics as its owner, and a cache may not know of
        one that was just made.
        """
        path = self._source.path(*name)
        with self._bodies.api_server.holding():
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
            return await self._list_pods(namespace, query.label_selector, deadline_s=READ_DEADLINE_S)
        path = object_path("/api/v1/namespaces", namespace, "pods", query.name)
        with self._bodies.api_server.holding():
            try:
                body = await self._cluster.get(path, _ANY_VERSION, deadline_s=READ_DEADLINE_S)
            except FetchError as error:
                if error.status == 404:
                    return ()
                raise
            return (_parsed(body, pods.parse),)

    async def _list_pods(
        self,
        namespace: str | None,
        label_selector: str,
        *,
        deadline_s: float,
        params: Mapping[str, str] = MappingProxyType({}),
    ) -> Sequence[Pod]:
        within = "" if namespace is None else object_path("/namespaces", namespace)
        selected = {"labelSelector": label_selector} if label_selector else {}
        path = f"/api/v1{within}/pods"
        listed = await self._lister.list(path, pods.parse, {**params, **selected}, deadline_s=deadline_s)
        if listed.cut is not None:
            # Whose pods are missing is not known: what is not listed must not be taken for what is not there.
            raise FetchError(SourceState.INVALID, f"not all pods are listed: {listed.cut}")
        return listed.items


def _parsed(body: bytes, parse: Callable[[bytes], T]) -> T:
    try:
        return parse(body)
    except DocumentError as error:
        raise unreadable(error) from error
