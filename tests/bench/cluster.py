"""A stand-in cluster in a process of its own, with device managers on every node.

``python -m tests.bench.cluster NODES INSTANCES FOLDER`` writes what clients need to the folder, says "ready", and
answers each line on its standard input with one of JSON:

    counts            requests since the last reset: kubelet reads by node, all others by verb and resource
    reset             forget them
    delay SECONDS     how long kubelets and device managers take to answer from now on
    worst             the first three nodes send what is worst to read from now on
    grow NODES        add so many nodes, each with a device manager's pod of the size that real ones have
"""

import asyncio
import json
import ssl
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from aiohttp import web

from devicemanager.demo.cluster.access import Rule
from devicemanager.demo.cluster.objects import Grant, InstanceSpec
from devicemanager.demo.cluster.stand_in import WORKER_TOKEN
from devicemanager.tls.certificates import Authority
from tests.bench import worst
from tests.cluster.faults import Fault, Trouble
from tests.cluster.stand_in import StandInCluster

MANUFACTURER: Final = "simulated-bench"
DEVICE_MANAGER_NAME: Final = "device-manager.bench"
WORKER_NAME: Final = "worker.bench.svc"
NAMESPACE: Final = "team-a"
READER_TOKEN: Final = "bench-reader"
"""Of somebody who may read Instances' metrics, by an access review."""

_PADDING: Final = "x" * 6_000
"""Managed fields and the rest of a real pod, which the stand-in's pods lack."""


def address(node: int) -> str:
    """Where a node's device manager listens."""
    return f"127.1.{node // 250}.{node % 250 + 1}"


class Bench:
    """The cluster, its device managers, and what can be asked of them."""

    def __init__(self, folder: Path) -> None:
        self.cluster = StandInCluster()
        self._folder = folder
        self._authority = Authority.create("bench CA")
        self._delay_s = 0.0
        self._nodes = 0
        self._port = 0
        self._by_address: dict[str, str] = {}
        self._worst: dict[str, bytes] = {}

    async def start(self, nodes: int, instances: int) -> None:
        """Listen, fill the cluster, write the files."""
        folder = self._folder
        await self.cluster.start()
        (folder / "ca.crt").write_bytes(self._authority.pem.certificate)
        self._authority.serving([DEVICE_MANAGER_NAME]).write(folder / "device-manager")
        self._authority.serving([WORKER_NAME, "127.0.0.1"]).write(folder / "worker")
        self._authority.client("worker").write(folder / "worker-client")
        self.cluster.write_kubeconfig(folder / "kubeconfig", WORKER_TOKEN)
        self.cluster.add_user(READER_TOKEN, "bench-reader", ("system:authenticated",))
        resources = ("instances/metrics", "instancemetrics")
        self.cluster.grant(
            Rule("bench-reader", ("get", "list"), ("worker.gpustack.ai",), resources),
            Rule("bench-reader", ("get",), paths=("/apis*",)),
        )
        await self._serve_snapshots()
        for node in range(nodes):
            self._add_node(padded=False)
            for number in range(node, instances, nodes):
                grant = Grant(MANUFACTURER, f"card-{number // nodes}", number // nodes)
                self.cluster.add_instance(InstanceSpec(NAMESPACE, f"instance-{number}", f"node-{node}", [grant]))

    def answer(self, line: str) -> object:
        """What a line of standard input is answered."""
        match line.split():
            case ["counts"]:
                return self._counts()
            case ["reset"]:
                self.cluster.requests.clear()
            case ["delay", seconds]:
                self._slow_down(float(seconds))
            case ["worst"]:
                for node, body in enumerate(worst.summaries()):
                    self.cluster.faults.switch_on(f"kubelet/node-{node}", Fault(Trouble.BODY, body=body))
                self._worst = {f"node-{node}": body for node, body in enumerate(worst.snapshots(MANUFACTURER))}
            case ["grow", nodes]:
                for _ in range(int(nodes)):
                    self._add_node(padded=True)
            case _:
                return f"not understood: {line}"
        return "done"

    def _counts(self) -> dict[str, dict[str, int]]:
        entries = self.cluster.requests.entries
        kubelets = Counter(entry.path for entry in entries if "/proxy/stats/summary" in entry.path)
        others = Counter(f"{entry.verb} {entry.target}" for entry in entries if "/proxy/" not in entry.path)
        return {"kubelets": kubelets, "others": others}

    def _slow_down(self, delay_s: float) -> None:
        self._delay_s = delay_s
        for node in range(self._nodes):
            target = f"kubelet/node-{node}"
            self.cluster.faults.switch_off(target)
            if delay_s:
                self.cluster.faults.switch_on(target, Fault(Trouble.SLOW, delay_s=delay_s))

    def _add_node(self, *, padded: bool) -> None:
        node, where = f"node-{self._nodes}", address(self._nodes)
        self._nodes += 1
        self.cluster.add_node(node)
        self._by_address[where] = node
        name = self.cluster.add_device_manager(node, MANUFACTURER, where, self._port)
        if padded:
            self.cluster.store.edit(
                "pods",
                "gpustack-system",
                name,
                lambda pod: pod["metadata"].update(annotations={"bench/managed-fields": _PADDING}),
            )

    async def _serve_snapshots(self) -> None:
        app = web.Application()
        app.router.add_get("/monitor/snapshot", self._snapshot)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        pair = self._folder / "device-manager"
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pair / "tls.crt", pair / "tls.key")
        await web.TCPSite(runner, "0.0.0.0", 0, ssl_context=context).start()
        self._port = runner.addresses[0][1]

    async def _snapshot(self, request: web.Request) -> web.Response:
        transport = request.transport
        if transport is None:
            return web.Response(status=503)
        node = self._by_address[transport.get_extra_info("sockname")[0]]
        await asyncio.sleep(self._delay_s)
        if node in self._worst:
            return web.Response(body=self._worst[node], content_type="application/json")
        return web.json_response(snapshot(node, datetime.now(UTC)))


def snapshot(node: str, now: datetime) -> dict[str, object]:
    """What a device manager with ten cards says."""
    moment = now.isoformat().replace("+00:00", "Z")
    cards = [
        {
            "id": f"card-{index}",
            "index": index,
            "memory": 81920,
            "memoryUsage": 4096 + index,
            "memoryUtilization": 5,
            "coresUtilization": 10 + index,
            "temperature": 40 + index,
            "powerUsage": 120 + index,
            "unhealthy": False,
        }
        for index in range(10)
    ]
    return {
        "timestamp": moment,
        "periodSeconds": 15,
        "nodeName": node,
        "groups": [{"manufacturer": MANUFACTURER, "timestamp": moment, "accelerators": cards}],
        "collector": {"state": "ok", "since": moment},
    }


async def main(nodes: int, instances: int, folder: Path) -> None:
    """Serve until standard input ends."""
    bench = Bench(folder)
    await bench.start(nodes, instances)
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    print("ready", flush=True)  # noqa: T201 - a program; this is its result
    while line := await lines.readline():
        print(json.dumps(bench.answer(line.decode())), flush=True)  # noqa: T201
    await bench.cluster.stop()


if __name__ == "__main__":
    import uvloop

    uvloop.run(main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])))
