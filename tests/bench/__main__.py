"""``python -m tests.bench [NAME...]``: measures what we promise, beside what else could be had, on this machine.

Prints Markdown. Ends with 1 when a budget is missed, and says which. Never part of the tests: a figure depends on
the machine, and a noisy one proves nothing. Run it on a quiet machine with at least two cores.
"""

import argparse
import os
import platform
import ssl
import sys
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from tests.bench.measure import CLIENT_CORE, CORES
from tests.bench.options import Options
from tests.bench.report import Report

BENCHES: Final = ("sample", "memory", "serving", "start", "peers", "summary", "reads", "api", "hostile")
_PACKAGES: Final = ("aiohttp", "uvloop", "pydantic", "structlog", "prometheus-client", "msgspec", "nvidia-ml-py")


def main() -> int:
    """Runs the benches named, or all. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"any of {', '.join(BENCHES)} (all)")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds of each comparison (5)")
    parser.add_argument(
        "--peers-python", type=Path, help="interpreter that has nvitop-exporter and gpustack-runtime installed"
    )
    given = parser.parse_args()
    unknown = set(given.names) - set(BENCHES)
    if unknown:
        parser.error(f"no such bench: {', '.join(sorted(unknown))}")
    os.sched_setaffinity(0, {CLIENT_CORE})
    report = Report()
    report.section("Machine", _machine())
    for name in given.names or BENCHES:
        import_module(f"tests.bench.{name}").run(Options(given.rounds, given.peers_python), report)
    if report.missed:
        report.note(f"Budgets missed: {'; '.join(report.missed)}.")
    return 1 if report.missed else 0


def _machine() -> str:
    """One paragraph on where the figures come from."""
    model = next(
        (line.partition(": ")[2] for line in _lines("/proc/cpuinfo") if line.startswith("model name")),
        platform.machine(),
    )
    memory_kib = next(int(line.split()[1]) for line in _lines("/proc/meminfo") if line.startswith("MemTotal"))
    packages = ", ".join(f"{name} {_version(name)}" for name in _PACKAGES)
    load = os.getloadavg()[0]
    return (
        f"{len(CORES)} cores, {model}, {memory_kib / (1 << 20):.0f} GiB, Linux {platform.release()}, "
        f"CPython {platform.python_version()}, {ssl.OPENSSL_VERSION}, {packages}. "
        f"Load average when the run began: {load:.1f}. Figures are lowest / median / highest."
    )


def _lines(path: str) -> list[str]:
    return Path(path).read_text(encoding="utf-8").splitlines()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


if __name__ == "__main__":
    sys.exit(main())
