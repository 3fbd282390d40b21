"""What it costs to serve the snapshot, beside the least server that could serve the same bytes."""

import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tests.bench.clients import Connections, get, trusting
from tests.bench.measure import SERVER_CORE, cpu_s, interleaved, pin
from tests.bench.options import Options
from tests.bench.programs import certificates, device_manager, minimal_server
from tests.bench.report import Budget, Report, Spread, ratios
from tests.bench.sample import eight_cards
from tests.standins.nvml import NvmlStandin

_PATH: Final = "/monitor/snapshot"
_SECONDS: Final = 2.0
_CONNECTIONS: Final = (1, 10)


def run(options: Options, report: Report) -> None:
    """The bench."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        standin = NvmlStandin(folder)
        standin.play(eight_cards(0))
        ca_file, cert_dir, client = certificates(folder)
        flags = (f"--cert-dir={cert_dir}", "--monitor-period=60s")
        ours = stack.enter_context(device_manager(folder, standin, *flags))
        body = ours.ask().body
        guarded = stack.enter_context(
            device_manager(folder, standin, *flags, f"--client-ca-file={ca_file}", looked_at=False)
        )
        _until_sampled(guarded.port, ca_file, client, len(body))
        minimal_pid, minimal_port = stack.enter_context(minimal_server(folder, _PATH, body, cert_dir))
        servers = {
            "minimal": (minimal_pid, minimal_port, None),
            "ours": (ours.process.pid, ours.port, None),
            "ours, client certificates required": (guarded.process.pid, guarded.port, client),
        }
        for pid, _, _ in servers.values():
            pin(pid, SERVER_CORE)
        report.section(
            "Serving the snapshot",
            f"`GET {_PATH}`, {len(body):,} bytes, over kept-alive TLS: processor microseconds of the server per "
            "request. *minimal* is one route of aiohttp on uvloop with the same bytes "
            f"(`tests/bench/rivals/minimal_server.py`). {options.rounds} interleaved rounds of {_SECONDS:g} s.",
        )
        budgets = []
        for connections in _CONNECTIONS:
            found = interleaved(
                {
                    who: _asking(pid, Connections(port, trusting(ca_file, shown), connections), stack)
                    for who, (pid, port, shown) in servers.items()
                },
                options.rounds,
            )
            report.table(
                (f"{connections} in flight", "us of CPU a request", "ratio to minimal"),
                [(who, Spread.of(values), ratios(values, found["minimal"])) for who, values in found.items()],
            )
            ratio = ratios(found["ours"], found["minimal"])
            budgets.append(Budget(f"{connections} in flight: ratio to minimal", ratio, at_most=1.25))
        report.budgets(*budgets)


def _until_sampled(port: int, ca_file: Path, client: Path, size: int) -> None:
    """Wait for a snapshot with as many cards; it differs from another one's in its times alone."""
    with Connections(port, trusting(ca_file, client), 1) as connection:
        while len(connection.turn([get(_PATH)])[0]) < 0.9 * size:
            time.sleep(0.05)


def _asking(pid: int, connections: Connections, stack: ExitStack) -> Callable[[], float]:
    """Asks for a while on open connections; microseconds of the server's processor time per request."""
    stack.enter_context(connections)
    request = get(_PATH)
    connections.turn([request])

    def ask() -> float:
        connections.turn([request])
        begun_s = cpu_s(pid)
        answered, _ = connections.turns(request, _SECONDS)
        return (cpu_s(pid) - begun_s) / answered * 1e6

    return ask
