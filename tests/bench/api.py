"""The worker as a Kubernetes API: many readers of one Instance, a cold list, and discovery under load."""

import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from devicemanager.worker.apiserver.in_flight import MAX_IN_FLIGHT
from tests.bench.clients import Connections, get, trusting
from tests.bench.cluster import NAMESPACE, READER_TOKEN
from tests.bench.clusters import Cluster, cluster, worker
from tests.bench.measure import cpu_s, interleaved, percentile
from tests.bench.options import Options
from tests.bench.programs import minimal_server
from tests.bench.report import Budget, Report, Spread, ratios

_NODES: Final = 50
_READERS: Final = 100
_LISTED: Final = 200
_SECONDS: Final = 3.0
_PREFIX: Final = "/apis/worker.gpustack.ai/v1"
_LIST: Final = f"{_PREFIX}/namespaces/{NAMESPACE}/instancemetrics"
_HEADERS: Final = {"Authorization": f"Bearer {READER_TOKEN}", "Accept": "application/json"}
_SLOW_S: Final = 2.0
_WARMING: Final = 20
_SOURCES: Final = tuple(f"127.0.1.{number}" for number in range(1, 11))
"""Peers of at most 40 connections each; one may have 56 requests under way."""
_SENDING_S: Final = 0.6
_SETTLING_S: Final = 0.4
"""For the reads of the API server that come before the wait for the sources."""

_WAITING_S: Final = 0.6
_FAST_S: Final = 0.02


def run(options: Options, report: Report) -> None:
    """The bench."""
    report.section(
        "The aggregated API",
        "`devicemanager worker` on one core, asked over TLS by clients on the other, where the stand-in cluster "
        f"of {_NODES} nodes runs too. *minimal* is one route of aiohttp on uvloop that returns the same bytes.",
    )
    with tempfile.TemporaryDirectory() as name, cluster(_NODES, _LISTED, Path(name)) as standin:
        standin.ask(f"delay {_FAST_S}")
        with worker(standin) as (pid, port):
            readers = _readers_of_one(standin, pid, port, options.rounds, report)
        lists = Spread.of(_cold_list_ms(standin) for _ in range(options.rounds))
    with tempfile.TemporaryDirectory() as name, cluster(_NODES, MAX_IN_FLIGHT, Path(name)) as standin:
        rounds = [_discovery(standin) for _ in range(options.rounds)]
    alone, waiting, arriving, still = (Spread.of(figures) for figures in zip(*rounds, strict=True))
    report.table(
        ("what", "ms"),
        [
            (f"list of {_LISTED} Instances on {_NODES} nodes, nothing kept, sources of 20 ms", lists),
            ("discovery, nothing else going on: p99", alone),
            (f"discovery while {MAX_IN_FLIGHT} reads arrive: p99", arriving),
            (f"discovery while {MAX_IN_FLIGHT} reads wait for sources of 2 s: p99", waiting),
        ],
    )
    report.note(f"Of the {MAX_IN_FLIGHT} reads, {still} still waited when the last of these was measured.")
    report.budgets(
        Budget(f"{_READERS} readers of one Instance: requests a second", readers, at_least=1500),
        Budget(f"cold list of {_LISTED} Instances: ms", lists, at_most=1000),
        Budget("discovery while the cap's worth of reads wait: p99 ms", waiting, at_most=20),
    )


def _readers_of_one(standin: Cluster, pid: int, port: int, rounds: int, report: Report) -> Spread:
    """Requests a second that the worker's core can answer."""
    path = f"{_PREFIX}/namespaces/{NAMESPACE}/instances/instance-0/metrics"
    request, context = get(path, _HEADERS), trusting(standin.folder / "ca.crt")
    with ExitStack() as stack:
        ours = stack.enter_context(Connections(port, context, _READERS, _SOURCES, get(_PREFIX, _HEADERS)))
        (body, *_) = ours.turn([request])
        minimal_pid, minimal_port = stack.enter_context(
            minimal_server(standin.folder, path, body, standin.folder / "worker")
        )
        minimal = stack.enter_context(Connections(minimal_port, context, _READERS))
        standin.ask("reset")
        walls: dict[str, list[float]] = {"minimal": [], "worker": []}

        def asking(who: str, server: int, connections: Connections) -> Callable[[], float]:
            def ask() -> float:
                connections.turn([request])
                begun_s = cpu_s(server)
                answered, took_s = connections.turns(request, _SECONDS)
                walls[who].append(answered / took_s)
                return (cpu_s(server) - begun_s) / answered * 1e6

            return ask

        found = interleaved(
            {"minimal": asking("minimal", minimal_pid, minimal), "worker": asking("worker", pid, ours)}, rounds
        )
    _, others = standin.counts()
    report.table(
        (f"{_READERS} readers of one Instance, {len(body):,} bytes", "us of CPU a request", "ratio to minimal",
         "requests a second of one core", "requests a second seen by the client"),
        [
            (
                who,
                Spread.of(values),
                ratios(values, found["minimal"]),
                Spread.of(1e6 / value for value in values),
                Spread.of(walls[who]),
            )
            for who, values in found.items()
        ],
    )  # fmt: skip
    report.note(f"Reads of the API server meanwhile: {sum(others.values()):,}, of {others}.")
    return Spread.of(1e6 / value for value in found["worker"])


def _cold_list_ms(standin: Cluster) -> float:
    """One list by a worker that has read nothing yet; who asks is known already."""
    with worker(standin) as (_, port), Connections(port, trusting(standin.folder / "ca.crt"), 1) as connection:
        connection.turn([get(_PREFIX, _HEADERS)])
        begun_s = time.monotonic()
        (body,) = connection.turn([get(_LIST, _HEADERS)])
        took_s = time.monotonic() - begun_s
    if body.count(b'"kind":"InstanceMetrics"') < _LISTED and body.count(b'"nodeName"') < _LISTED:
        raise AssertionError(f"not all Instances were listed: {body[:500]!r}")
    return took_s * 1000


def _discovery(standin: Cluster) -> tuple[float, float, float, float]:
    """p99 of discovery in ms: alone, while the cap's worth of reads wait, while they arrive; and how many wait."""
    standin.ask("delay 0")
    discovery = get(_PREFIX, _HEADERS)
    reads = [
        get(f"{_PREFIX}/namespaces/{NAMESPACE}/instances/instance-{number}/metrics", _HEADERS)
        for number in range(MAX_IN_FLIGHT)
    ]
    context = trusting(standin.folder / "ca.crt")
    with worker(standin, "--kubelet-max-age=0s", "--snapshot-max-age=0s") as (_, port), ExitStack() as stack:
        one = stack.enter_context(Connections(port, context, 1))
        one.turn([discovery])
        alone = one.latencies_s(discovery, 1.0)
        with Connections(port, context, _WARMING) as warming:  # then all may, and nobody has to ask whether
            for first in range(0, MAX_IN_FLIGHT, _WARMING):
                warming.turn(reads[first : first + _WARMING])
        waiting = stack.enter_context(Connections(port, context, MAX_IN_FLIGHT, _SOURCES, discovery))
        standin.ask(f"delay {_SLOW_S}")
        sender = threading.Thread(target=waiting.send, args=(reads, _SENDING_S / MAX_IN_FLIGHT))
        sender.start()
        arriving: list[float] = []
        while sender.is_alive():
            arriving += one.latencies_s(discovery, 0.1)
        time.sleep(_SETTLING_S)
        while_waiting = one.latencies_s(discovery, _WAITING_S)
        still = waiting.unanswered()
    p99 = [percentile(taken, 99) * 1000 for taken in (alone, while_waiting, arriving)]
    return p99[0], p99[1], p99[2], float(still)
