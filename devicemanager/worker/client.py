"""Everything that reading needs, put together: for the worker, the command line and programs that import it.

async with connect_reader(Kubeconfig("~/.kube/config")) as reader:
    outcome = await reader.read("team-a", "web")
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from devicemanager.clock import Clock, SystemClock
from devicemanager.transport.body_memory import BodyMemory
from devicemanager.transport.document_limits import WORKER_DOCUMENTS, DocumentLimits
from devicemanager.worker.cluster import Cluster, ClusterClient
from devicemanager.worker.credentials import CredentialsSource
from devicemanager.worker.deadlines import DEADLINES, Deadlines
from devicemanager.worker.decoding import Decoding
from devicemanager.worker.device_managers import DeviceManagers
from devicemanager.worker.direct_kubelets import DirectKubelets, KubeletAccess
from devicemanager.worker.kubelet import KubeletSource, ProxiedKubelets
from devicemanager.worker.metrics_server import MetricsServer
from devicemanager.worker.pages import Lister
from devicemanager.worker.read import WorkloadReader
from devicemanager.worker.slices import Slices
from devicemanager.worker.sources import AGES, Ages, Sources
from devicemanager.worker.workloads.instance.workload import INSTANCE
from devicemanager.worker.workloads.reads import WorkloadReads
from devicemanager.worker.workloads.registry import WORKLOADS
from devicemanager.worker.workloads.workload import Workload

SYSTEM_NAMESPACE: Final = "gpustack-system"
"""Where the existing operator's chart installs, and ours."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How to read.

    Attributes:
        device_manager_tls: Gives the context to ask device managers with, at each read; None where there is no
            client pair, and then the cards' source says so.
        device_manager_namespace: Where their pods run.
        device_manager_server_name: The name that their certificates carry; None to verify the pod's address.
        kubelets: How kubelets are asked directly; None to ask them through the API server.
        ages: For how long answers are shared with those who come later.
        deadlines: Of a read and its parts.
        documents: What documents of peers may take of memory.
    """

    device_manager_tls: Callable[[], ssl.SSLContext] | None = field(default=None, repr=False)
    device_manager_namespace: str = SYSTEM_NAMESPACE
    device_manager_server_name: str | None = None
    kubelets: KubeletAccess | None = None
    ages: Ages = AGES
    deadlines: Deadlines = DEADLINES
    documents: DocumentLimits = WORKER_DOCUMENTS


READ_OPTIONS: Final = ReadOptions()


@dataclass(frozen=True, slots=True)
class Client:
    """Everything that reading needs, running.

    Attributes:
        readers: One per kind of workload, by the plural of its resource.
        cluster: The API server's client, for whatever else is to be asked.
        sources: With the statistics of the shared reads.
        lister: For whatever else is to be listed there.
    """

    readers: Mapping[str, WorkloadReader]
    cluster: ClusterClient
    sources: Sources
    lister: Lister

    @property
    def reader(self) -> WorkloadReader:
        """For Instances."""
        return self.readers[INSTANCE.resource.plural]


@asynccontextmanager
async def connect(
    credentials: CredentialsSource, options: ReadOptions = READ_OPTIONS, *, clock: Clock | None = None
) -> AsyncIterator[Client]:
    """A client that is connected and follows the cluster, until the block ends.

    Args:
        credentials: For the API server.
        options: How to read.
        clock: None for the machine's own.

    Raises:
        SettingsError: The credentials cannot be read.
    """
    clock = clock or SystemClock()
    failure: BaseException | None = None
    slices, bodies = Slices(clock), BodyMemory(options.documents.arriving_bytes)
    decoding = Decoding(slices)
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(ClusterClient(credentials, clock))
        lister = Lister(cluster, clock, slices, bodies)
        device_managers = await stack.enter_async_context(
            _device_managers(cluster, options, clock, decoding, lister)
        )
        kubelets: KubeletSource = ProxiedKubelets(cluster, decoding)
        if options.kubelets is not None:
            direct = DirectKubelets(cluster, cluster, options.kubelets, clock, decoding, bodies)
            kubelets = await stack.enter_async_context(direct)
        sources = await stack.enter_async_context(
            Sources(
                kubelets,
                MetricsServer(cluster),
                device_managers,
                clock,
                options.ages,
                options.documents,
                slices=slices,
                bodies=bodies,
            )
        )
        readers = {
            workload.resource.plural: WorkloadReader(
                await stack.enter_async_context(WorkloadReads(workload, cluster, clock, slices, bodies)),
                sources,
                clock,
                options.deadlines,
            )
            for workload in WORKLOADS
        }
        async with asyncio.TaskGroup() as background:
            followed = [
                background.create_task(cluster.follow_credentials()),
                background.create_task(device_managers.follow()),
            ]
            try:
                yield Client(readers, cluster, sources, lister)
            except BaseException as error:  # noqa: BLE001 - raised again below as itself, not in a group of ours
                failure = error
            finally:
                for task in followed:
                    task.cancel()
        if failure is not None:
            raise failure


@asynccontextmanager
async def connect_reader(
    credentials: CredentialsSource, options: ReadOptions = READ_OPTIONS, workload: Workload = INSTANCE
) -> AsyncIterator[WorkloadReader]:
    """Only the reader of :func:`connect` for one kind of workload."""
    async with connect(credentials, options) as side:
        yield side.readers[workload.resource.plural]


def _device_managers(
    cluster: Cluster, options: ReadOptions, clock: Clock, decoding: Decoding, lister: Lister
) -> DeviceManagers:
    return DeviceManagers(
        cluster,
        options.device_manager_tls,
        clock,
        namespace=options.device_manager_namespace,
        server_name=options.device_manager_server_name,
        decoding=decoding,
        lister=lister,
    )
