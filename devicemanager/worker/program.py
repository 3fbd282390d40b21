"""The worker as a program: an aggregated API server with all its sources, from its start to a clean end.

Discovery is served from the moment the socket listens. Everything that depends on others, the API server included,
comes up beside it and is told by readiness.
"""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import Final

import structlog
from structlog.typing import FilteringBoundLogger

from devicemanager.clock import Clock, SystemClock
from devicemanager.errors import DocumentError, FetchError, SettingsError
from devicemanager.serving import descriptors
from devicemanager.serving.listener import Listener
from devicemanager.serving.probes import PING, Check, Probe, Shutdown
from devicemanager.settings.worker import WorkerSettings
from devicemanager.tls.identity import ClientIdentity, ServerIdentity, self_signed_pair
from devicemanager.tls.material import Pair, PairFiles, TrustedCAs
from devicemanager.worker.apiserver.authentication import Authenticator, TokenVerdicts, is_front_proxy
from devicemanager.worker.apiserver.authorization import AccessVerdicts, Authorizer, ReviewFailedError
from devicemanager.worker.apiserver.discovery import DiscoveryDocuments
from devicemanager.worker.apiserver.front_proxy import FrontProxy
from devicemanager.worker.apiserver.in_flight import InFlightLimiter
from devicemanager.worker.apiserver.limits import DESCRIPTORS_RESERVED, LIMITS
from devicemanager.worker.apiserver.metrics import WorkerMetrics
from devicemanager.worker.apiserver.openapi import OpenApiDocuments
from devicemanager.worker.apiserver.owners import Owners
from devicemanager.worker.apiserver.registration import check_registration, parse_service
from devicemanager.worker.apiserver.rendering import Renderer
from devicemanager.worker.apiserver.resources import ResourceHandler
from devicemanager.worker.apiserver.server import ApiServer, Components
from devicemanager.worker.apiserver.verdicts import OverloadedError, Verdicts
from devicemanager.worker.connected import ReadOptions, ReadSide, connected
from devicemanager.worker.credentials import SERVICE_ACCOUNT, CredentialsSource, Kubeconfig, ServiceAccount
from devicemanager.worker.direct_kubelets import KubeletAccess
from devicemanager.worker.sources import Ages
from devicemanager.worker.workloads.registry import WORKLOADS

_RETRY_S: Final = 5.0
"""Between two attempts at what must succeed once: the first access review, the look at the APIService."""


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker that listens.

    Attributes:
        listener: Its address, once it runs.
        shutdown: Makes it unready.
        ready: Says whether it is.
    """

    listener: Listener
    shutdown: Shutdown
    ready: Probe


async def run(settings: WorkerSettings, *, clock: Clock | None = None) -> int:
    """Serve until SIGTERM or SIGINT; a second one cuts the shutdown delay short. Returns the exit code.

    Raises:
        SettingsError: What the person running us must change.
    """
    log = structlog.get_logger().bind()
    stop = asyncio.Event()
    hurry = asyncio.Event()
    try:
        with _signals(lambda: (hurry if stop.is_set() else stop).set()):
            async with running(settings, clock or SystemClock(), log) as worker:
                await stop.wait()
                log.info("worker_stopping", delay_s=settings.shutdown_delay)
                worker.shutdown.begin()
                worker.listener.retire()
                with suppress(TimeoutError):
                    async with asyncio.timeout(settings.shutdown_delay):
                        await hurry.wait()
    except BaseExceptionGroup as group:
        raise _refusal(group) or group from None
    return 0


@asynccontextmanager
async def running(settings: WorkerSettings, clock: Clock, log: FilteringBoundLogger) -> AsyncIterator[Worker]:
    """A worker that serves for as long as the block runs, and then drains.

    Raises:
        SettingsError: What the person running us must change.
    """
    identity = ServerIdentity(await _pair(settings), clock=clock, log=log)
    peers = _device_manager_identity(settings, clock, log)
    kubelets = _kubelet_identity(settings, clock, log)
    options = ReadOptions(
        device_manager_tls=None if peers is None else lambda: peers.context,
        device_manager_namespace=settings.device_manager_namespace,
        device_manager_server_name=settings.device_manager_server_name,
        kubelets=None if kubelets is None else _kubelet_access(settings, kubelets),
        ages=Ages(settings.kubelet_max_age, settings.snapshot_max_age),
    )
    async with AsyncExitStack() as stack:
        side = await stack.enter_async_context(connected(_credentials(settings), options, clock=clock))
        registered = await _registered(settings, side)
        components, front_proxy = await _components(settings, side, identity, clock, stack)
        shutdown = Shutdown()
        ready = [
            PING,
            Check("front-proxy", lambda: None if front_proxy.trust is not None else front_proxy.problem),
            Check(
                "access-review", lambda: None if components.authorizer.reached else "no access review answered yet"
            ),
            shutdown.check,
        ]
        probes = _probes({"healthz": [PING], "livez": [PING], "readyz": ready}, log)
        server = ApiServer(components, probes)
        address = (settings.bind_address or "", settings.secure_port)
        listener = Listener(
            server.application(),
            [address],
            identity,
            limits=descriptors.fitted(LIMITS, DESCRIPTORS_RESERVED, log),
            verified=lambda certificate: is_front_proxy(certificate, front_proxy.trust, clock.now()),
            log=log,
        )
        try:
            await stack.enter_async_context(listener.running(settings.shutdown_timeout))
        except OSError as error:
            raise SettingsError([f"cannot listen on {error.strerror}"]) from error
        log.info(
            "worker_listening",
            address=listener.addresses[0][0],
            port=listener.addresses[0][1],
            api_group=settings.api_group,
        )
        async with asyncio.TaskGroup() as background:
            tasks = [
                background.create_task(front_proxy.follow()),
                background.create_task(identity.follow()),
                background.create_task(_reach_reviews(components.authorizer)),
            ]
            tasks += [
                background.create_task(followed.follow()) for followed in (peers, kubelets) if followed is not None
            ]
            if not registered:
                tasks.append(background.create_task(_register_later(settings, side)))
            try:
                yield Worker(listener, shutdown, probes["/readyz"])
            finally:
                for task in tasks:
                    task.cancel()


async def _components(
    settings: WorkerSettings, side: ReadSide, identity: ServerIdentity, clock: Clock, stack: AsyncExitStack
) -> tuple[Components, FrontProxy]:
    limiter = InFlightLimiter(settings.max_reads)
    resources = [workload.resource for workload in WORKLOADS]
    metrics = WorkerMetrics(
        lambda: identity.not_after,
        lambda: limiter.in_flight,
        resources,
        lambda: {
            "kubelet": side.sources.kubelets.statistics,
            "metrics.k8s.io": side.sources.metrics.statistics,
            "device-manager": side.sources.snapshots.statistics,
        },
    )
    front_proxy = FrontProxy(side.cluster, lambda pem: identity.trust(TrustedCAs.parse(pem.encode())))
    tokens: TokenVerdicts = await stack.enter_async_context(Verdicts(clock))
    access: AccessVerdicts = await stack.enter_async_context(Verdicts(clock))
    handlers = [
        await stack.enter_async_context(
            ResourceHandler(
                side.readers[workload.resource.plural],
                Renderer(settings.api_group, workload),
                limiter,
                clock,
                metrics.observe_usages,
            )
        )
        for workload in WORKLOADS
    ]
    components = Components(
        discovery=DiscoveryDocuments(settings.api_group, resources),
        openapi=OpenApiDocuments(settings.api_group, WORKLOADS),
        authenticator=Authenticator(lambda: front_proxy.trust, side.cluster, tokens, clock),
        authorizer=Authorizer(side.cluster, access),
        handlers=handlers,
        owners=Owners(side.cluster, settings.api_group, resources),
        metrics=metrics,
        clock=clock,
    )
    return components, front_proxy


def _probes(roots: Mapping[str, Sequence[Check]], log: FilteringBoundLogger) -> dict[str, Probe]:
    """By path: each root with all its checks, and each check alone below it."""
    probes = {}
    for root, checks in roots.items():
        probes[f"/{root}"] = Probe(root, checks, log)
        probes |= {f"/{root}/{check.name}": Probe(f"{root}/{check.name}", [check], log) for check in checks}
    return probes


def _credentials(settings: WorkerSettings) -> CredentialsSource:
    return ServiceAccount() if settings.kubeconfig is None else Kubeconfig(settings.kubeconfig)


async def _pair(settings: WorkerSettings) -> Pair | PairFiles:
    if settings.cert_dir is not None:
        return PairFiles.in_directory(settings.cert_dir)
    return await self_signed_pair(settings.san)


def _device_manager_identity(
    settings: WorkerSettings, clock: Clock, log: FilteringBoundLogger
) -> ClientIdentity | None:
    if not settings.reads_device_managers:
        return None
    if settings.device_manager_insecure_skip_verify:
        log.warning("device_managers_not_verified", namespace=settings.device_manager_namespace)
    folder = settings.device_manager_client_cert_dir
    return ClientIdentity(
        settings.device_manager_ca_file,
        None if folder is None else PairFiles.in_directory(folder),
        verify=not settings.device_manager_insecure_skip_verify,
        clock=clock,
        log=log,
    )


def _kubelet_identity(settings: WorkerSettings, clock: Clock, log: FilteringBoundLogger) -> ClientIdentity | None:
    if not settings.reads_kubelets_directly:
        return None
    if settings.kubelet_insecure_skip_verify:
        log.warning("kubelets_not_verified")
        return ClientIdentity(None, verify=False, clock=clock, log=log)
    authority = settings.kubelet_certificate_authority or SERVICE_ACCOUNT / "ca.crt"
    return ClientIdentity(authority, clock=clock, log=log)


def _kubelet_access(settings: WorkerSettings, identity: ClientIdentity) -> KubeletAccess:
    return KubeletAccess(
        tls=lambda: identity.context,
        address_types=settings.kubelet_preferred_address_types,
        server_name=settings.kubelet_server_name,
    )


async def _registered(settings: WorkerSettings, side: ReadSide) -> bool:
    """Whether the group is known to be ours to serve; False when the cluster cannot be asked now.

    Raises:
        SettingsError: It is somebody else's.
    """
    if settings.service is None or settings.take_over_api_service:
        return True
    try:
        await check_registration(side.cluster, settings.api_group, parse_service(settings.service))
    except (FetchError, DocumentError) as error:
        structlog.get_logger().warning("api_service_unknown", error=str(error))
        return False
    return True


async def _register_later(settings: WorkerSettings, side: ReadSide) -> None:
    """Ask until there is an answer: a cluster that is down when we start must not decide whose the group is."""
    registered = False
    while not registered:
        await asyncio.sleep(_RETRY_S)
        registered = await _registered(settings, side)


async def _reach_reviews(authorizer: Authorizer) -> None:
    """Try access reviews until one is answered, so that readiness says whether we may ask for them."""
    while not authorizer.reached:
        try:
            await authorizer.probe()
        except (ReviewFailedError, OverloadedError) as error:
            structlog.get_logger().warning("access_review_failed", reason=str(error))
            await asyncio.sleep(_RETRY_S)


def _refusal(group: BaseExceptionGroup) -> SettingsError | None:
    """What the person running us must change, where that is all that ended the program."""
    refused, rest = group.split(SettingsError)
    if refused is None or rest is not None:
        return None
    problems: list[str] = []
    pending: list[BaseException] = [refused]
    while pending:
        error = pending.pop()
        if isinstance(error, BaseExceptionGroup):
            pending.extend(error.exceptions)
        elif isinstance(error, SettingsError):
            problems.extend(error.problems)
    return SettingsError(problems)


@contextmanager
def _signals(told: Callable[[], object]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told)
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
