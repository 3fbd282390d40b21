"""``python -m tests.soak [--minutes N]``: prints a table, and ends with 1 where something did not hold.

One worker, three nodes. The device manager of the first stays, that of the second dies and comes back, and the
kubelet of the third answers badly. Certificates and their authority are replaced again and again.
"""

# ruff: noqa: T201 - a program; what it prints is its result

import argparse
import asyncio
import logging
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any, Final

from devicemanager.demo.cluster.access import Rule
from devicemanager.demo.cluster.objects import SYSTEM_NAMESPACE, Grant, InstanceSpec
from devicemanager.demo.cluster.stand_in import FRONT_PROXY_NAME, WORKER_TOKEN
from devicemanager.tls.certificates import Authority
from devicemanager.tls.identity import FOLLOW_INTERVAL_S
from tests.attack.program import Program, limited
from tests.cluster.faults import Fault, Trouble
from tests.cluster.stand_in import StandInCluster
from tests.floods import MIB, probe
from tests.soak.readers import Connection, Tally, churn, read
from tests.timing import until, wait_until

GROUP: Final = "worker.gpustack.ai"
DEVICE_MANAGER: Final = "device-manager.gpustack-system.svc"
CARD: Final = "SIM-soak"
SLOW_READERS: Final = {"worker": 180, "device manager": 20}
"""The second admits 64 with a certificate, and when an authority is replaced, all connect anew at once."""

GROWTH_MIB: Final = 1.0
"""In ten minutes after warming up, which is the first third, and at most ten minutes."""

LEAST_MINUTES: Final = 20.0
"""A shorter soak shows growth, but does not judge it."""

EXPLAINS_S: Final = 60.0
"""For how long a source that failed explains an answer without it: found again, and no longer set aside."""

ROTATION_STEP_S: Final = FOLLOW_INTERVAL_S + 10
"""Between two steps of a rotation: both sides have read their files again by then."""

TROUBLES: Final = (
    Fault(Trouble.ERROR, status=500),
    Fault(Trouble.HTML),
    Fault(Trouble.HALF),
    Fault(Trouble.GZIP_BOMB),
    Fault(Trouble.RESET),
    Fault(Trouble.HUGE),
    Fault(Trouble.SLOW, delay_s=3),
)


@dataclass
class Soak:
    """All that runs."""

    folder: Path
    cluster: StandInCluster
    stack: ExitStack
    authorities: list[Authority] = field(default_factory=lambda: [Authority.create("first")])
    tallies: dict[str, Tally] = field(default_factory=dict)
    failing: dict[str, float] = field(default_factory=dict)
    """Source of a node -> when it last failed on purpose, in seconds of the monotonic clock."""
    rotations: int = 0
    deaths: int = 0
    programs: dict[str, Program] = field(default_factory=dict)

    # Certificates.

    def write_trust(self) -> None:
        """Both sides believe in these authorities."""
        bundle = b"".join(one.pem.certificate for one in self.authorities)
        for name in ("trust", "client"):
            (self.folder / name).mkdir(exist_ok=True)
            replaced = self.folder / name / "new"
            replaced.write_bytes(bundle)
            replaced.rename(self.folder / name / "ca.crt")

    def write_pairs(self) -> None:
        """Of the newest authority."""
        newest = self.authorities[-1]
        newest.serving([DEVICE_MANAGER]).write(self.folder / "serving")
        newest.client("worker").write(self.folder / "client")

    async def rotate(self) -> None:
        """A new authority is believed, then used, then the old one is not believed any more."""
        while True:
            await asyncio.sleep(ROTATION_STEP_S)
            self.authorities.append(await asyncio.to_thread(Authority.create, f"authority {self.rotations}"))
            self.write_trust()
            await asyncio.sleep(ROTATION_STEP_S)
            await asyncio.to_thread(self.write_pairs)
            await asyncio.sleep(ROTATION_STEP_S)
            del self.authorities[0]
            self.write_trust()
            self.rotations += 1

    # Programs.

    def start_device_manager(self, node: str) -> None:
        """A device manager, and its pod."""
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        scenario = folder / "cards.toml"
        scenario.write_text(f'[[cards]]\nindex = 0\nid = "{CARD}"\n')
        arguments = [
            *("serve", "--manufacturer=simulated", "--bind-address=127.0.0.1", "--monitor-period=5s"),
            f"--simulated-scenario={scenario}",
            f"--cert-dir={self.folder / 'serving'}",
            f"--client-ca-file={self.folder / 'trust' / 'ca.crt'}",
            "--client-allowed-names=worker",
        ]
        program = self.stack.enter_context(limited("deviceManager", arguments, folder))
        wait_until(lambda: program.events("collector_state_changed"), "cards")
        self.programs[node] = program

    def publish(self, node: str) -> str:
        """Its pod; returns the name."""
        return self.cluster.add_device_manager(node, "simulated", "127.0.0.1", self.programs[node].port)

    def start_worker(self) -> None:
        """The worker."""
        folder = self.folder / "worker"
        self.cluster.front_proxy.client(FRONT_PROXY_NAME).write(self.folder / "front-proxy")
        Authority.create("worker").serving(["worker.gpustack-system.svc"]).write(folder)
        arguments = [
            *("worker", "--bind-address=127.0.0.1", f"--cert-dir={folder}", f"--api-group={GROUP}"),
            f"--kubeconfig={self.cluster.write_kubeconfig(folder / 'kubeconfig', WORKER_TOKEN)}",
            f"--device-manager-namespace={SYSTEM_NAMESPACE}",
            f"--device-manager-ca-file={self.folder / 'client' / 'ca.crt'}",
            f"--device-manager-client-cert-dir={self.folder / 'client'}",
            f"--device-manager-server-name={DEVICE_MANAGER}",
        ]
        self.programs["worker"] = self.stack.enter_context(limited("worker", arguments, folder))
        port = self.programs["worker"].port
        wait_until(lambda: probe(port, "127.0.9.3", "/readyz"), "readiness")

    async def die_and_come_back(self, every_s: float, pod: str) -> None:
        """The second node's device manager is killed, and its pod replaced by another."""
        while True:
            await asyncio.sleep(every_s)
            self.failing["node-b"] = float("inf")
            self.programs["node-b"].stop()
            self.deaths += 1
            await asyncio.sleep(every_s / 4)
            self.cluster.store.delete("pods", SYSTEM_NAMESPACE, pod)
            await asyncio.to_thread(self.start_device_manager, "node-b")
            pod = self.publish("node-b")
            self.failing["node-b"] = time.monotonic()

    async def answer_badly(self, every_s: float) -> None:
        """The third node's kubelet, in each way there is."""
        for trouble in cycle(TROUBLES):
            await asyncio.sleep(every_s)
            self.failing["node-c"] = float("inf")
            with self.cluster.faults.on("kubelet/node-c", trouble):
                await asyncio.sleep(every_s)
            self.failing["node-c"] = time.monotonic()

    # What is right.

    def wrong(self, node: str, document: Mapping[str, Any]) -> str | None:
        """What an answer lacks that no failing source explains."""
        states = {one["name"]: one["state"] for one in document["sample"]["sources"]}
        failing = {"node-b": {"device-manager/simulated"}, "node-c": {"kubelet", "metrics.k8s.io"}}.get(node, set())
        if time.monotonic() - self.failing.get(node, float("-inf")) > EXPLAINS_S:
            failing = set()
        bad = {name: state for name, state in states.items() if state != "ok" and name not in failing}
        return f"{node}: {bad}" if bad or not states else None


async def run(minutes: float, folder: Path, stack: ExitStack) -> bool:
    """The whole soak; whether all held."""
    async with StandInCluster() as cluster:
        soak = Soak(folder, cluster, stack)
        soak.write_trust()
        soak.write_pairs()
        cluster.grant(
            Rule("viewer", ("get",), (GROUP,), ("instances/metrics",)),
            Rule("viewer", ("get", "list"), (GROUP,), ("instancemetrics",)),
        )
        pods = {}
        for node in ("node-a", "node-b", "node-c"):
            cluster.add_node(node)
            cluster.add_instance(InstanceSpec("default", node, node, [Grant("simulated", CARD)]))
            await asyncio.to_thread(soak.start_device_manager, node)
            pods[node] = soak.publish(node)
        await asyncio.to_thread(soak.start_worker)
        samples: dict[str, list[tuple[float, float, int]]] = {name: [] for name in ("worker", "node-a")}
        seconds = 60 * minutes
        work = asyncio.get_running_loop().create_task(_all(soak, seconds, pods["node-b"]))
        ends_s = time.monotonic() + seconds
        try:
            while time.monotonic() < ends_s and not work.done():
                await asyncio.sleep(2)
                for name, seen in samples.items():
                    program = soak.programs[name]
                    seen.append((time.monotonic(), program.resident_bytes() / MIB, program.descriptors()))
        finally:
            work.cancel()
            await until(work.done)
        if not work.cancelled():
            work.result()
        return report(soak, samples, minutes)


async def _all(soak: Soak, seconds: float, pod: str) -> None:
    async with asyncio.TaskGroup() as tasks:
        worker, client = (lambda: soak.programs["worker"].port), soak.folder / "client"
        proxy, user = soak.folder / "front-proxy", {"X-Remote-User": "viewer"}
        for node in ("node-a", "node-b", "node-c"):
            tally = soak.tallies[f"honest reads of {node}"] = Tally()
            one = Connection(worker, proxy, user, 1 << 20, 0)
            path = f"/apis/{GROUP}/v1/namespaces/default/instances/{node}/metrics"
            tasks.create_task(read(one, path, tally, partial(soak.wrong, node), 1.0))
        slow = {
            "worker": (worker, proxy, user, f"/apis/{GROUP}/v1/instancemetrics"),
            "device manager": (lambda: soak.programs["node-a"].port, client, {}, "/monitor/snapshot"),
        }
        for name, (port, pair, headers, path) in slow.items():
            tally = soak.tallies[f"slow reads of the {name}"] = Tally()
            for _ in range(SLOW_READERS[name]):
                one = Connection(port, pair, headers, 256, 0.05)
                tasks.create_task(read(one, path, tally, lambda _: None, 4.0))
                await asyncio.sleep(0.02)
        tasks.create_task(churn(worker))
        tasks.create_task(churn(lambda: soak.programs["node-a"].port))
        period_s = max(12.0, min(60.0, seconds / 12))
        tasks.create_task(soak.rotate())
        tasks.create_task(soak.die_and_come_back(2 * period_s, pod))
        tasks.create_task(soak.answer_badly(period_s))


def report(soak: Soak, samples: Mapping[str, Sequence[tuple[float, float, int]]], minutes: float) -> bool:
    """Print the table; whether all held."""
    held = True
    print(f"{minutes:g} minutes; {soak.rotations} authorities replaced, {soak.deaths} device managers killed")
    for name, tally in soak.tallies.items():
        held = held and not tally.failed
        print(f"{name:32} {tally.count:7} reads, slowest {tally.slowest_s:6.2f} s, failed {tally.failed.total()}")
        for wrong, times in tally.failed.most_common(5):
            print(f"    {times:5} x {wrong[:300]}")
    for name, seen in samples.items():
        warm_s = seen[0][0] + min(600.0, 20 * minutes)
        warm = [one for one in seen if one[0] >= warm_s]
        half = len(warm) // 2
        # What is left between two bad answers: a body of megabytes is in memory while it is read.
        low = [statistics.quantiles([mib for _, mib, _ in part], n=10)[0] for part in (warm[:half], warm[half:])]
        before, after = (statistics.median(one[2] for one in part) for part in (warm[:half], warm[half:]))
        growth = 600 * (low[1] - low[0]) / (warm[half][0] - warm[0][0])
        held = held and (minutes < LEAST_MINUTES or growth < GROWTH_MIB) and abs(after - before) <= 8
        print(
            f"{name:32} {warm[0][1]:6.1f} -> {warm[-1][1]:6.1f} MiB, {growth:+.2f} MiB in 10 minutes; "
            f"descriptors {before:g} -> {after:g}; killed for memory: {soak.programs[name].cap.kills()}"
        )
        held = held and soak.programs[name].running and not soak.programs[name].cap.kills()
    print("held" if held else "did not hold")
    return held


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak")
    parser.add_argument("--minutes", type=float, default=30.0)
    minutes: float = parser.parse_args().minutes
    logging.getLogger("aiohttp.server").disabled = True  # the stand-in is cut off in the middle of its bad answers
    with tempfile.TemporaryDirectory(prefix="soak-") as folder, ExitStack() as stack:
        return 0 if asyncio.run(run(minutes, Path(folder), stack)) else 1


if __name__ == "__main__":
    sys.exit(main())
