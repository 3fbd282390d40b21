"""The read of an Instance from its sources, over a cluster of stand-ins; and what a worker takes of memory."""

import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final

import uvloop

from devicemanager.tls.material import Pair, TrustedCAs, client_context
from devicemanager.worker.client import Client, ReadOptions, connect
from devicemanager.worker.credentials import Kubeconfig
from devicemanager.worker.outcomes import Answer
from tests.bench.cluster import DEVICE_MANAGER_NAME, NAMESPACE
from tests.bench.clusters import Cluster, cluster, worker
from tests.bench.measure import KIB, MIB, SERVER_CORE, alone_mib, percentile, pss_mib, settle
from tests.bench.options import Options
from tests.bench.report import Budget, Report, Spread

_NODES: Final = 50
_INSTANCES: Final = 500
_SOURCE_S: Final = 0.02
_SECONDS: Final = 6.0
_KNOWN_NODES: Final = 5_000
_FEW, _MANY = 20, 200

Read = Callable[[int], Awaitable[None]]


def run(options: Options, report: Report) -> None:
    """The bench."""
    report.section(
        "Reading Instances",
        f"{_INSTANCES} Instances with a card each on {_NODES} stand-in nodes; kubelets and device managers take "
        f"{_SOURCE_S * 1000:.0f} ms to answer. Readers in a closed loop ask for one Instance after the other. *API "
        "reads alone* is the same client asking the API server for each Instance and its pod, and nothing else. "
        "The reader is pinned to one core; the stand-in cluster, all its nodes and device managers share the "
        "other, so that its own limit is in every figure.",
    )
    with tempfile.TemporaryDirectory() as name, cluster(_NODES, _INSTANCES, Path(name)) as standin:
        os.sched_setaffinity(0, {SERVER_CORE})
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            budgets = runner.run(_loops(standin, options.rounds, report))
        report.budgets(*budgets)
    with tempfile.TemporaryDirectory() as name, cluster(_NODES, 0, Path(name)) as standin:
        report.budgets(*_memory(standin, report))


@dataclass(frozen=True, slots=True)
class _Loop:
    """One closed loop: what it did, how long each read took, and the reader's processor time."""

    per_second: float
    latencies_s: list[float]
    cpu_s: float

    @property
    def cpu_ms(self) -> float:
        """Of the reader, per read."""
        return self.cpu_s / len(self.latencies_s) * 1000


async def _loops(standin: Cluster, rounds: int, report: Report) -> list[Budget]:
    standin.ask(f"delay {_SOURCE_S}")
    folder = standin.folder
    certificate, key = ((folder / "worker-client" / f"tls.{part}").read_bytes() for part in ("crt", "key"))
    context = client_context(TrustedCAs.parse((folder / "ca.crt").read_bytes()), Pair.parse(certificate, key))
    options = ReadOptions(device_manager_tls=lambda: context, device_manager_server_name=DEVICE_MANAGER_NAME)
    found: dict[tuple[str, int], list[_Loop]] = {}
    reads = kubelet_reads = api_reads = 0
    async with connect(Kubeconfig(str(folder / "kubeconfig")), options) as side:
        whole, alone = _whole_read(side), _api_reads(side)
        await _closed_loop(whole, _MANY, _SECONDS / 2)  # so that no handshake is measured
        for _ in range(rounds):
            for readers in (_FEW, _MANY):
                standin.ask("reset")
                loop = await _closed_loop(whole, readers, _SECONDS)
                kubelets, others = standin.counts()
                kubelet_reads = max([kubelet_reads, *kubelets.values()])
                reads += len(loop.latencies_s)
                api_reads += sum(times for what, times in others.items() if not what.startswith("watch"))
                found.setdefault(("whole reads", readers), []).append(loop)
                found.setdefault(("API reads alone", readers), []).append(
                    await _closed_loop(alone, readers, _SECONDS / 2)
                )
    report.table(
        ("readers", "what", "reads a second", "p50 ms", "p99 ms", "CPU ms of the reader per read"),
        [
            (
                readers,
                what,
                Spread.of(loop.per_second for loop in loops),
                Spread.of(statistics.median(loop.latencies_s) * 1000 for loop in loops),
                Spread.of(percentile(loop.latencies_s, 99) * 1000 for loop in loops),
                Spread.of(loop.cpu_ms for loop in loops),
            )
            for (what, readers), loops in found.items()
        ],
    )
    median = Spread.of(statistics.median(loop.latencies_s) / _SOURCE_S for loop in found["whole reads", _FEW])
    share = Spread.of(
        ours.per_second / bare.per_second
        for ours, bare in zip(found["whole reads", _MANY], found["API reads alone", _MANY], strict=True)
    )
    return [
        Budget(f"{_FEW} readers: p50 in times of the slowest source", median, at_most=3),
        Budget(f"{_MANY} readers: throughput in times of the API reads alone", share, at_least=0.5),
        Budget(f"reads of one kubelet in {_SECONDS:g} s, of a window of 15 s", kubelet_reads, at_most=1),
        Budget("API reads per request, shared reads and fallback apart", api_reads / reads, at_most=2),
    ]


def _whole_read(side: Client) -> Read:
    async def read(number: int) -> None:
        outcome = await side.reader.read(NAMESPACE, f"instance-{number % _INSTANCES}")
        if not isinstance(outcome, Answer):
            raise RuntimeError(f"no answer: {outcome}")  # noqa: TRY004 - a bench that measures failures is wrong

    return read


def _api_reads(side: Client) -> Read:
    async def read(number: int) -> None:
        name = f"instance-{number % _INSTANCES}"
        instances = f"/apis/worker.gpustack.ai/v1alpha1/namespaces/{NAMESPACE}/instances/{name}"
        query = {"resourceVersion": "0"}
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(side.cluster.get(instances, query))
            tasks.create_task(side.cluster.get(f"/api/v1/namespaces/{NAMESPACE}/pods/{name}", query))

    return read


async def _closed_loop(read: Read, readers: int, seconds: float) -> _Loop:
    numbers = count()
    latencies: list[float] = []
    begun_s, cpu_begun_s = time.monotonic(), time.process_time()

    async def one() -> None:
        while (now_s := time.monotonic()) < begun_s + seconds:
            await read(next(numbers))
            latencies.append(time.monotonic() - now_s)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(readers):
            tasks.create_task(one())
    return _Loop(len(latencies) / (time.monotonic() - begun_s), latencies, time.process_time() - cpu_begun_s)


def _memory(standin: Cluster, report: Report) -> list[Budget]:
    """A worker at rest, and what knowing more nodes costs it."""
    with worker(standin) as (pid, _):
        few = settle(lambda: alone_mib(pid), pause_s=1.5)
        few_pss = pss_mib(pid)
    standin.ask(f"grow {_KNOWN_NODES - _NODES}")
    standin.ask("reset")
    with worker(standin) as (pid, _):
        while standin.counts()[1].get("watch pods", 0) == 0:  # the watch begins when the last page was read
            time.sleep(0.2)
        many = settle(lambda: alone_mib(pid), pause_s=1.5)
    each_kib = (many - few) * MIB / KIB / (_KNOWN_NODES - _NODES)
    report.table(
        ("worker at rest", "PSS, MiB", "alone, MiB"),
        [(f"{_NODES} nodes known", few_pss, few), (f"{_KNOWN_NODES:,} nodes known", "", many)],
    )
    return [
        Budget("worker at rest: MiB", max(few, few_pss), at_most=90),
        Budget(f"each of {_KNOWN_NODES:,} nodes known: KiB", each_kib, at_most=12),
    ]
