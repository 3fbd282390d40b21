"""A worker's API server with everything around it made up: the cluster, the reader and time."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import structlog
from typing_extensions import override

from devicemanager.errors import FetchError
from devicemanager.model.accelerator import Figure, Reason
from devicemanager.model.figures import DeviceFigure
from devicemanager.model.usage import (
    AcceleratorUsage,
    Resources,
    SourceReport,
    SourceState,
    UsageSample,
    WorkloadUsage,
)
from devicemanager.serving.budget import WORKER
from devicemanager.serving.limits import Limits
from devicemanager.serving.listener import Listener
from devicemanager.serving.probes import PING, Check, Probe
from devicemanager.tls.certificates import Authority, PemPair
from devicemanager.tls.identity import ServerIdentity
from devicemanager.tls.material import Pair, TrustedCAs
from devicemanager.wire.workload_objects import WorkloadObject
from devicemanager.worker.apiserver.authentication import Authenticator
from devicemanager.worker.apiserver.authorization import Authorizer
from devicemanager.worker.apiserver.discovery import DiscoveryDocuments
from devicemanager.worker.apiserver.in_flight import InFlightLimiter
from devicemanager.worker.apiserver.metrics import WorkerMetrics
from devicemanager.worker.apiserver.openapi import OpenApiDocuments
from devicemanager.worker.apiserver.owners import Owners
from devicemanager.worker.apiserver.rendering import Renderer
from devicemanager.worker.apiserver.request_header import FrontProxyTrust
from devicemanager.worker.apiserver.resources import ResourceHandler
from devicemanager.worker.apiserver.reviews import ACCESS_REVIEWS, TOKEN_REVIEWS, ReviewCache
from devicemanager.worker.apiserver.server import ApiServer, Components
from devicemanager.worker.outcomes import Answer, Choose, ListOutcome, ListResult, NotFound, Outcome, Reader, Select
from devicemanager.worker.workloads.instance.workload import INSTANCE
from devicemanager.worker.workloads.workload import Workload
from tests import devices
from tests.timing import START, FakeClock
from tests.tls_peers import running

GROUPS = ("worker.gpustack.ai", "metrics.example.org")
NOW = START
NO_SUMS = Resources()
FRONT_PROXY = "front-proxy-client"
SERVER_NAME = "devicemanager-worker.gpustack-system.svc"


def card(number: int = 1, *, unhealthy: bool | Reason = False, **figures: DeviceFigure) -> AcceleratorUsage:
    """A card of 80 GiB, a quarter of it in use."""
    return AcceleratorUsage(
        id=f"GPU-{number}",
        manufacturer="nvidia",
        index=number,
        name="H100",
        mode="Exclusive",
        figures=devices.published(**figures),
        unhealthy=unhealthy,
    )


def usage(
    name: str = "web",
    namespace: str = "team-a",
    *,
    cpu_nanocores: Figure = 249_000_001,
    memory_mib: Figure = 512,
    disk_mib: Figure = 640,
    cards: Iterable[AcceleratorUsage] = (),
    limits: Resources = NO_SUMS,
    sources: Iterable[SourceReport] = (SourceReport("kubelet", SourceState.OK, 5),),
    labels: Mapping[str, str] | None = None,
    node_name: str | None = "node-a",
) -> WorkloadUsage:
    return WorkloadUsage(
        namespace=namespace,
        name=name,
        uid=f"uid-of-{namespace}-{name}",
        created_at=NOW - timedelta(hours=2),
        labels={"app": name} if labels is None else labels,
        node_name=node_name,
        sample=UsageSample(
            timestamp=NOW - timedelta(seconds=7),
            cpu_usage_nanocores=cpu_nanocores,
            memory_working_set_mib=memory_mib,
            rootfs_used_mib=1,
            ephemeral_storage_used_mib=disk_mib,
            accelerators=tuple(cards),
            requests=NO_SUMS,
            limits=limits,
            sources=tuple(sources),
        ),
    )


@dataclass
class MadeUpReader(Reader):
    """Answers from a mapping, and counts."""

    usages: dict[tuple[str, str], WorkloadUsage] = field(default_factory=dict)
    outcome: Outcome | None = None
    list_result: ListResult | None = None
    warnings: tuple[str, ...] = ()
    reads: list[tuple[str, str]] = field(default_factory=list)
    lists: list[str | None] = field(default_factory=list)
    measured: list[WorkloadUsage] = field(default_factory=list)
    deadlines: list[float | None] = field(default_factory=list)
    hold: asyncio.Event | None = None
    error: Exception | None = None

    def add(self, *usages: WorkloadUsage) -> None:
        self.usages |= {(one.namespace, one.name): one for one in usages}

    @override
    async def read(self, namespace: str, name: str, *, deadline_s: float | None = None) -> Outcome:
        self.reads.append((namespace, name))
        self.deadlines.append(deadline_s)
        await self._held()
        if self.outcome is not None:
            return self.outcome
        found = self.usages.get((namespace, name))
        return NotFound(f"secret words about {namespace}/{name}") if found is None else Answer(found)

    @override
    async def list(
        self,
        namespace: str | None = None,
        *,
        select: Select | None = None,
        choose: Choose | None = None,
        deadline_s: float | None = None,
    ) -> ListResult:
        self.lists.append(namespace)
        self.deadlines.append(deadline_s)
        await self._held()
        if self.list_result is not None:
            return self.list_result
        there = [
            WorkloadObject(one.namespace, one.name, one.uid, labels=one.labels)
            for key, one in sorted(self.usages.items())
            if namespace in (None, key[0])
        ]
        wanted = there if select is None else [one for one in there if select(one)]
        chosen = wanted if choose is None else choose(wanted)
        items = tuple(self.usages[one.namespace, one.name] for one in chosen)
        self.measured.extend(items)
        return ListOutcome(items, self.warnings)

    async def _held(self) -> None:
        if self.hold is not None:
            await self.hold.wait()
        if self.error is not None:
            raise self.error


Allows = Callable[[Mapping[str, Any]], bool]


@dataclass
class MadeUpApi:
    """The API server's reviews, and what was asked of it."""

    tokens: dict[str, dict[str, Any]] = field(default_factory=dict)
    allows: Allows = lambda _spec: True
    failure: FetchError | None = None
    answer: bytes | None = None
    posts: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    hold: asyncio.Event | None = None

    async def post(self, path: str, body: bytes, *, deadline_s: float) -> bytes:
        document = json.loads(body)
        self.posts.append((path, document))
        if self.hold is not None:
            await self.hold.wait()
        if self.failure is not None:
            raise self.failure
        if self.answer is not None:
            return self.answer
        spec = document["spec"]
        if path == TOKEN_REVIEWS:
            user = self.tokens.get(spec["token"])
            status: dict[str, Any] = (
                {"user": {}, "error": "invalid bearer token"}
                if user is None
                else {"authenticated": True, "user": user, "audiences": ["https://kubernetes.default.svc"]}
            )
        else:
            assert path == ACCESS_REVIEWS
            status = {"allowed": self.allows(spec)}
        return json.dumps({**document, "status": status}).encode()

    def specs(self, path: str) -> list[dict[str, Any]]:
        return [document["spec"] for asked, document in self.posts if asked == path]


@dataclass
class MadeUpInstances:
    """The API server's Instances, by path; an error is raised, whatever else is the answer's body."""

    answers: dict[str, bytes | FetchError] = field(default_factory=dict)
    asked: list[tuple[str, Mapping[str, str] | None]] = field(default_factory=list)
    hold: asyncio.Event | None = None

    async def get(
        self,
        path: str,
        params: Mapping[str, str] | None = None,
        *,
        deadline_s: float = 10.0,
    ) -> bytes:
        self.asked.append((path, params))
        if self.hold is not None:
            await self.hold.wait()
        answer = self.answers[path]
        if isinstance(answer, FetchError):
            raise answer
        return answer


@dataclass(frozen=True)
class Received:
    """An answer as a client sees it."""

    status: int
    headers: Sequence[tuple[str, str]]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key.lower() == name.lower()]

    def __getitem__(self, name: str) -> str:
        (value,) = self.all(name)
        return value


@dataclass
class Server:
    """The server, listening."""

    group: str
    clock: FakeClock
    api: MadeUpApi
    reader: MadeUpReader
    identity: ServerIdentity
    listener: Listener
    serving: Authority
    front_proxy: Authority
    folder: Path
    trust: FrontProxyTrust | None
    authorizer: Authorizer
    limiter: InFlightLimiter
    instances: MadeUpInstances

    @property
    def prefix(self) -> str:
        return f"/apis/{self.group}/v1"

    def context(self, client: PemPair | None) -> ssl.SSLContext:
        context = ssl.create_default_context(cadata=self.serving.pem.certificate.decode())
        if client is not None:
            client.write(self.folder, "client")
            context.load_cert_chain(self.folder / "client.crt", self.folder / "client.key")
        return context

    async def connect(
        self, client: PemPair | None = None, context: ssl.SSLContext | None = None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, port = self.listener.addresses[0]
        return await asyncio.open_connection(
            host, port, ssl=context or self.context(client), server_hostname=SERVER_NAME, limit=2**22
        )

    async def proxied(
        self,
        path: str,
        user: str = "viewer",
        groups: Iterable[str] = (),
        headers: Iterable[tuple[str, str]] = (),
        *,
        method: str = "GET",
    ) -> Received:
        """As the front proxy asks for a user."""
        identity = [("X-Remote-User", user), *(("X-Remote-Group", group) for group in groups)]
        return await self.request(path, [*identity, *headers], client=self.front_proxy_pair(), method=method)

    def front_proxy_pair(self) -> PemPair:
        return self.front_proxy.client(FRONT_PROXY)

    async def request(
        self,
        path: str,
        headers: Iterable[tuple[str, str]] = (),
        *,
        client: PemPair | None = None,
        method: str = "GET",
    ) -> Received:
        reader, writer = await self.connect(client)
        try:
            return await exchange(reader, writer, path, headers, method=method)
        finally:
            writer.close()
            with suppress(ConnectionError, ssl.SSLError):
                await writer.wait_closed()


async def exchange(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    path: str,
    headers: Iterable[tuple[str, str]] = (),
    *,
    method: str = "GET",
) -> Received:
    """One request, bytes as given: no client library smooths the headers."""
    lines = [f"{method} {path} HTTP/1.1", "Host: worker", *(f"{name}: {value}" for name, value in headers), "", ""]
    async with asyncio.timeout(10):
        writer.write("\r\n".join(lines).encode("utf-8", "surrogateescape"))
        await writer.drain()
        head = (await reader.readuntil(b"\r\n\r\n")).decode("utf-8", "surrogateescape")
        first, *rest = head.strip().split("\r\n")
        received = [(name, value.strip()) for name, _, value in (line.partition(":") for line in rest)]
        status = int(first.split()[1])
        length = next((int(value) for name, value in received if name.lower() == "content-length"), 0)
        empty = method == "HEAD" or status in (204, 304)
        return Received(status, received, b"" if empty else await reader.readexactly(length))


def trust_of(authority: Authority, names: Sequence[str] = (FRONT_PROXY,)) -> FrontProxyTrust:
    return FrontProxyTrust(
        ca_pem=authority.pem.certificate.decode(),
        allowed_names=tuple(names),
        username_headers=("X-Remote-User",),
        uid_headers=("X-Remote-Uid",),
        group_headers=("X-Remote-Group",),
        extra_prefixes=("x-remote-extra-",),
    )


@asynccontextmanager
async def running_server(
    folder: Path,
    group: str = GROUPS[0],
    *,
    max_in_flight: int = 400,
    workload: Workload = INSTANCE,
    reviews: int = 256,
    limits: Limits = WORKER.limits,
    ready: Sequence[Check] = (PING,),
    trusted: bool = True,
) -> AsyncIterator[Server]:
    """A server on a free port, for as long as the block runs."""
    log = structlog.get_logger()
    clock, api, reader, instances = FakeClock(), MadeUpApi(), MadeUpReader(), MadeUpInstances()
    serving, front_proxy = Authority.create("serving CA"), Authority.create("front proxy CA")
    pair = serving.serving([SERVER_NAME])
    identity = ServerIdentity(Pair.parse(pair.certificate, pair.key), clock=clock, log=log)
    limiter, kinds = InFlightLimiter(max_in_flight), [workload.resource]
    metrics = WorkerMetrics(lambda: identity.not_after, lambda: limiter.in_flight, kinds)
    async with AsyncExitStack() as stack:
        server: Server
        components = Components(
            discovery=DiscoveryDocuments(group, kinds),
            openapi=OpenApiDocuments(group, [workload]),
            authenticator=Authenticator(
                lambda: server.trust,
                api,
                await stack.enter_async_context(ReviewCache(clock, in_flight=reviews)),
                clock,
            ),
            authorizer=Authorizer(api, await stack.enter_async_context(ReviewCache(clock, in_flight=reviews))),
            handlers=[
                await stack.enter_async_context(
                    ResourceHandler(reader, Renderer(group, workload), limiter, clock, metrics.observe_usages)
                )
            ],
            owners=Owners(instances, group, kinds),
            metrics=metrics,
            clock=clock,
        )
        probes = {"/healthz": Probe("healthz", [PING], log), "/livez": Probe("livez", [PING], log)}
        probes["/readyz"] = Probe("readyz", ready, log)
        probes["/readyz/ping"] = Probe("readyz/ping", [PING], log)
        api_server = ApiServer(components, probes)
        listener = Listener(api_server.application(), [("127.0.0.1", 0)], identity, limits=limits, log=log)
        server = Server(
            group,
            clock,
            api,
            reader,
            identity,
            listener,
            serving,
            front_proxy,
            folder,
            None,
            components.authorizer,
            limiter,
            instances,
        )
        if trusted:
            server.trust = trust_of(front_proxy)
            identity.trust(TrustedCAs.parse(front_proxy.pem.certificate))
        await stack.enter_async_context(running(listener, 0.2))
        yield server
