"""The whole chain on one machine: a stand-in cluster, two device managers, the worker, and real mutual TLS between.

Nothing here is special to the demo but the cluster: the device managers and the worker are the programs that run
in production, as processes of their own, with certificates made on the spot.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import aiohttp

from devicemanager.demo.cast import (
    INSTANCES,
    KUBELET_STEP,
    MAKERS,
    NAMESPACE,
    NODE,
    WORKER_SERVICE,
    Wardrobe,
    serve_arguments,
    worker_arguments,
)
from devicemanager.demo.cluster import ADMIN_TOKEN, WORKER_TOKEN, StandInCluster
from devicemanager.demo.folder import private_folder, remove_leftovers
from devicemanager.demo.kubeconfig import write_whole
from devicemanager.demo.objects import InstanceSpec
from devicemanager.demo.programs import DemoError, Program
from devicemanager.errors import DocumentError, excerpt
from devicemanager.model.accelerator import CollectorState
from devicemanager.model.usage import SourceState, WorkloadUsage
from devicemanager.settings.demo import KUBECONFIG_HEADER
from devicemanager.tls.certificates import Authority
from devicemanager.wire import instance_metrics

_READY_DEADLINE_S: Final = 30.0
_READ_DEADLINE_S: Final = 15.0
_RETRY_PAUSE_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class ChainOptions:
    """What can be chosen.

    Attributes:
        environment: Of every process started.
        port: Of the stand-in cluster; 0 takes any free one.
        api_group: Of the worker's API.
        kubeconfig: Where to write a kubeconfig once everything answers; None for a temporary folder.
    """

    environment: Mapping[str, str]
    port: int = 0
    api_group: str = instance_metrics.DEFAULT_API_GROUP
    kubeconfig: Path | None = None


class Chain:
    """A chain that runs. Asks through the front door, as any user of the cluster does."""

    def __init__(
        self,
        options: ChainOptions,
        cluster: StandInCluster,
        programs: Sequence[Program],
        kubeconfig: Path,
        session: aiohttp.ClientSession,
    ) -> None:
        self.cluster = cluster
        self.programs = programs
        self.kubeconfig = kubeconfig
        self._options = options
        self._session = session

    @property
    def api_group(self) -> str:
        """Of the worker's API."""
        return self._options.api_group

    def path(self, spec: InstanceSpec) -> str:
        """The path of an Instance's metrics."""
        return f"/apis/{self._options.api_group}/v1/namespaces/{spec.namespace}/instances/{spec.name}/metrics"

    async def read(self, spec: InstanceSpec) -> WorkloadUsage:
        """One Instance's current sample, over HTTPS through the stand-in cluster and the worker.

        Raises:
            DemoError: There is none; the message is the API's own.
        """
        headers = {"Authorization": f"Bearer {ADMIN_TOKEN}"}
        try:
            async with asyncio.timeout(_READ_DEADLINE_S):
                async with self._session.get(f"{self.cluster.url}{self.path(spec)}", headers=headers) as answer:
                    body = await answer.read()
            if answer.status != 200:
                raise DemoError(f"{answer.status}: {excerpt(body.decode(errors='replace'))}")
            return instance_metrics.parse(body)
        except TimeoutError:
            raise DemoError(f"no answer within {_READ_DEADLINE_S:.0f} s") from None
        except (aiohttp.ClientError, DocumentError) as error:
            raise DemoError(excerpt(str(error))) from error

    async def read_all(self) -> list[WorkloadUsage]:
        """Both Instances' current samples.

        Raises:
            DemoError: One of them has none.
        """
        return [await self.read(spec) for spec in INSTANCES]

    async def wait_until_complete(self) -> None:
        """Wait until each source of each Instance answers.

        Raises:
            DemoError: They do not within 30 s; says what is missing.
        """
        missing = "nothing was asked"
        try:
            async with asyncio.timeout(_READY_DEADLINE_S):
                while True:
                    try:
                        missing = _missing(await self.read_all())
                    except DemoError as error:
                        missing = str(error)
                    if not missing:
                        return
                    await asyncio.sleep(_RETRY_PAUSE_S)
        except TimeoutError:
            raise DemoError(f"not everything answers after {_READY_DEADLINE_S:.0f} s: {missing}") from None


@asynccontextmanager
async def running_chain(options: ChainOptions) -> AsyncIterator[Chain]:
    """Start the chain, wait until everything answers, write the kubeconfig; end it all in the other order.

    Raises:
        DemoError: Something did not start, or a process ended while the chain ran; in an exception group.
    """
    async with AsyncExitStack() as stack:
        if options.kubeconfig is not None:
            options.kubeconfig.unlink(missing_ok=True)  # an earlier demo's: scripts wait for ours to appear
        remove_leftovers()
        folder = stack.enter_context(private_folder())
        cluster = StandInCluster(port=options.port, parent=folder)
        try:
            await stack.enter_async_context(cluster)
        except OSError as error:
            raise DemoError(
                f"the stand-in cluster cannot listen on port {options.port}: {error.strerror}"
            ) from error
        programs: list[Program] = []
        followers = await stack.enter_async_context(asyncio.TaskGroup())
        stack.push_async_callback(_stop, programs)
        cluster.kubelets.step = KUBELET_STEP
        wardrobe = Wardrobe(folder, Authority.create("demo CA"))
        cluster.add_node(NODE)
        for spec in INSTANCES:
            cluster.add_instance(spec)
        # The worker first: it has the most to load. They all start side by side.
        arguments = worker_arguments(cluster.kubeconfig(WORKER_TOKEN), options.api_group, wardrobe)
        programs.append(await Program.start("the worker", arguments, options.environment))
        for maker in MAKERS:
            name, arguments = f"the device manager of {maker.name}", serve_arguments(maker, wardrobe)
            programs.append(await Program.start(name, arguments, options.environment))
        for program in programs:
            followers.create_task(program.follow())
        worker, *device_managers = programs
        for maker, program in zip(MAKERS, device_managers, strict=True):
            _, port = await program.listening()
            cluster.add_device_manager(NODE, maker.name, maker.address, port)
        session = await stack.enter_async_context(_session(cluster))
        await _join(cluster, session, worker, options.api_group, wardrobe.authority.pem.certificate)
        kubeconfig = options.kubeconfig or folder / "kubeconfig"
        chain = Chain(options, cluster, programs, kubeconfig, session)
        await chain.wait_until_complete()
        stack.enter_context(_published(kubeconfig, cluster))
        yield chain


@contextmanager
def _published(path: Path, cluster: StandInCluster) -> Iterator[None]:
    """A kubeconfig that is there for as long as there is something to ask.

    Raises:
        DemoError: It cannot be written.
    """
    try:
        write_whole(path, KUBECONFIG_HEADER + cluster.kubeconfig(namespace=NAMESPACE))
    except OSError as error:
        raise DemoError(f"the kubeconfig cannot be written to {path}: {error.strerror}") from error
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def _session(cluster: StandInCluster) -> aiohttp.ClientSession:
    context = ssl.create_default_context(cafile=str(cluster.ca_file))
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context), trust_env=False)


async def _join(
    cluster: StandInCluster, session: aiohttp.ClientSession, worker: Program, api_group: str, ca: bytes
) -> None:
    """Put the worker behind the cluster's API, once it is ready."""
    _, port = await worker.listening()
    url = f"https://127.0.0.1:{port}"
    await _wait_until_ready(session, url, ca)
    cluster.register(api_group, "v1", url, ca, WORKER_SERVICE)


async def _wait_until_ready(session: aiohttp.ClientSession, url: str, ca: bytes) -> None:
    """Wait as a Service does, which sends nothing to a pod that is not ready.

    Raises:
        DemoError: It is not within 30 s; says which checks fail.
    """
    context = ssl.create_default_context(cadata=ca.decode())
    last = "it does not answer"
    try:
        async with asyncio.timeout(_READY_DEADLINE_S):
            while True:
                with suppress(aiohttp.ClientError):
                    async with session.get(
                        f"{url}/readyz?verbose", ssl=context, server_hostname=WORKER_SERVICE
                    ) as answer:
                        last = await answer.text()
                    if answer.status == 200:
                        return
                await asyncio.sleep(_RETRY_PAUSE_S)
    except TimeoutError:
        raise DemoError(f"the worker is not ready after {_READY_DEADLINE_S:.0f} s: {excerpt(last)}") from None


async def _stop(programs: Sequence[Program]) -> None:
    async with asyncio.TaskGroup() as group:
        for program in reversed(programs):
            group.create_task(program.stop())


def _missing(usages: Sequence[WorkloadUsage]) -> str:
    """What does not answer yet; empty when everything does."""
    answered = {SourceState.OK, CollectorState.OK}
    for usage in usages:
        sources = usage.sample.sources if usage.sample else ()
        if not sources:
            return f"{usage.name} has no sample"
        for source in sources:
            if source.state not in answered:
                return f"{usage.name}: {source.name} is {source.state} ({source.message or 'it says no more'})"
    return ""
