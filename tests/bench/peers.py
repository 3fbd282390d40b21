"""nvitop-exporter and gpustack-runtime beside us, on the same stand-in, in the same run."""

import contextlib
import http.client
import json
import re
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.bench.measure import SERVER_CORE, alone_mib, cpu_s, interleaved, pss_mib
from tests.bench.options import Options
from tests.bench.programs import collector_of, device_manager, environment, started
from tests.bench.report import Report, Spread, ratios
from tests.bench.rivals import peer_samples
from tests.bench.sample import bare, eight_cards, ours
from tests.bench.whole_library import whole_library
from tests.e2e.device_manager import DeviceManager, cards
from tests.standins.nvml import NvmlStandin, Scenario

NVITOP: Final = "nvitop-exporter"
GPUSTACK: Final = "gpustack-runtime"
_SAMPLES: Final = 50
_WINDOW_S: Final = 20.0
_BAD_CARD: Final = 3
_HANG_MS: Final = 6_000
_LATE_S: Final = 3.0
_UNKNOWN: Final = 0xFFFFFFFF

_GAUGES: Final = {"memory": "memory_total", "used": "memory_used", "cores": "gpu_utilization"}
_TERMINAL: Final = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_SERIES: Final = re.compile(r'^(\w+)\{[^}]*index="(\d+)"[^}]*\} (\S+)$', re.MULTILINE)


def run(options: Options, report: Report) -> None:
    """The bench; says so where the peers are not installed."""
    python = options.peers_python
    report.section("Beside others", "The same eight stand-in cards, 20 us of processor time a call.")
    if python is None or not _installed(python):
        report.note(f"**Skipped**: --peers-python names no interpreter that has {NVITOP} and {GPUSTACK}.")
        return
    with tempfile.TemporaryDirectory() as name:
        bench = _Bench(Path(name), NvmlStandin(Path(name)), python)
        bench.samples(options.rounds, report)
        bench.long_running(report)
        bench.faults(report)


def _installed(python: Path) -> bool:
    probe = [str(python), "-c", "import nvitop_exporter, gpustack_runtime.detector"]
    return subprocess.run(probe, check=False, capture_output=True).returncode == 0


@dataclass(frozen=True, slots=True)
class _Fault:
    """What goes wrong with one card, or with the library; ``after`` is what plays some seconds later."""

    title: str
    scenario: Scenario
    after: Scenario | None = None


class _Bench:
    def __init__(self, folder: Path, standin: NvmlStandin, python: Path) -> None:
        self._folder = folder
        self._standin = standin
        self._python = str(python)
        self._environment = {
            **environment(standin),
            "LD_LIBRARY_PATH": str(whole_library(folder)),
            "GPUSTACK_RUNTIME_DETECT_NO_PCI_CHECK": "1",
        }

    def samples(self, rounds: int, report: Report) -> None:
        """Processor time of one sample."""
        scenario = eight_cards(20)
        found = interleaved(
            {
                "bare": lambda: bare(self._standin, scenario, 0),
                "ours, the whole child": lambda: ours(self._standin, scenario, 0.01, _SAMPLES * 4),
                f"{GPUSTACK}, in process": lambda: self._peer_sample(GPUSTACK),
                f"{NVITOP}, in process": lambda: self._peer_sample(NVITOP),
            },
            rounds,
        )
        report.table(
            ("one sample", "CPU ms", "ratio to bare"),
            [(who, Spread.of(values), ratios(values, found["bare"])) for who, values in found.items()],
        )

    def _peer_sample(self, peer: str) -> float:
        self._standin.play(eight_cards(20))
        command = [self._python, peer_samples.__file__, peer, str(_SAMPLES)]
        done = subprocess.run(
            ["taskset", "-c", str(SERVER_CORE), *command], env=self._environment, check=True, capture_output=True
        )
        return float(done.stdout)

    def long_running(self, report: Report) -> None:
        """Memory and idle processor time."""
        self._standin.play(eight_cards(20))
        rows = []
        with device_manager(self._folder, self._standin, "--monitor-period=1s") as running:
            rows.append(_resting("ours, HTTPS, every 1 s", running.process.pid, collector_of(running)))
        with self._nvitop() as (process, _):
            rows.append(_resting(f"{NVITOP}, HTTP, every 1 s", process.pid))
        watch = [self._python, "-m", "gpustack_runtime", "detect", "--format", "json", "--watch", "1"]
        with (
            open("/dev/null", "wb") as nowhere,
            subprocess.Popen(
                ["taskset", "-c", str(SERVER_CORE), *watch], env=self._environment, stdout=nowhere, stderr=nowhere
            ) as process,
        ):
            rows.append(_resting(f"{GPUSTACK} detect --watch 1, serves nothing", process.pid))
            process.kill()
        report.table((f"after {_WINDOW_S:g} s", "PSS, MiB", "alone, MiB", "CPU ms a second"), rows)

    def faults(self, report: Report) -> None:
        """What each says of card 3 while something is wrong with it."""
        report.table(
            ("fault", "ours", NVITOP, f"{GPUSTACK} detect"),
            [
                (fault.title, self._tried(self._ours, fault), self._tried(self._exporter, fault),
                 self._tried(self._detect, fault))
                for fault in _faults()
            ],
        )  # fmt: skip

    def _tried(self, observe: Callable[[_Fault], str], fault: _Fault) -> str:
        self._standin.play(fault.scenario)
        try:
            return observe(fault)
        except (
            OSError,
            subprocess.SubprocessError,
            AssertionError,
            RuntimeError,
            http.client.HTTPException,
        ) as error:
            return f"no answer: {type(error).__name__}"

    def _ours(self, fault: _Fault) -> str:
        running = DeviceManager(
            ["--manufacturer=nvidia", "--no-pci-check", "--monitor-period=1s"],
            environment(self._standin),
            self._folder,
        )
        try:
            self._change(fault)
            seen = running.until(
                lambda one: len(cards(one)) == len(_all()) or one["collector"]["state"] == "failed"
            )
            taken_at = seen["timestamp"]
            seen = running.until(lambda one: one["timestamp"] > taken_at)  # the next sample: nothing stands still
            return _described({card["index"]: _our_card(card) for card in cards(seen)})
        finally:
            running.kill()

    def _exporter(self, fault: _Fault) -> str:
        with self._nvitop() as (process, port):
            self._change(fault)
            if process.poll() is not None:
                return f"ended with exit code {process.returncode}"
            time.sleep(2.5)
            first = _scraped(port)
            time.sleep(2.5)
            last = _scraped(port)
            stands_still = (
                "; no figure of card or host moves meanwhile" if _figures(first) == _figures(last) else ""
            )
            return _described(_exported(last)) + stands_still

    def _detect(self, fault: _Fault) -> str:
        begun_s = time.monotonic()
        done = subprocess.run(
            [self._python, "-m", "gpustack_runtime", "detect", "--format", "json"],
            env=self._environment, check=False, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        took = time.monotonic() - begun_s
        self._change(fault)
        found = json.loads(_TERMINAL.sub("", done.stdout) or "[]")
        text = _described({one["index"]: _detected(one) for one in found})
        return f"exit {done.returncode}: {text}" + (f", after {took:.1f} s" if took > 3 else "")

    def _change(self, fault: _Fault) -> None:
        if fault.after is not None:
            time.sleep(_LATE_S)
            self._standin.play(fault.after)

    @contextlib.contextmanager
    def _nvitop(self) -> Iterator[tuple["subprocess.Popen[str]", int]]:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        command = [self._python, "-m", "nvitop_exporter", "--bind-address", "127.0.0.1"]
        arguments = ["--port", str(port), "--interval", "1"]
        with started([*command, *arguments], self._environment) as process:
            until = time.monotonic() + 10
            while process.poll() is None and time.monotonic() < until:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                    break
                time.sleep(0.05)
            yield process, port


def _all() -> range:
    return range(8)


def _faults() -> tuple[_Fault, ...]:
    def bad(function: str, *, code: int | None = None, delay_ms: int | None = None) -> Scenario:
        return eight_cards(20).call(function, _BAD_CARD, code=code, delay_ms=delay_ms)

    implausible = eight_cards(20)
    implausible.card(_BAD_CARD, gpu=_UNKNOWN)
    return (
        _Fault("(a) every call on card 3 says GPU_IS_LOST", bad("*", code=15)),
        _Fault("(b) memory of card 3 is NOT_SUPPORTED", bad("nvmlDeviceGetMemoryInfo", code=3).call(
            "nvmlDeviceGetMemoryInfo_v2", _BAD_CARD, code=3)),
        _Fault(f"(c) utilization of card 3 hangs {_HANG_MS / 1000:g} s", bad(
            "nvmlDeviceGetUtilizationRates", delay_ms=_HANG_MS)),
        _Fault(f"(d) DRIVER_NOT_LOADED for the first {_LATE_S:g} s", eight_cards(20).call(
            "nvmlInitWithFlags", "-", code=9), eight_cards(20)),
        _Fault("(e) utilization of card 3 is 4294967295, with success", implausible),
    )  # fmt: skip


def _resting(who: str, *pids: int) -> tuple[str, float, float, float]:
    time.sleep(4)
    begun_s = sum(cpu_s(pid) for pid in pids)
    time.sleep(_WINDOW_S)
    spent_s = sum(cpu_s(pid) for pid in pids) - begun_s
    return who, pss_mib(*pids), alone_mib(*pids), spent_s * 1000 / _WINDOW_S


def _described(found: Mapping[int, str]) -> str:
    """How many cards there are, what is said of the bad one, and of its neighbour for comparison."""
    if not found:
        return "lists no card at all"
    bad = found.get(_BAD_CARD, "not listed")
    good = found.get(_BAD_CARD + 1, "not listed")
    return f"{len(found)} cards; card {_BAD_CARD}: {bad}; card {_BAD_CARD + 1}: {good}"


def _our_card(card: Mapping[str, object]) -> str:
    figures = {"memory": card.get("memory"), "used": card.get("memoryUsage"), "cores": card.get("coresUtilization")}
    text = ", ".join(f"{name} {value}" for name, value in figures.items() if value is not None)
    why = card.get("unhealthyReason") or card.get("absent") or ""
    return f"{text or 'no figures'}{f' ({why})' if why else ''}"


def _figures(text: str) -> list[str]:
    """What the exporter says of cards and host, without what it says of its own process."""
    return [
        line
        for line in text.splitlines()
        if line.startswith(("host_", "gpu_", "nvitop_")) and "_created" not in line
    ]


def _scraped(port: int) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
    finally:
        connection.close()
    return text


def _exported(text: str) -> dict[int, str]:
    found: dict[int, dict[str, str]] = {}
    for name, index, value in _SERIES.findall(text):
        for short, gauge in _GAUGES.items():
            if gauge in name:
                found.setdefault(int(index), {})[short] = value
    return {
        index: ", ".join(f"{name} {value}" for name, value in sorted(figures.items()))
        for index, figures in found.items()
    }


def _detected(device: Mapping[str, object]) -> str:
    figures = {"memory": "memory", "used": "memory_used", "cores": "cores_utilization"}
    return ", ".join(f"{short} {device.get(name)}" for short, name in figures.items())
