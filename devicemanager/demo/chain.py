"""The whole chain on one machine: a stand-in cluster, two device managers and the worker, with mutual TLS.

Only the cluster is special to the demo: the device managers and the worker are the programs that run in production,
each in a process of its own, with certificates made at the start.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Final

import aiohttp

from devicemanager.demo.cluster.objects import InstanceSpec
from devicemanager.demo.cluster.stand_in import ADMIN_TOKEN, WORKER_TOKEN, StandInCluster
from devicemanager.demo.fixtures import (
    INSTANCES,
    KUBELET_STEP,
    NAMESPACE,
    NODE,
    VENDORS,
    WORKER_SERVICE,
    CertificateStore,
    serve_arguments,
    worker_arguments,
)
from devicemanager.demo.folder import private_folder, remove_leftovers
from devicemanager.demo.processes import DemoError, Program
from devicemanager.errors import DocumentError, excerpt
from devicemanager.model.accelerator import CollectorState
from devicemanager.model.usage import SourceState, WorkloadUsage
from devicemanager.settings.demo import KUBECONFIG_HEADER, is_ours
from devicemanager.tls.certificates import Authority
from devicemanager.tls.private_files import write_whole
from devicemanager.wire import instance_metrics

API_GROUP: Final = instance_metrics.DEFAULT_API_GROUP

_READY_DEADLINE_S: Final = 30.0
_READ_DEADLINE_S: Final = 15.0
_RETRY_PAUSE_S: Final = 0.05


class Chain:
    """The running chain, as a client of the cluster's API sees it."""

    def __init__(self, cluster: StandInCluster, kubeconfig: Path, session: aiohttp.ClientSession) -> None:
        self.kubeconfig = kubeconfig
        self._url = cluster.url
        self._session = session

    def path(self, spec: InstanceSpec) -> str:
        """The path of an Instance's metrics."""
        return f"/apis/{API_GROUP}/v1/namespaces/{spec.namespace}/instances/{spec.name}/metrics"

    async def read(self, spec: InstanceSpec) -> WorkloadUsage:
        """One Instance's current sample, over HTTPS through the stand-in cluster and the worker.

        Raises:
            DemoError: There is none; the message is the API's own.
        """
        headers = {"Authorization": f"Bearer {ADMIN_TOKEN}"}
        try:
            async with asyncio.timeout(_READ_DEADLINE_S):
                async with self._session.get(f"{self._url}{self.path(spec)}", headers=headers) as answer:
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

    async def missing(self) -> str:
        """The first source that does not answer yet; empty when all do."""
        try:
            return _missing(await self.read_all())
        except DemoError as error:
            return str(error)


@asynccontextmanager
async def running_chain(
    environment: Mapping[str, str], port: int = 0, kubeconfig: Path | None = None
) -> AsyncIterator[Chain]:
    """Start the chain, wait until everything answers, write the kubeconfig; stop everything in reverse order.

    Args:
        environment: Of every process started.
        port: Of the stand-in cluster; 0 takes any free one.
        kubeconfig: Where to write a kubeconfig once everything answers; None for a temporary folder.

    Raises:
        DemoError: Something did not start, or a process ended while the chain ran; in an exception group.
    """
    async with AsyncExitStack() as stack:
        _remove_leftovers(kubeconfig)
        folder = stack.enter_context(private_folder())
        cluster = StandInCluster(port=port, parent=folder)
        try:
            await stack.enter_async_context(cluster)
        except OSError as error:
            raise DemoError(f"the stand-in cluster cannot listen on port {port}: {error.strerror}") from error
        programs: list[Program] = []
        followers = await stack.enter_async_context(asyncio.TaskGroup())
        stack.push_async_callback(_stop, programs)
        cluster.kubelets.step = KUBELET_STEP
        certificates = CertificateStore(folder, Authority.create("demo CA"))
        cluster.add_node(NODE)
        for spec in INSTANCES:
            cluster.add_instance(spec)
        # The worker first, because it takes longest to load. They all start side by side.
        arguments = worker_arguments(cluster.kubeconfig(WORKER_TOKEN), API_GROUP, certificates)
        programs.append(await Program.start("the worker", arguments, environment))
        for vendor in VENDORS:
            name, arguments = f"the device manager of {vendor.name}", serve_arguments(vendor, certificates)
            programs.append(await Program.start(name, arguments, environment))
        for program in programs:
            followers.create_task(program.follow())
        worker, *device_managers = programs
        for vendor, program in zip(VENDORS, device_managers, strict=True):
            _, device_manager_port = await program.listening()
            cluster.add_device_manager(NODE, vendor.name, vendor.address, device_manager_port)
        session = await stack.enter_async_context(_session(cluster))
        await _register(cluster, session, worker, certificates.authority.pem.certificate)
        chain = Chain(cluster, kubeconfig or folder / "kubeconfig", session)
        await _until_nothing_missing(chain.missing, "not everything answers")
        stack.enter_context(_published(chain.kubeconfig, cluster))
        yield chain


def _remove_leftovers(kubeconfig: Path | None) -> None:
    if kubeconfig is not None and not kubeconfig.is_symlink() and is_ours(kubeconfig):
        kubeconfig.unlink(missing_ok=True)  # an earlier demo's: scripts wait for ours to appear
    remove_leftovers()


@contextmanager
def _published(path: Path, cluster: StandInCluster) -> Iterator[None]:
    """A kubeconfig that exists for as long as the cluster can be reached.

    Raises:
        DemoError: It cannot be written.
    """
    content = (KUBECONFIG_HEADER + cluster.kubeconfig(namespace=NAMESPACE)).encode()
    try:
        write_whole(path, content, replace=False)
    except OSError as error:
        raise DemoError(f"the kubeconfig cannot be written to {path}: {error.strerror}") from error
    try:
        yield
    finally:
        with suppress(OSError):
            if path.read_bytes() == content:  # another demo may have put its own there meanwhile
                path.unlink()


def _session(cluster: StandInCluster) -> aiohttp.ClientSession:
    context = ssl.create_default_context(cafile=str(cluster.ca_file))
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context), trust_env=False)


async def _register(cluster: StandInCluster, session: aiohttp.ClientSession, worker: Program, ca: bytes) -> None:
    """Register the worker's API with the cluster once ``/readyz`` passes, as a Service sends to ready pods only."""
    _, port = await worker.listening()
    url = f"https://127.0.0.1:{port}"
    context = ssl.create_default_context(cadata=ca.decode())

    async def failed_checks() -> str:
        try:
            async with session.get(f"{url}/readyz?verbose", ssl=context, server_hostname=WORKER_SERVICE) as answer:
                return "" if answer.status == 200 else excerpt(await answer.text())
        except aiohttp.ClientError:
            return "it does not answer"

    await _until_nothing_missing(failed_checks, "the worker is not ready")
    cluster.register(API_GROUP, "v1", url, ca, WORKER_SERVICE)


async def _until_nothing_missing(missing: Callable[[], Awaitable[str]], problem: str) -> None:
    """Poll until nothing is missing.

    Raises:
        DemoError: Something still is after 30 s; says the problem and what was missing last.
    """
    last = "it does not answer"
    try:
        async with asyncio.timeout(_READY_DEADLINE_S):
            while True:
                if not (last := await missing()):
                    return
                await asyncio.sleep(_RETRY_PAUSE_S)
    except TimeoutError:
        raise DemoError(f"{problem} after {_READY_DEADLINE_S:.0f} s: {last}") from None


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
