"""The read side's peers: the stand-in cluster, device managers with a mind of their own, and virtual time."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer
from blockbuster import BlockBuster, blockbuster_ctx
from typing_extensions import override

from devicemanager.clock import SystemClock
from devicemanager.demo.cluster.stand_in import WORKER_TOKEN
from devicemanager.rules import retries
from devicemanager.tls.certificates import Authority
from devicemanager.worker.cluster import ClusterClient
from devicemanager.worker.credentials import Kubeconfig
from tests.cluster.stand_in import StandInCluster

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
StartPeer = Callable[[Handler], Awaitable[TestServer]]


@pytest.fixture(autouse=True)
def blocking_calls_fail() -> Iterator[BlockBuster]:
    """A blocking call made on the loop by the worker's own code fails the test."""
    # Plugins are asked on a loop of their own in a thread of its own, and may block that.
    with blockbuster_ctx(
        scanned_modules=["devicemanager.transport", "devicemanager.worker"],
        excluded_modules=["devicemanager.worker.credential_plugins"],
    ) as blockbuster:
        yield blockbuster


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Failures that may have passed are tried again at once: that they wait is shown in virtual time."""
    monkeypatch.setattr(retries, "FIRST_S", 0.002)


class SkewedClock(SystemClock):
    """The machine's time, read on a wall clock that is wrong by ``skew``."""

    def __init__(self, skew: timedelta) -> None:
        self._skew = skew

    @override
    def now(self) -> datetime:
        return super().now() + self._skew


@pytest_asyncio.fixture
async def start_peer() -> AsyncIterator[StartPeer]:
    """Starts a plain-HTTP peer that answers any request as the given handler does."""
    servers: list[TestServer] = []

    async def start(handler: Handler) -> TestServer:
        app = web.Application()
        app.router.add_route("*", "/{anything:.*}", handler)
        server = TestServer(app)
        servers.append(server)
        await server.start_server(shutdown_timeout=0.1)
        return server

    yield start
    for server in servers:
        await server.close()


@pytest.fixture
def kubeconfig(stand_in_cluster: StandInCluster, tmp_path: Path) -> Path:
    """The worker's own access to the stand-in cluster, as a file."""
    return stand_in_cluster.write_kubeconfig(tmp_path / "kubeconfig", WORKER_TOKEN)


@pytest_asyncio.fixture
async def cluster(kubeconfig: Path) -> AsyncIterator[ClusterClient]:
    """A client of the stand-in cluster with the worker's own rights."""
    async with ClusterClient(Kubeconfig(str(kubeconfig)), SystemClock()) as client:
        yield client


SERVER_NAME = "device-manager.gpustack-system.svc"


class DeviceManagerPeer:
    """A device manager over real mutual TLS that answers whatever its handler says.

    Attributes:
        authority: Signs its certificate and those of its clients.
        answer: Replace it to misbehave.
        requests: Paths asked for.
        connections: On which, request by request.
    """

    def __init__(
        self, folder: Path, name: str = SERVER_NAME, authority: Authority | None = None, days: int = 365
    ) -> None:
        self.authority = authority or Authority.create("device managers")
        self.requests: list[str] = []
        self.answer: Handler = self.snapshot
        self.document: dict[str, Any] = {}
        self.headers: dict[str, str] = {"Age": "0"}
        self.handshakes = 0
        self.connections: list[object] = []
        self._days = days
        self._folder = folder
        self._name = name
        self._runner: web.AppRunner | None = None
        self.port = 0

    async def start(self) -> None:
        """Listen on a free port of loopback."""
        await asyncio.to_thread(self._write)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._folder / "serving.crt", self._folder / "serving.key")
        context.load_verify_locations(self._folder / "ca.crt")
        context.verify_mode = ssl.CERT_REQUIRED
        app = web.Application()
        app.router.add_route("*", "/{anything:.*}", self._handle)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        self._runner = runner
        self.port = runner.addresses[0][1]

    async def stop(self) -> None:
        """Close everything."""
        if self._runner is not None:
            await self._runner.cleanup()

    def client_context(self) -> ssl.SSLContext:
        """What a worker asks with."""
        context = ssl.create_default_context(cafile=str(self._folder / "ca.crt"))
        context.load_cert_chain(self._folder / "worker.crt", self._folder / "worker.key")
        return context

    async def snapshot(self, request: web.Request) -> web.StreamResponse:
        """The right answer."""
        body = json.dumps(self.document).encode()
        return web.Response(body=body, content_type="application/json", headers=self.headers)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request.path)
        self.connections.append(request.transport)
        return await self.answer(request)

    def _write(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        self.authority.pem.write(self._folder, "ca")
        self.authority.serving([self._name], days=self._days).write(self._folder, "serving")
        self.authority.client("worker").write(self._folder, "worker")


def card(uid: str, **figures: Any) -> dict[str, Any]:
    """One card of a snapshot, as the existing operator writes it."""
    return {
        "id": uid,
        "memory": 81920,
        "memoryUsage": 20480,
        "memoryUtilization": 25,
        "coresUtilization": 40,
        "temperature": 51,
        "powerUsage": 233,
        "unhealthy": False,
        **figures,
    }


def snapshot_document(*cards: dict[str, Any], manufacturer: str = "nvidia", **envelope: Any) -> dict[str, Any]:
    """A snapshot of one manufacturer, measured now unless the envelope says otherwise."""
    timestamp = envelope.pop("timestamp", datetime.now(UTC).isoformat())
    return {
        "timestamp": timestamp,
        "periodSeconds": 15,
        "groups": [{"manufacturer": manufacturer, "timestamp": timestamp, "accelerators": list(cards)}],
        **envelope,
    }


@pytest_asyncio.fixture
async def device_manager(tmp_path: Path) -> AsyncIterator[DeviceManagerPeer]:
    """A device manager for nvidia that carries one card, ``GPU-1``."""
    peer = DeviceManagerPeer(tmp_path / "device-manager")
    peer.document = snapshot_document(card("GPU-1"))
    await peer.start()
    yield peer
    await peer.stop()
