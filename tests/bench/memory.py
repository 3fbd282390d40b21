"""What the device manager takes of memory, and whether it takes more over time."""

import gc
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from tests.bench.clients import Connections, get, trusting
from tests.bench.measure import KIB, MIB, alone_mib, descriptors, pin, pss_mib, settle, threads
from tests.bench.measure import SERVER_CORE as CORE
from tests.bench.options import Options
from tests.bench.programs import certificates, collector_of, device_manager, environment, spoken, started
from tests.bench.report import Budget, Report
from tests.bench.sample import eight_cards
from tests.e2e.device_manager import DeviceManager
from tests.standins.nvml import NvmlStandin

_FEW: Final = 20
_MANY: Final = 240
_BURSTS: Final = 8
_SOURCES: Final = tuple(f"127.0.1.{number}" for number in range(1, 11))
"""Peers of at most 24 connections each; one may have 32."""

_WARM_SAMPLES: Final = 1_000
_SAMPLES: Final = 10_000


def run(options: Options, report: Report) -> None:
    """The bench."""
    del options
    report.section(
        "Memory of the device manager",
        "`devicemanager serve --cert-dir` with its collector process on eight stand-in cards, in MiB. *PSS* "
        "divides pages among all processes of the machine that map them; *alone* counts them whole, as if no "
        "other Python program ran. The larger one counts.",
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        standin = NvmlStandin(folder)
        standin.play(eight_cards(0))
        ca_file, cert_dir, _ = certificates(folder)
        with device_manager(folder, standin, f"--cert-dir={cert_dir}", "--monitor-period=15s") as running:
            pin(running.process.pid, CORE)
            at_rest = _at_rest(running, report)
            connection_kib, growth_mib = _connections(running, ca_file, report)
        samples = _samples(standin, cert_dir, report)
    report.budgets(
        Budget("parent and child at rest: MiB", at_rest, at_most=64),
        Budget("the same, what we aim for: MiB", at_rest, at_most=54),
        Budget("one idle TLS connection: KiB", connection_kib, at_most=64),
        Budget(
            f"growth from the second burst of {_MANY} connections to the last of {_BURSTS}: MiB",
            growth_mib,
            at_most=1,
        ),
        *samples,
    )


def _at_rest(running: DeviceManager, report: Report) -> float:
    parent, child = running.process.pid, collector_of(running)
    settle(lambda: pss_mib(parent, child))
    rows = [
        (what, pss_mib(*pids), alone_mib(*pids))
        for what, pids in (("parent", (parent,)), ("child", (child,)), ("together", (parent, child)))
    ]
    report.table(("at rest", "PSS", "alone"), rows)
    return max(rows[-1][1:])


def _connections(running: DeviceManager, ca_file: Path, report: Report) -> tuple[float, float]:
    """KiB of one connection, and by how many MiB repeated bursts of them make the process grow."""
    pid, context, request = running.process.pid, trusting(ca_file), get("/monitor/snapshot")

    def memory() -> float:
        return alone_mib(pid)

    with Connections(running.port, context, _FEW, _SOURCES, request):
        with_few = settle(memory)
    after = []
    with_many = 0.0
    for burst in range(_BURSTS):
        with Connections(running.port, context, _MANY, _SOURCES, request):
            if not burst:
                with_many = settle(memory)
        gc.collect()
        time.sleep(1)
        after.append(settle(memory))
    report.table(
        ("parent alone, MiB", f"with {_FEW} connections", f"with {_MANY}", "after each burst of them"),
        [("one request each, then idle", with_few, with_many, " / ".join(f"{one:.2f}" for one in after))],
    )
    return (with_many - with_few) / (_MANY - _FEW) * MIB / KIB, max(after[1:]) - after[1]


def _samples(standin: NvmlStandin, cert_dir: Path, report: Report) -> list[Budget]:
    """Growth over many samples, of parent and child."""
    command = [
        "-m",
        "tests.bench.composed",
        "0.01",
        str(cert_dir),
        str(_WARM_SAMPLES),
        str(_WARM_SAMPLES + _SAMPLES),
    ]
    with started([sys.executable, *command], environment(standin)) as process:
        spoken(process)
        pids = (process.pid, _only_child(process.pid))
        before = [(alone_mib(pid), descriptors(pid), threads(pid)) for pid in pids]
        spoken(process)
        now = [(alone_mib(pid), descriptors(pid), threads(pid)) for pid in pids]
    report.table(
        (f"over {_SAMPLES:,} samples at 10 ms", "MiB before", "MiB after", "descriptors", "threads"),
        [
            (who, was[0], is_[0], f"{was[1]} to {is_[1]}", f"{was[2]} to {is_[2]}")
            for who, was, is_ in zip(("parent", "child"), before, now, strict=True)
        ],
    )
    grown = [sum(is_[part] - was[part] for was, is_ in zip(before, now, strict=True)) for part in range(3)]
    return [
        Budget(f"growth over {_SAMPLES:,} samples: MiB", grown[0], at_most=1),
        Budget("the same: descriptors", grown[1], at_most=0),
        Budget("the same: threads", grown[2], at_most=0),
    ]


def _only_child(pid: int) -> int:
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    return int(child)
