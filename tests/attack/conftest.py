"""Programs to attack, and the figures of each attack printed at the end."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio
from _pytest.terminal import TerminalReporter

from devicemanager.demo.cluster.access import Rule
from devicemanager.demo.cluster.objects import SYSTEM_NAMESPACE, Grant, InstanceSpec
from devicemanager.demo.cluster.stand_in import FRONT_PROXY_NAME, WORKER_TOKEN
from devicemanager.tls.certificates import Authority
from tests.attack.program import Program, limited, settled
from tests.attack.watching import Honest, Watch, watching
from tests.cluster.stand_in import StandInCluster
from tests.floods import MIB, probe
from tests.timing import wait_until
from tests.unit.worker.apiserver.api_server import SERVER_NAME as WORKER_NAME
from tests.unit.worker.conftest import SERVER_NAME, DeviceManagerPeer, card, snapshot_document

PROBE_TIMEOUT_S: Final = 1.0
"""The kubelet's own default; the chart gives five."""

LEFT_BEHIND: Final = 24 * MIB
"""What an allocator may keep after a burst: pages of which something still uses a piece."""

GROUP: Final = "worker.gpustack.ai"
CARD: Final = "GPU-own"


@dataclass(frozen=True)
class Measured:
    """One line of the table at the end."""

    program: str
    attack: str
    limit: int
    rest: int
    peak: int
    slowest_probe_s: float
    slowest_read_s: float
    requests: int
    cap: str


_TABLE: Final = pytest.StashKey[list[Measured]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_TABLE] = []


def pytest_terminal_summary(terminalreporter: TerminalReporter, config: pytest.Config) -> None:
    """The figures that docs/threat-model.md quotes."""
    rows = config.stash[_TABLE]
    if not rows:
        return
    terminalreporter.section("measured under attack")
    terminalreporter.write_line("memory limit by: " + ", ".join(sorted({row.cap for row in rows})))
    terminalreporter.write_line(
        "MiB: limit, at rest, peak (cgroup: kernel's socket buffers and page cache included)"
    )
    for row in rows:
        sizes = "  ".join(f"{size / MIB:5.0f}" for size in (row.limit, row.rest, row.peak))
        slow = f"{1000 * row.slowest_probe_s:5.0f} ms  {1000 * row.slowest_read_s:5.0f} ms"
        terminalreporter.write_line(
            f"{row.program:14}  {row.attack:58}  {sizes}  probe {slow} read, of {row.requests}"
        )


@dataclass
class Target:
    """A program that is attacked, and how an honest reader asks it."""

    program: Program
    honest: Honest
    name: str
    attack: str
    table: list[Measured]

    @contextmanager
    def attacked(self) -> Iterator[Watch]:
        """Probes and reads go on for as long as the block runs; then all that must hold is looked at."""
        program = self.program
        with watching(program.port, program.pid, self.honest):
            pass  # the connections to its own peers are made
        rest, descriptors = program.memory_bytes(), program.descriptors()
        with watching(program.port, program.pid, self.honest) as watch:
            yield watch
        peak, limit = program.cap.peak_bytes(program.pid), program.cap.limit_bytes
        requests = watch.probes.count + watch.reads.count
        self.table.append(
            Measured(
                self.name,
                self.attack,
                limit,
                rest,
                peak,
                watch.probes.slowest_s,
                watch.reads.slowest_s,
                requests,
                program.cap.kind,
            )
        )
        assert program.running, program.log()
        assert program.cap.kills() == 0
        assert peak < limit
        assert watch.probes.failed == []
        assert watch.probes.count > 0
        assert watch.probes.slowest_s < PROBE_TIMEOUT_S
        assert watch.reads.failed == []
        assert watch.reads.count > 0
        assert settled(lambda: program.descriptors() <= descriptors), (program.descriptors(), descriptors)
        assert settled(lambda: program.memory_bytes() <= rest + LEFT_BEHIND), (program.memory_bytes(), rest)


def _title(request: pytest.FixtureRequest) -> str:
    node = request.node
    return str(node.name).removeprefix("test_").replace("_", " ")


StartDeviceManager = Callable[..., Target]


@pytest.fixture
def start_device_manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StartDeviceManager]:
    """Starts a device manager with the flags that the chart gives, and those given here."""
    with ExitStack() as stack:

        def start(*flags: str, anonymous: bool = False, ulimit: str | None = None) -> Target:
            authority = Authority.create("clients")
            authority.pem.write(tmp_path, "ca")
            authority.client("worker").write(tmp_path / "reader")
            authority.serving([SERVER_NAME]).write(tmp_path / "serving")
            trust = [f"--client-ca-file={tmp_path / 'ca.crt'}", "--client-allowed-names=worker"]
            arguments = [
                *("serve", "--manufacturer=simulated", "--bind-address=127.0.0.1", "--monitor-period=15s"),
                f"--cert-dir={tmp_path / 'serving'}",
                *(["--allow-anonymous"] if anonymous else trust),
                *flags,
            ]
            program = stack.enter_context(limited("deviceManager", arguments, tmp_path, ulimit))
            wait_until(lambda: program.events("collector_state_changed"), "cards")
            honest = Honest(
                str(tmp_path / "reader"), "/monitor/snapshot", expected=('"state":"ok"', '"memoryUsage"')
            )
            return Target(program, honest, "device manager", _title(request), request.config.stash[_TABLE])

        yield start


@dataclass
class Chain:
    """A cluster with a worker to attack, and the device manager of one node."""

    cluster: StandInCluster
    device_manager: DeviceManagerPeer
    folder: Path
    start: Callable[..., Awaitable[Target]]


@pytest_asyncio.fixture
async def chain(
    request: pytest.FixtureRequest, stand_in_cluster: StandInCluster, tmp_path: Path
) -> AsyncIterator[Chain]:
    """A node with a device manager and an Instance; ``start`` starts the worker with the chart's flags."""
    peer = DeviceManagerPeer(tmp_path / "device-manager")
    peer.document = snapshot_document(card(CARD))
    await peer.start()
    stand_in_cluster.add_node("node-a")
    stand_in_cluster.add_instance(InstanceSpec("default", "web", "node-a", [Grant("nvidia", CARD)]))
    stand_in_cluster.add_device_manager("node-a", "nvidia", "127.0.0.1", peer.port)
    stand_in_cluster.grant(
        Rule("viewer", ("get",), (GROUP,), ("instances/metrics",)),
        Rule("viewer", ("get", "list"), (GROUP,), ("instancemetrics",)),
    )
    with ExitStack() as stack:

        def start(*flags: str, ulimit: str | None = None) -> Target:
            stand_in_cluster.front_proxy.client(FRONT_PROXY_NAME).write(tmp_path / "reader")
            Authority.create("serving CA").serving([WORKER_NAME]).write(tmp_path / "serving")
            peer.authority.client("worker").write(tmp_path / "client")
            (tmp_path / "client" / "ca.crt").write_bytes(peer.authority.pem.certificate)
            arguments = [
                *("worker", "--bind-address=127.0.0.1", f"--cert-dir={tmp_path / 'serving'}"),
                f"--kubeconfig={stand_in_cluster.write_kubeconfig(tmp_path / 'kubeconfig', WORKER_TOKEN)}",
                f"--api-group={GROUP}",
                f"--service={SYSTEM_NAMESPACE}/devicemanager-worker",
                f"--device-manager-namespace={SYSTEM_NAMESPACE}",
                f"--device-manager-ca-file={tmp_path / 'client' / 'ca.crt'}",
                f"--device-manager-client-cert-dir={tmp_path / 'client'}",
                f"--device-manager-server-name={SERVER_NAME}",
                "--kubelet-mode=proxy",
                *flags,
            ]
            program = stack.enter_context(limited("worker", arguments, tmp_path, ulimit))
            honest = Honest(
                str(tmp_path / "reader"),
                f"/apis/{GROUP}/v1/namespaces/default/instances/web/metrics",
                {"X-Remote-User": "viewer"},
                (
                    '"memoryUsageMiB":20480',
                    '"name":"kubelet","state":"ok"',
                    '"name":"device-manager/nvidia","state":"ok"',
                ),
            )
            target = Target(program, honest, "worker", _title(request), request.config.stash[_TABLE])
            wait_until(lambda: probe(program.port, "127.0.9.3", "/readyz"), "readiness")
            return target

        async def started(*flags: str, ulimit: str | None = None) -> Target:
            return await asyncio.to_thread(start, *flags, ulimit=ulimit)

        yield Chain(stand_in_cluster, peer, tmp_path, started)
        await asyncio.to_thread(stack.close)
    await peer.stop()
