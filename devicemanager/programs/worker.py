"""The worker as a program: an aggregated API server with all its sources, from its start to a clean end.

Discovery is served from the moment the socket listens. Everything that depends on others, the API server included,
starts in the background, and readiness says whether it works.
"""

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final

import structlog
from structlog.typing import FilteringBoundLogger

from devicemanager import logs
from devicemanager.clock import Clock, SystemClock
from devicemanager.errors import DocumentError, FetchError
from devicemanager.programs import worker_certificates
from devicemanager.programs.memory import budget
from devicemanager.programs.server_identity import server_identity
from devicemanager.rules import retries
from devicemanager.serving import descriptors
from devicemanager.serving.budget import WORKER
from devicemanager.serving.lifecycle import Part, Server, run_until_signal, serving
from devicemanager.serving.listener import Listener
from devicemanager.serving.memory import collect_garbage_rarely, collect_when_idle
from devicemanager.serving.probes import PING, Check, Probe, Shutdown
from devicemanager.serving.process_metrics import ProcessMetrics
from devicemanager.settings.process import api_server_environment
from devicemanager.settings.worker import WorkerSettings
from devicemanager.tls.identity import ServerIdentity
from devicemanager.tls.material import TrustedCAs
from devicemanager.transport.document_limits import WORKER_DOCUMENTS
from devicemanager.transport.failures import within
from devicemanager.worker.apiserver.authentication import Authenticator, TokenReviews, is_front_proxy
from devicemanager.worker.apiserver.authorization import AccessReviews, Authorizer, ReviewFailedError
from devicemanager.worker.apiserver.discovery import DiscoveryDocuments
from devicemanager.worker.apiserver.front_proxy import FrontProxy
from devicemanager.worker.apiserver.health_metrics import CertificateMetrics, SourceMetrics
from devicemanager.worker.apiserver.in_flight import InFlightLimiter
from devicemanager.worker.apiserver.metrics import WorkerMetrics
from devicemanager.worker.apiserver.openapi import OpenApiDocuments
from devicemanager.worker.apiserver.owners import Owners
from devicemanager.worker.apiserver.registration import check_registration
from devicemanager.worker.apiserver.rendering import Renderer
from devicemanager.worker.apiserver.resources import ResourceHandler
from devicemanager.worker.apiserver.reviews import ReviewCache
from devicemanager.worker.apiserver.server import ApiServer, Components
from devicemanager.worker.client import Client, ReadOptions, connect
from devicemanager.worker.credentials import SERVICE_ACCOUNT, CredentialsSource, Kubeconfig, ServiceAccount
from devicemanager.worker.single_flight import OverloadedError
from devicemanager.worker.sources import Ages
from devicemanager.worker.workloads.registry import WORKLOADS

DESCRIPTORS_RESERVED: Final = 3200
"""For three pools of 1,024 connections to peers, and files that are read."""

_FIRST_LOOK_S: Final = 2.0
"""For finding out before anything is served whether the group is somebody else's. An API server that takes longer
is asked again later: liveness must answer whether there is one or not."""

_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 5.0
"""Between two attempts at what must succeed once: the first access review, the look at the APIService."""

_LATER_LOOK_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Worker(Server):
    """A worker that listens.

    Attributes:
        ready: Says whether it is ready.
    """

    ready: Probe


async def run(settings: WorkerSettings) -> int:
    """Serve until a signal that ends programs; a second one cuts the shutdown delay short. Returns the exit code.

    Raises:
        SettingsError: What the person running us must change.
    """
    log = structlog.get_logger().bind()
    collect_garbage_rarely()
    server = running(settings, SystemClock(), log)
    return await run_until_signal(server, delay_s=settings.shutdown_delay, log=log)


@asynccontextmanager
async def running(settings: WorkerSettings, clock: Clock, log: FilteringBoundLogger) -> AsyncIterator[Worker]:
    """A worker that serves for as long as the block runs, and then drains.

    Raises:
        SettingsError: What the person running us must change.
    """
    admitted = budget(WORKER, settings)
    limits = descriptors.fit_limits(admitted.limits, DESCRIPTORS_RESERVED, log)
    peers = worker_certificates.device_manager_identity(settings, clock, log)
    kubelets = worker_certificates.kubelet_identity(settings, clock, log)
    options = ReadOptions(
        device_manager_tls=None if peers is None else lambda: peers.context,
        device_manager_namespace=settings.device_manager_namespace,
        device_manager_server_name=settings.device_manager_server_name,
        kubelets=None if kubelets is None else worker_certificates.kubelet_access(settings, kubelets),
        ages=Ages(settings.kubelet_max_age, settings.snapshot_max_age),
        documents=admitted.documents or WORKER_DOCUMENTS,
    )
    async with AsyncExitStack() as stack:
        side = await stack.enter_async_context(connect(_credentials(settings), options, clock=clock))
        # After the credentials: where there are none, no certificate is made for nothing.
        identity = await server_identity(settings, None, clock, log)
        registered = await _registered(settings, side, _FIRST_LOOK_S)
        serving_ca = worker_certificates.serving_ca(settings, clock, log)
        clients = {"device-managers": peers, "kubelets": kubelets, "serving": serving_ca}
        certificates = CertificateMetrics(
            lambda: None if peers is None else peers.not_after,
            lambda: worker_certificates.cas_not_after(identity, clients),
        )
        # Of what peers without a verified certificate may have under way, some is kept for probes.
        limiter = InFlightLimiter(min(settings.max_reads, limits.connections - limits.reserved_for_probes))
        components, front_proxy = await _components(settings, side, identity, certificates, limiter, clock, stack)
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
            limits=limits,
            verified=lambda certificate: is_front_proxy(certificate, front_proxy.trust, clock.now()),
            log=log,
        )
        followers: dict[str, Part] = {
            "front proxy": front_proxy.follow,
            "certificates": identity.follow,
            "garbage": lambda: collect_when_idle(lambda: limiter.in_flight == 0),
        }
        if peers is not None:
            followers["device managers' certificates"] = peers.follow
        if kubelets is not None:
            followers["kubelets' certificates"] = kubelets.follow
        if serving_ca is not None:
            followers["serving CA"] = serving_ca.follow
        startup: list[Part] = [lambda: _reach_reviews(components.authorizer)]
        if not registered:
            startup.append(lambda: _register_later(settings, side))
        worker = Worker(listener, shutdown, probes["/readyz"])
        await stack.enter_async_context(
            serving(worker, followers, startup=startup, drain_s=settings.shutdown_timeout, log=log)
        )
        yield worker


async def _components(
    settings: WorkerSettings,
    side: Client,
    identity: ServerIdentity,
    certificates: CertificateMetrics,
    limiter: InFlightLimiter,
    clock: Clock,
    stack: AsyncExitStack,
) -> tuple[Components, FrontProxy]:
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
        [ProcessMetrics(logs.lines_dropped), SourceMetrics(side.sources.health), certificates],
    )
    front_proxy = FrontProxy(
        side.cluster, lambda pem: identity.trust(TrustedCAs.parse(pem.encode())), lister=side.lister
    )
    tokens: TokenReviews = await stack.enter_async_context(ReviewCache(clock))
    access: AccessReviews = await stack.enter_async_context(ReviewCache(clock))
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
    if settings.kubeconfig is None:
        return ServiceAccount(api_server_environment(), SERVICE_ACCOUNT)
    return Kubeconfig(settings.kubeconfig)


async def _registered(settings: WorkerSettings, side: Client, deadline_s: float) -> bool:
    """Whether no other backend serves the group; False while the API server does not answer.

    Raises:
        SettingsError: Another backend serves it.
    """
    if settings.service is None or settings.take_over_api_service:
        return True
    try:
        async with within(deadline_s):
            await check_registration(
                side.cluster.get, settings.api_group, settings.service, settings.api_service_owner
            )
    except (FetchError, DocumentError) as error:
        structlog.get_logger().warning("api_service_unknown", error=str(error))
        return False
    return True


async def _register_later(settings: WorkerSettings, side: Client) -> None:
    """Retry until the API server answers who serves the group; a failure at the start decides nothing."""
    for failures in itertools.count(1):
        await asyncio.sleep(_pause_s(failures))
        if await _registered(settings, side, _LATER_LOOK_S):
            return


async def _reach_reviews(authorizer: Authorizer) -> None:
    """Try access reviews until one is answered, for readiness."""
    said = ""
    for failures in itertools.count(1):
        try:
            await authorizer.probe()
        except (ReviewFailedError, OverloadedError) as error:
            if said != (said := str(error)):
                structlog.get_logger().warning("access_review_failed", reason=said)
        if authorizer.reached:
            return
        await asyncio.sleep(_pause_s(failures))


def _pause_s(failures: int) -> float:
    return retries.backoff_s(failures, random.random(), first_s=_FIRST_PAUSE_S, longest_s=_LONGEST_PAUSE_S)  # noqa: S311
