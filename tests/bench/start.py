"""How long it takes from the start of the program to the first snapshot with a sample."""

import json
import tempfile
import time
from pathlib import Path
from typing import Final

from tests.bench.clients import Connections, get
from tests.bench.measure import SERVER_CORE, cpu_s, pin
from tests.bench.options import Options
from tests.bench.programs import certificates, environment
from tests.bench.report import Budget, Report, Spread
from tests.bench.sample import eight_cards
from tests.e2e.device_manager import DeviceManager, trusting_anyone
from tests.standins.nvml import NvmlStandin

_LOOK_S: Final = 0.005


def run(options: Options, report: Report) -> None:
    """The bench."""
    report.section(
        "From start to first snapshot",
        "Milliseconds from the start of `devicemanager serve` to the first complete answer to "
        "`GET /monitor/snapshot` that carries eight stand-in cards (20 us a call), asked every 5 ms; "
        f"{options.rounds} starts each.",
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        standin = NvmlStandin(folder)
        standin.play(eight_cards(20))
        _, cert_dir, _ = certificates(folder)
        given = [_start(folder, standin, f"--cert-dir={cert_dir}") for _ in range(options.rounds)]
        made = [_start(folder, standin) for _ in range(options.rounds)]
    report.table(
        ("certificate", "ms", "ms of CPU of the parent"),
        [
            (what, Spread.of(ms for ms, _ in starts), Spread.of(cpu for _, cpu in starts))
            for what, starts in (("--cert-dir", given), ("self-signed", made))
        ],
    )
    report.budgets(
        Budget("start to first snapshot, --cert-dir: ms", Spread.of(ms for ms, _ in given), at_most=1500)
    )


def _start(folder: Path, standin: NvmlStandin, *flags: str) -> tuple[float, float]:
    begun_s = time.monotonic()
    running = DeviceManager(["--manufacturer=nvidia", "--no-pci-check", *flags], environment(standin), folder)
    try:
        pin(running.process.pid, SERVER_CORE)
        while not running.events("server_listening"):
            time.sleep(_LOOK_S)
        with Connections(running.port, trusting_anyone(), 1) as connection:
            while not json.loads(connection.turn([get("/monitor/snapshot")])[0])["groups"]:
                time.sleep(_LOOK_S)
        return (time.monotonic() - begun_s) * 1000, cpu_s(running.process.pid) * 1000
    finally:
        running.kill()
