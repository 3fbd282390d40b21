"""Discovery of a worker while peers send it the worst that there is to read."""

import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.bench.clients import Connections, get, trusting
from tests.bench.cluster import NAMESPACE, READER_TOKEN
from tests.bench.clusters import Cluster, cluster, worker
from tests.bench.measure import MIB, cpu_s, percentile
from tests.bench.options import Options
from tests.bench.report import Budget, Report, Spread

_NODES: Final = 10
_HOSTILE: Final = 3
_PREFIX: Final = "/apis/worker.gpustack.ai/v1"
_HEADERS: Final = {"Authorization": f"Bearer {READER_TOKEN}", "Accept": "application/json"}
_SECONDS: Final = 6.0
_NOTHING_KEPT: Final = ("--kubelet-max-age=0s", "--snapshot-max-age=0s")


def run(options: Options, report: Report) -> None:
    """The bench."""
    report.section(
        "Peers that send the worst",
        f"A worker that reads {_NODES} nodes, of which {_HOSTILE} send what takes longest to read: summaries of up "
        "to 16 MiB (a pod of millions of containers; 2,000 full pods; 0.9 million numbers) and snapshots of up to "
        "4 MiB (a million groups; 1,024 cards with 8,192 slices; 114,000 unknown keys). Somebody reads an Instance "
        "of each of the three in a closed loop. The clients share their core with the cluster that sends.",
    )
    rows, found = [], {}
    for what, flags in (("as it is by default", ()), ("with nothing kept", _NOTHING_KEPT)):
        rounds = [_discovery(flags) for _ in range(options.rounds)]
        alone, hostile, longest, busy, peak = (Spread.of(figures) for figures in zip(*rounds, strict=True))
        found[what] = hostile
        rows.append((what, alone, hostile, longest, busy, peak))
    report.table(
        (
            "worker",
            "alone: p99 ms",
            "while they send: p99 ms",
            "longest ms",
            "share of a core",
            "peak MiB",
        ),
        rows,
    )
    report.budgets(Budget("discovery while they send: p99 ms", found["as it is by default"], at_most=50))


def _discovery(flags: tuple[str, ...]) -> tuple[float, float, float, float, float]:
    """In ms: p99 alone, p99 and the longest while they send; the worker's share of a core then, and its peak."""
    with tempfile.TemporaryDirectory() as name, cluster(_NODES, _NODES, Path(name)) as standin:
        context = trusting(standin.folder / "ca.crt")
        with worker(standin, *flags) as (pid, port), Connections(port, context, 1) as one:
            discovery = get(_PREFIX, _HEADERS)
            one.turn([discovery])
            alone = one.latencies_s(discovery, 1.0)
            standin.ask("worst")
            with _reading(standin, port):
                begun_s = cpu_s(pid)
                taken = one.latencies_s(discovery, _SECONDS)
                busy = (cpu_s(pid) - begun_s) / _SECONDS
            return percentile(alone, 99) * 1e3, percentile(taken, 99) * 1e3, max(taken) * 1e3, busy, _peak_mib(pid)


@contextmanager
def _reading(standin: Cluster, port: int) -> Iterator[None]:
    """Reads an Instance on each hostile node, over and over, for the length of the block."""
    requests = [
        get(f"{_PREFIX}/namespaces/{NAMESPACE}/instances/instance-{number}/metrics", _HEADERS)
        for number in range(_HOSTILE)
    ]
    ended = threading.Event()

    def read() -> None:
        with Connections(port, trusting(standin.folder / "ca.crt"), _HOSTILE) as readers:
            while not ended.wait(0.02):
                readers.turn(requests)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield
    finally:
        ended.set()
        reader.join()


def _peak_mib(pid: int) -> float:
    (line,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024 / MIB
