"""Decoding a kubelet's summary of many pods to the figures that we need, beside ``json.loads`` alone."""

import json
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from devicemanager.demo.cluster import figures, objects
from devicemanager.demo.cluster.objects import InstanceSpec
from devicemanager.wire import kubelet_summary
from tests.bench.measure import SERVER_CORE, interleaved
from tests.bench.options import Options
from tests.bench.report import Budget, Report, Spread, ratios

_PODS: Final = 500
_DECODES: Final = 20
_NOW: Final = datetime(2026, 1, 1, 12, tzinfo=UTC)


def run(options: Options, report: Report) -> None:
    """The bench."""
    body = summary_body(_PODS)
    report.section(
        "Decoding a kubelet's summary",
        f"{_PODS} pods of two containers, {len(body):,} bytes, in process; {options.rounds} interleaved rounds of "
        f"{_DECODES} decodes, the median of a round counts once.",
    )
    os.sched_setaffinity(0, {SERVER_CORE})
    found = interleaved(
        {
            "json.loads": lambda: _decoding_ms(json.loads, body),
            "kubelet_summary.decode": lambda: _decoding_ms(kubelet_summary.decode, body),
        },
        options.rounds,
    )
    plain = found["json.loads"]
    report.table(
        ("decoder", "ms", "ratio to json.loads"),
        [(who, Spread.of(values), ratios(values, plain)) for who, values in found.items()],
    )
    ratio = ratios(found["kubelet_summary.decode"], plain)
    report.budgets(Budget("decoding to the needed figures: ratio to json.loads", ratio, at_most=0.2))


def summary_body(pods: int) -> bytes:
    """What the stand-in's kubelet says of so many pods, compact."""
    made = [
        objects.instance_pod(
            InstanceSpec("team-a", f"instance-{number}", "node-a", containers=("main", "sidecar")),
            f"instance-uid-{number}",
            f"3f2a4a9e-0000-4000-8000-{number:012d}",
            _NOW,
            "10.42.0.1",
        )
        for number in range(pods)
    ]
    document = figures.stats_summary("node-a", made, _NOW)
    return json.dumps(document, separators=(",", ":")).encode()


def _decoding_ms(decode: Callable[[bytes], object], body: bytes) -> float:
    taken = []
    for _ in range(_DECODES):
        begun_s = time.thread_time()
        decode(body)
        taken.append(time.thread_time() - begun_s)
    return sorted(taken)[_DECODES // 2] * 1000
