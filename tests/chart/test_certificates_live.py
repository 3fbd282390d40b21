"""The certificates that the chart makes, in the programs' hands: who gets in, who does not, and a rotation."""

import asyncio
import base64
import contextlib
import json
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
import structlog
from structlog.testing import capture_logs

from devicemanager.clock import SystemClock
from devicemanager.demo.cluster.objects import Grant, InstanceSpec
from devicemanager.demo.cluster.stand_in import ADMIN_TOKEN
from devicemanager.errors import FetchError
from devicemanager.programs import worker as program
from devicemanager.settings.loading import load
from devicemanager.settings.worker import WorkerSettings
from devicemanager.tls.certificates import Authority, PemPair
from devicemanager.tls.identity import ClientIdentity
from devicemanager.tls.material import Pair, PairFiles, server_context
from devicemanager.worker.client import Client, ReadOptions, connect
from devicemanager.worker.credentials import Kubeconfig
from devicemanager.worker.sources import Ages
from tests.chart.api import serving as objects_held
from tests.chart.binaries import Helm
from tests.chart.conftest import NAMESPACE, Document, Render
from tests.chart.installed import Installed, the
from tests.chart.signing import CLIENT, SERVER, signed
from tests.chart.test_pages import first_command
from tests.chart.upgrades import let_time_pass, name, pem, upgrade
from tests.cluster.stand_in import StandInCluster
from tests.timing import until

# Seconds on an idle machine; on a busy one the readers still get their turns.
pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(180)]

VALUES: Mapping[str, Any] = {
    "manufacturers": {"nvidia": {"enabled": False}, "simulated": {"enabled": True, "extraArgs": ["--no-pci-check"]}}
}
PLACE = ("node-a", "simulated")
WORKER_NAME = "devicemanager-worker"
DEVICE_MANAGER_NAME = f"node-devicemanager-device-manager.{NAMESPACE}.svc"

READERS = 4
A_SECOND = 200
"""Reads, all readers together."""

FOLLOW_S = 0.05
AS_INSTALLED = f"""\
import sys
from devicemanager import cli
from devicemanager.tls import identity as tls
tls._ReloadingIdentity.follow.__defaults__ = ({FOLLOW_S},)
sys.exit(cli.main())
"""
"""The program itself, but for how often it looks at its files: a minute is too long for a test."""


@dataclass
class DeviceManager:
    """``devicemanager serve`` as the chart starts it, as a process."""

    installed: Installed
    lines: list[dict[str, Any]] = field(default_factory=list)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["DeviceManager"]:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-c",
            AS_INSTALLED,
            *self.installed.on_loopback("--log-format=json", "--log-level=debug"),
            env={"DEVICEMANAGER_NODE_NAME": PLACE[0]},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.TaskGroup() as tasks:
                reading = tasks.create_task(self._read(process))
                await until(lambda: (self.events("server_listening") and self.sampling) or reading.done())
                assert not reading.done(), self.lines
                yield self
                process.terminate()
                await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            self.lines.append(json.loads(line))

    def events(self, event: str) -> list[dict[str, Any]]:
        """The lines of one event so far."""
        return [line for line in self.lines if line["event"] == event]

    @property
    def sampling(self) -> bool:
        """Whether its cards have been read."""
        return any(line["state"] == "ok" for line in self.events("collector_state_changed"))

    @property
    def port(self) -> int:
        """Where it listens."""
        port: int = self.events("server_listening")[0]["port"]
        return port


@dataclass
class Site:
    """What is installed on this machine, and the cluster that says where it is.

    Attributes:
        authority: The chart's own.
    """

    cluster: StandInCluster
    device_manager: DeviceManager
    worker: Installed
    kubeconfig: Path
    authority: PemPair

    def announce(self, port: int) -> None:
        """A device manager's pod that listens there."""
        self.cluster.add_device_manager(*PLACE, "127.0.0.1", port, NAMESPACE)

    def identity(self) -> ClientIdentity:
        """Who the worker is to device managers, from the files of its pod."""
        return ClientIdentity(
            self.worker.path("--device-manager-ca-file"),
            PairFiles.in_directory(self.worker.path("--device-manager-client-cert-dir")),
            clock=SystemClock(),
            log=structlog.get_logger(),
        )

    @asynccontextmanager
    async def reading(self, context: Callable[[], ssl.SSLContext]) -> AsyncIterator[Client]:
        """The worker's read side, as it is configured by the chart."""
        options = ReadOptions(
            device_manager_tls=context,
            device_manager_namespace=self.worker.flag("--device-manager-namespace"),
            device_manager_server_name=self.worker.flag("--device-manager-server-name"),
            ages=Ages(snapshot_s=0),
        )
        async with connect(Kubeconfig(str(self.kubeconfig)), options) as side:
            yield side


def site_of(documents: Sequence[Document], authority: Document, cluster: StandInCluster, folder: Path) -> Site:
    return Site(
        cluster,
        DeviceManager(Installed(documents, the(documents, "DaemonSet", "-simulated"), folder / "device-manager")),
        Installed(documents, the(documents, "Deployment", "-worker"), folder / "worker"),
        cluster.write_kubeconfig(folder / "kubeconfig", ADMIN_TOKEN),
        PemPair(pem(authority, "issuer.crt"), pem(authority, "issuer.key")),
    )


@pytest.fixture
def site(render: Render, stand_in_cluster: StandInCluster, tmp_path: Path) -> Site:
    """The chart installed once, nothing running."""
    documents = render(**VALUES)
    return site_of(documents, the(documents, "Secret", "-ca"), stand_in_cluster, tmp_path)


@pytest_asyncio.fixture
async def device_manager(site: Site) -> AsyncIterator[DeviceManager]:
    """Its device manager, running and found."""
    async with site.device_manager.running() as running:
        site.announce(running.port)
        yield running


async def why_not(site: Site, context: ssl.SSLContext) -> tuple[str, str, str]:
    """State and message of a read that fails, and what the worker's log says of it."""
    async with site.reading(lambda: context) as side:
        with capture_logs() as logged, pytest.raises(FetchError) as caught:
            await side.sources.snapshots.read(PLACE, deadline_s=5)
    (line,) = (entry for entry in logged if entry["event"] == "source_failed")
    assert (line["source"], line["node"]) == ("device-manager/simulated", PLACE[0])
    return str(caught.value.state), caught.value.message, str(line["error"])


async def test_the_worker_as_installed_reads_the_device_manager_as_installed(
    site: Site, device_manager: DeviceManager, tmp_path: Path
) -> None:
    cluster = site.cluster
    cluster.add_node(PLACE[0])
    cluster.add_instance(InstanceSpec("team-a", "web", PLACE[0], [Grant("simulated", "SIM-0")]))
    _, *arguments = site.worker.on_loopback(f"--kubeconfig={site.kubeconfig}")
    settings = load(WorkerSettings, arguments, {})
    context = ssl.create_default_context(cafile=str(site.worker.path("--cert-dir") / "ca.crt"))
    async with (
        program.running(settings, SystemClock(), structlog.get_logger().bind()) as worker,
        aiohttp.ClientSession() as session,
    ):
        url = f"https://127.0.0.1:{worker.listener.addresses[0][1]}/apis/worker.gpustack.ai/v1"
        answer = await session.get(
            f"{url}/namespaces/team-a/instances/web/metrics",
            headers={"Authorization": f"Bearer {ADMIN_TOKEN}"},
            ssl=context,
            server_hostname=f"node-devicemanager-worker.{NAMESPACE}.svc",
        )
        sample = (await answer.json())["sample"]

    assert {source["name"]: source["state"] for source in sample["sources"]} == {
        "kubelet": "ok",
        "device-manager/simulated": "ok",
    }
    (card,) = sample["accelerators"]
    assert card["id"] == "SIM-0"
    assert card["memoryMiB"] > 0
    assert device_manager.events("handshake_refused") == device_manager.events("client_refused") == []


async def test_the_first_command_of_the_page_for_trouble_shows_the_cards(
    site: Site, device_manager: DeviceManager
) -> None:
    """As it is printed, but for kubectl, the name that DNS would resolve, and where the pod's files lie here."""
    program, *arguments = first_command()[6:]
    assert program == "devicemanager"
    url, namespace = f"https://127.0.0.1:{device_manager.port}", f".{NAMESPACE}.svc"
    here = [
        url if word.startswith("https://") else DEVICE_MANAGER_NAME if word.endswith(namespace) else word
        for word in arguments
    ]
    moved = [str(site.worker.root / word.removeprefix("/")) if word.startswith("/") else word for word in here]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        "-m",
        "devicemanager.cli",
        *moved,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert (process.returncode, err) == (0, b"")
    assert b"ok" in out
    assert b"SIM-0" in out


def shown_by_a_client(kind: str, site: Site) -> PemPair | None:
    """A pair that is not the worker's."""
    match kind:
        case "of another authority":
            return Authority.create("another").client(WORKER_NAME)
        case "expired":
            return signed(site.authority, WORKER_NAME, [CLIENT], timedelta(minutes=-1))
        case "of another name":
            return signed(site.authority, "somebody", [CLIENT])
        case "a server's":
            return signed(site.authority, WORKER_NAME, [SERVER])
        case "a device manager's own":
            folder = site.device_manager.installed.path("--cert-dir")
            return PemPair((folder / "tls.crt").read_bytes(), (folder / "tls.key").read_bytes())
        case _:
            return None


@pytest.mark.parametrize(
    ("shown", "event", "reason"),
    [
        ("of another authority", "handshake_refused", "client certificate refused: unable to get local issuer"),
        ("expired", "handshake_refused", "client certificate refused: certificate has expired"),
        ("a server's", "handshake_refused", "client certificate refused: unsuitable certificate purpose"),
        ("of another name", "client_refused", "the client certificate carries none of the allowed names"),
        ("a device manager's own", "client_refused", "the client certificate carries none of the allowed names"),
        ("none", "client_refused", "a client certificate is required"),
    ],
)
async def test_a_client_that_is_not_the_worker_is_refused_and_both_say_why(
    site: Site, device_manager: DeviceManager, tmp_path: Path, shown: str, event: str, reason: str
) -> None:
    context = ssl.create_default_context(cafile=str(site.worker.path("--device-manager-ca-file")))
    pair = shown_by_a_client(shown, site)
    if pair is not None:
        pair.write(tmp_path / "shown")
        context.load_cert_chain(tmp_path / "shown" / "tls.crt", tmp_path / "shown" / "tls.key")

    state, message, logged = await why_not(site, context)

    await until(lambda: device_manager.events(event))
    (line,) = device_manager.events(event)
    assert line["reason"].startswith(reason)
    assert (line["level"], line["peer"]) == ("warning", "127.0.0.1")
    expected = {
        "handshake_refused": ("unreachable", "it closed the connection without an answer, as for a certificate"),
        "client_refused": ("unauthorized", "HTTP 401") if shown == "none" else ("forbidden", "HTTP 403"),
    }
    assert (state, message[: len(expected[event][1])]) == expected[event]
    assert logged == message


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
    with contextlib.suppress(ConnectionError):
        await reader.read()
    writer.close()


def shown_by_a_server(kind: str, site: Site) -> PemPair:
    """A pair that is not a device manager's."""
    match kind:
        case "of another authority":
            return Authority.create("another").serving([DEVICE_MANAGER_NAME])
        case "expired":
            return signed(site.authority, DEVICE_MANAGER_NAME, [SERVER], timedelta(minutes=-1))
        case "of another name":
            return signed(site.authority, f"node-a.{DEVICE_MANAGER_NAME}", [SERVER])
        case "a client's":
            return signed(site.authority, DEVICE_MANAGER_NAME, [CLIENT])
        case _:
            folder = site.worker.path("--device-manager-client-cert-dir")
            return PemPair((folder / "tls.crt").read_bytes(), (folder / "tls.key").read_bytes())


@pytest.mark.parametrize(
    ("shown", "reason"),
    [
        ("of another authority", "unable to get local issuer certificate"),
        ("expired", "certificate has expired"),
        ("of another name", "Hostname mismatch"),
        ("a client's", "unsuitable certificate purpose"),
        ("the worker's own", "Hostname mismatch"),
    ],
)
async def test_a_server_that_is_no_device_manager_is_refused_and_the_worker_says_why(
    site: Site, shown: str, reason: str
) -> None:
    pair = shown_by_a_server(shown, site)
    context = server_context(Pair.parse(pair.certificate, pair.key), None)
    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context) as impostor:
        site.announce(impostor.sockets[0].getsockname()[1])
        state, message, logged = await why_not(site, site.identity().context)

    assert state == "unreachable"
    assert message.startswith("certificate not accepted: ")
    assert reason in message
    assert logged.startswith(message)


async def test_a_server_without_a_certificate_is_refused(site: Site) -> None:
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as plain:
        site.announce(plain.sockets[0].getsockname()[1])
        state, message, logged = await why_not(site, site.identity().context)

    assert (state, logged) == ("unreachable", message)
    assert message.startswith("cannot connect: ")


@dataclass
class Load:
    """Reads at an even pace, as many workers' requests would come: most on kept connections, some on new ones.

    Attributes:
        done: How many have ended well.
        failures: Why others have not.
    """

    side: Client
    identity: ClientIdentity
    port: int
    done: int = 0
    failures: list[str] = field(default_factory=list)
    _stop: bool = False

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Load"]:
        async with AsyncExitStack() as stack:
            session = await stack.enter_async_context(
                aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True))
            )
            tasks = await stack.enter_async_context(asyncio.TaskGroup())
            for number in range(READERS):
                read = self._on_a_new_connection if number == 0 else self._as_the_worker
                tasks.create_task(self._read(read, session))
            yield self
            await self.more()
            self._stop = True

    async def more(self) -> None:
        """Wait until many more have ended."""
        wanted = self.done + len(self.failures) + A_SECOND
        await until(lambda: self.done + len(self.failures) >= wanted)

    async def _read(
        self, read: Callable[[aiohttp.ClientSession], Awaitable[None]], session: aiohttp.ClientSession
    ) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        while not self._stop:
            try:
                await read(session)
                self.done += 1
            except (FetchError, aiohttp.ClientError, OSError, AssertionError) as error:
                self.failures.append(str(error))
            due = max(due + READERS / A_SECOND, loop.time())
            await asyncio.sleep(due - loop.time())

    async def _as_the_worker(self, _: aiohttp.ClientSession) -> None:
        await self.side.sources.snapshots.read(PLACE, deadline_s=5)

    async def _on_a_new_connection(self, session: aiohttp.ClientSession) -> None:
        assert await status(session, self.port, self.identity.context) == 200


async def status(session: aiohttp.ClientSession, port: int, context: ssl.SSLContext) -> int:
    url = f"https://127.0.0.1:{port}/monitor/snapshot"
    async with session.get(url, ssl=context, server_hostname=DEVICE_MANAGER_NAME) as answer:
        await answer.read()
        return answer.status


Generation = Mapping[str, Document]


@pytest.fixture
def generations(helms: Sequence[Helm], tmp_path: Path) -> Sequence[Generation]:
    """The Secrets of an installation, of the upgrade that announces an authority, and of the one that uses it."""
    home = tmp_path / "home"
    home.mkdir()
    flags = ("--set", "manufacturers.nvidia.enabled=false", "--set", "manufacturers.simulated.enabled=true")
    with objects_held() as held:
        first = upgrade(helms[0], held, home, *flags)
        let_time_pass(held, "ca", timedelta(days=1825 + 90))
        announced = upgrade(helms[0], held, home, *flags)
        let_time_pass(held, "ca", timedelta(days=1800))
        return first, announced, upgrade(helms[0], held, home, *flags)


async def test_upgrades_rotate_the_authority_and_then_the_leaves_without_one_failed_request(
    generations: Sequence[Generation], render: Render, stand_in_cluster: StandInCluster, tmp_path: Path
) -> None:
    first, announced, handed_over = generations
    site = site_of(render(**VALUES), first[name("ca")], stand_in_cluster, tmp_path)
    install(site, first)
    identity = site.identity()
    async with AsyncExitStack() as stack:
        device_manager = await stack.enter_async_context(site.device_manager.running())
        site.announce(device_manager.port)
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        following = tasks.create_task(identity.follow(FOLLOW_S))
        side = await stack.enter_async_context(site.reading(lambda: identity.context))
        session = await stack.enter_async_context(aiohttp.ClientSession())
        load = await stack.enter_async_context(Load(side, identity, device_manager.port).running())
        await load.more()
        contexts = [identity.context]
        for generation in (announced, handed_over):
            reloads = len(device_manager.events("tls_files_reloaded"))
            install(site, generation)
            await until(lambda: identity.context is not contexts[-1])
            await until(lambda: len(device_manager.events("tls_files_reloaded")) > reloads)  # noqa: B023 - at once
            await load.more()
            contexts.append(identity.context)

        # Both authorities are trusted still: the old leaf is let in, on a connection that is kept.
        _, with_the_old_leaf, _ = contexts
        assert await status(session, device_manager.port, with_the_old_leaf) == 200
        only_the_next = {"ca.crt": handed_over[name("ca")]["data"]["issuer.crt"]}
        site.device_manager.installed.write(name("device-manager-tls"), only_the_next)
        await until(lambda: device_manager.events("client_ca_dropped"))
        with pytest.raises(aiohttp.ClientError):
            await status(session, device_manager.port, with_the_old_leaf)
        await load.more()
        following.cancel()

    assert load.failures == []
    refusals = [line["reason"] for line in device_manager.events("handshake_refused")]
    assert [reason.partition(": ")[0] for reason in refusals] == ["client certificate refused"]


def install(site: Site, generation: Generation) -> None:
    """Every Secret of a generation where it is mounted."""
    for installed in (site.device_manager.installed, site.worker):
        for secret in installed.mounts:
            installed.write(secret, generation[secret]["data"])


class Issuer:
    """An issuer whose authority changes, as cert-manager's may: a Secret holds its own leaf's authority alone."""

    def __init__(self) -> None:
        self.before, self.after = (Authority.create(name) for name in ("before", "after"))

    def leaf(self, role: str, authority: Authority) -> Document:
        """The Secret of a role."""
        pair = authority.client(WORKER_NAME) if role == "client" else authority.serving([DEVICE_MANAGER_NAME])
        data = {"tls.crt": pair.certificate, "tls.key": pair.key, "ca.crt": authority.pem.certificate}
        return {
            "kind": "Secret",
            "metadata": {"name": f"{role}-pair"},
            "data": {key: base64.b64encode(value).decode() for key, value in data.items()},
        }


async def test_an_issuer_changes_its_authority_behind_a_bundle_without_one_failed_request(
    render: Render, stand_in_cluster: StandInCluster, tmp_path: Path
) -> None:
    names = {"deviceManager": "server-pair", "worker": "server-pair", "workerClient": "client-pair"}
    documents = render(
        **VALUES,
        tls={
            "mode": "existingSecret",
            "existingSecret": names,
            "trustBundle": {"configMap": "authorities", "apiServiceSecret": "authorities"},
        },
    )
    issuer = Issuer()
    first = [issuer.leaf(role, issuer.before) for role in ("server", "client")]
    authority = {"kind": "Secret", "metadata": {"name": "-ca"}, "data": _as_issuer(issuer.before.pem)}
    site = site_of([*documents, *first], authority, stand_in_cluster, tmp_path)
    device_managers, workers = site.device_manager.installed, site.worker

    def trust(*authorities: Authority) -> None:
        for bundle in (device_managers.path("--client-ca-file"), workers.path("--device-manager-ca-file")):
            bundle.parent.mkdir(parents=True, exist_ok=True)
            bundle.with_suffix(".new").write_bytes(b"".join(each.pem.certificate for each in authorities))
            bundle.with_suffix(".new").rename(bundle)

    trust(issuer.before)
    identity = site.identity()
    async with AsyncExitStack() as stack:
        device_manager = await stack.enter_async_context(site.device_manager.running())
        site.announce(device_manager.port)
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        following = tasks.create_task(identity.follow(FOLLOW_S))
        side = await stack.enter_async_context(site.reading(lambda: identity.context))
        load = await stack.enter_async_context(Load(side, identity, device_manager.port).running())
        steps: Sequence[tuple[Callable[[], None], bool, bool]] = (  # what is done, and who takes it: server, client
            (lambda: trust(issuer.before, issuer.after), True, True),
            (
                lambda: device_managers.write("server-pair", issuer.leaf("server", issuer.after)["data"]),
                True,
                False,
            ),
            (lambda: workers.write("client-pair", issuer.leaf("client", issuer.after)["data"]), False, True),
            (lambda: trust(issuer.after), True, True),
        )
        for step, server, client in steps:
            reloads = len(device_manager.events("tls_files_reloaded"))
            context = identity.context
            step()
            if server:
                await until(lambda: len(device_manager.events("tls_files_reloaded")) > reloads)  # noqa: B023 - at once
            if client:
                await until(lambda: identity.context is not context)  # noqa: B023 - at once
            await load.more()
        await until(lambda: device_manager.events("client_ca_dropped"))
        await load.more()
        following.cancel()

    assert load.failures == []
    assert device_manager.events("handshake_refused") == []


def _as_issuer(pair: PemPair) -> Mapping[str, str]:
    data = {"issuer.crt": pair.certificate, "issuer.key": pair.key}
    return {key: base64.b64encode(value).decode() for key, value in data.items()}
