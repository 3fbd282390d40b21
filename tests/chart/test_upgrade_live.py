"""The programs of the version before and of this one, side by side as an upgrade and a rollback run them.

Certificates and arguments are those that helm renders and keeps; readers ask all the while. Programs are the slow
part of that, so they run on what the first helm made, and the last one's is compared.
"""

import asyncio
import json
import os
import re
import signal
import ssl
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from devicemanager.demo.cluster.api_services import API_SERVICES
from devicemanager.demo.cluster.objects import Grant, InstanceSpec
from devicemanager.demo.cluster.stand_in import ADMIN_TOKEN
from tests.chart.api import serving
from tests.chart.binaries import Helm
from tests.chart.conftest import CHART, NAMESPACE, Document
from tests.chart.installed import Installed, the
from tests.chart.previous import previous_tree
from tests.chart.releases import Release
from tests.cluster.stand_in import StandInCluster
from tests.timing import until

NODE, MANUFACTURER, GROUP = "node-a", "simulated", "worker.gpustack.ai"
SAMPLE = f"/apis/{GROUP}/v1/namespaces/team-a/instances/web/metrics"
A_SECOND = 20
"""Questions of each reader: more of them would leave no processor to the programs that start meanwhile."""

TABLE = f"/apis/{GROUP}/v1/namespaces/team-a/instancemetrics"


@dataclass
class Program:
    """One of the two programs as a process, of one version.

    Attributes:
        installed: Its container's files and arguments.
        tree: Where that version's packages are; None for those under test.
        lines: What it has logged.
    """

    installed: Installed
    tree: Path | None
    flags: Sequence[str] = ()
    lines: list[dict[str, Any]] = field(default_factory=list)
    process: asyncio.subprocess.Process | None = None
    reading: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Until it listens."""
        path = os.environ.get("PYTHONPATH") if self.tree is None else str(self.tree)
        environment = {"DEVICEMANAGER_NODE_NAME": NODE, **({} if path is None else {"PYTHONPATH": path})}
        command = [*self.installed.on_loopback(*self.flags), "--log-format=json"]
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "devicemanager.cli", *command),
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
        )
        self.reading = reading = asyncio.create_task(self._read(self.process))
        await until(lambda: self.logged("server_listening") or reading.done())
        assert self.logged("server_listening"), self.lines

    async def end(self) -> None:
        """Told to, as the kubelet tells it; well."""
        if self.process is not None and self.reading is not None:
            if self.process.returncode is None:
                self.process.send_signal(signal.SIGTERM)
            await self.reading
            assert await self.process.wait() == 0, self.lines

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            self.lines.append(json.loads(line))

    def logged(self, event: str) -> Sequence[Mapping[str, Any]]:
        """The lines of an event so far."""
        return [line for line in self.lines if line["event"] == event]

    @property
    def port(self) -> int:
        port: int = self.logged("server_listening")[0]["port"]
        return port


@dataclass
class Readers:
    """Who asks all the while: one Instance's sample, and the list.

    Attributes:
        done: Answers that were good.
        failures: What the others said.
    """

    cluster: StandInCluster
    session: aiohttp.ClientSession
    done: int = 0
    failures: list[str] = field(default_factory=list)

    async def ask(self, path: str) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {ADMIN_TOKEN}"}
        async with self.session.get(f"{self.cluster.url}{path}", headers=headers) as answer:
            return answer.status, await answer.json()

    @asynccontextmanager
    async def asking(self) -> AsyncIterator[None]:
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            for path in (SAMPLE, TABLE):
                tasks.create_task(self._ask_on(path, stop))
            try:
                yield
                await self.more()
            finally:
                stop.set()

    async def _ask_on(self, path: str, stop: asyncio.Event) -> None:
        while not stop.is_set():
            try:
                status, body = await self.ask(path)
            except (aiohttp.ClientError, ValueError) as error:
                self.failures.append(repr(error))
            else:
                if status == 200:
                    self.done += 1
                else:
                    self.failures.append(f"{status}: {body.get('message')}")
            await asyncio.sleep(1 / A_SECOND)

    async def more(self) -> None:
        """Wait for many more answers."""
        wanted = self.done + len(self.failures) + A_SECOND
        await until(lambda: self.done + len(self.failures) >= wanted)

    async def figures(self) -> set[str]:
        """What is said of the Instance and its card."""

        def said(sample: Mapping[str, Any]) -> set[str]:
            cards = sample.get("accelerators", [])
            own = {key for key, value in sample.items() if not isinstance(value, list | dict)}
            return own | {f"card.{key}" for card in cards for key in card if key != "absent"}

        status, body = await self.ask(SAMPLE)
        assert status == 200, body
        assert [source["state"] for source in body["sample"]["sources"]] == ["ok", "ok"], body["sample"]["sources"]
        return said(body["sample"])


@dataclass
class Site:
    """The node and the Service, and which version's programs are there.

    Attributes:
        started: Every program so far.
    """

    readers: Readers
    folder: Path
    kubeconfig: Path
    started: list[Program] = field(default_factory=list)
    pod: str | None = None

    async def _start(
        self, made: Sequence[Document], kind: str, suffix: str, tree: Path | None, *flags: str
    ) -> Program:
        folder = self.folder / str(len(self.started))
        program = Program(Installed(made, the(made, kind, suffix), folder), tree, flags)
        self.started.append(program)
        await program.start()
        return program

    async def device_manager(self, made: Sequence[Document], tree: Path | None) -> None:
        """Replace it as a DaemonSet does: the old pod goes, and then a new one comes."""
        cluster = self.readers.cluster
        if self.pod is not None:
            cluster.store.delete("pods", NAMESPACE, self.pod)
            await self._last("serve").end()
        program = await self._start(made, "DaemonSet", f"-{MANUFACTURER}", tree)
        await until(lambda: any(line["state"] == "ok" for line in program.logged("collector_state_changed")))
        self.pod = cluster.add_device_manager(NODE, MANUFACTURER, "127.0.0.1", program.port, NAMESPACE)

    async def worker(self, made: Sequence[Document], tree: Path | None) -> None:
        """Replace it as a Deployment does: a new pod is ready, requests go there, and then the old one ends."""
        cluster = self.readers.cluster
        before = [each for each in self.started if each.installed.arguments[0] == "worker"]
        registration = dict(the(made, "APIService", f"v1.{GROUP}"))
        cluster.store.put(API_SERVICES, registration)
        program = await self._start(made, "Deployment", "-worker", tree, f"--kubeconfig={self.kubeconfig}")
        authority = program.installed.path("--cert-dir") / "ca.crt"
        name = f"{registration['spec']['service']['name']}.{NAMESPACE}.svc"
        url = f"https://127.0.0.1:{program.port}"
        await until_ready(self.readers.session, url, authority, name)
        cluster.register(GROUP, "v1", url, authority.read_bytes(), name)
        cluster.store.put(API_SERVICES, registration)
        if before:
            await self.readers.more()
            await before[-1].end()

    def _last(self, program: str) -> Program:
        return [each for each in self.started if each.installed.arguments[0] == program][-1]

    async def end(self) -> None:
        """All that still run."""
        for program in self.started:
            if program.process is not None and program.process.returncode is None:
                await program.end()


async def until_ready(session: aiohttp.ClientSession, url: str, authority: Path, name: str) -> None:
    context = ssl.create_default_context(cafile=str(authority))
    async with asyncio.timeout(20):
        while True:
            async with session.get(f"{url}/readyz", ssl=context, server_hostname=name) as answer:
                if answer.status == 200:
                    return


@dataclass
class Versions:
    """What helm rendered of each, over one another, and where the earlier one's programs are."""

    before: Sequence[Document]
    after: Sequence[Document]
    back: Sequence[Document]
    tree: Path


def versions_by(helm: Helm, folder: Path) -> Versions:
    """An installation, an upgrade and a rollback."""
    tree = previous_tree(folder / "previous")
    with serving() as held:
        release = Release(helm, held, folder)
        release.install(tree / "charts" / CHART.name)
        before = release.manifest()
        release.upgrade(CHART)
        after = release.manifest()
        release.roll_back(1)
        return Versions(before, after, release.manifest(), tree)


@pytest.fixture(scope="module")
def versions(helms: Sequence[Helm], tmp_path_factory: pytest.TempPathFactory) -> Versions:
    """By the first helm."""
    return versions_by(helms[0], tmp_path_factory.mktemp("first"))


def test_every_helm_makes_the_same_of_both_versions_but_for_keys(
    versions: Versions, helms: Sequence[Helm], tmp_path: Path
) -> None:
    last = versions_by(helms[-1], tmp_path)
    for moment in ("before", "after", "back"):
        assert without_keys(getattr(last, moment)) == without_keys(getattr(versions, moment)), moment


MADE_ANEW = re.compile(r"caBundle|[a-z]+\.(crt|key)|.*/(next-)?not-after(-epoch)?")
"""Where the keys that each installation makes stand, and their dates."""


def without_keys(value: Any) -> Any:
    """The same document, but for keys and their dates."""
    match value:
        case dict():
            return {key: None if MADE_ANEW.fullmatch(key) else without_keys(inner) for key, inner in value.items()}
        case list():
            return [without_keys(inner) for inner in value]
        case _:
            return value


@pytest.mark.timeout(300)  # six programs are started: 15 s on an idle machine
@pytest.mark.asyncio
async def test_no_read_fails_and_no_figure_is_lost_while_versions_are_replaced(
    versions: Versions, stand_in_cluster: StandInCluster, tmp_path: Path
) -> None:
    """Worker first, then device manager, and back in the same order: so each meets the other one version apart."""
    cluster = stand_in_cluster
    cluster.add_node(NODE)
    cluster.add_instance(InstanceSpec("team-a", "web", NODE, [Grant(MANUFACTURER, "SIM-0")]))
    kubeconfig = cluster.write_kubeconfig(tmp_path / "kubeconfig", ADMIN_TOKEN)
    old, new, back = versions.before, versions.after, versions.back
    trusted = ssl.create_default_context(cadata=cluster.authority.pem.certificate.decode())
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trusted)) as session:
        readers = Readers(cluster, session)
        site = Site(readers, tmp_path / "pods", kubeconfig)
        try:
            await site.device_manager(old, versions.tree)
            await site.worker(old, versions.tree)
            async with readers.asking():
                figures = [await readers.figures()]
                for step, made, tree in (
                    (site.worker, new, None),
                    (site.device_manager, new, None),
                    (site.worker, back, versions.tree),
                    (site.device_manager, back, versions.tree),
                ):
                    await step(made, tree)
                    await readers.more()
                    figures.append(await readers.figures())
        finally:
            await site.end()

    assert readers.failures == []
    assert len(figures[0]) > 15
    for number, found in enumerate(figures[1:]):
        assert figures[0] <= found, number
