"""What one sample of eight NVIDIA cards costs, on the stand-in for NVIDIA's library."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.bench.measure import SERVER_CORE, cpu_s, interleaved, pin
from tests.bench.options import Options
from tests.bench.programs import collector_of, device_manager, environment
from tests.bench.report import Budget, Report, Spread, ratios
from tests.bench.rivals import bare_nvml
from tests.standins.child import CollectorChild
from tests.standins.nvml import NvmlStandin, Scenario

CARDS: Final = 8
_PERIOD_S: Final = 0.01
_GPM_PERIOD_S: Final = 0.12
"""Above the least interval between two GPM samples, so that every tick computes one."""

_SAMPLES: Final = 300
_GPM_SAMPLES: Final = 30
_WARM: Final = 20
_WINDOW_S: Final = 12.0


def run(options: Options, report: Report) -> None:
    """The bench."""
    report.section(
        "One sample of eight cards",
        "Processor milliseconds of one sample. *bare* is the least loop over nvidia-ml-py "
        "(`tests/bench/rivals/bare_nvml.py`: 9 figures, 7 calls a card, back to back, nothing handled). "
        "*ours* is the real collector process, measured from outside and so with its sleep, its lines and its "
        f"writes; GPM is sampled every {_GPM_PERIOD_S:g} s, all else every {_PERIOD_S:g} s. "
        f"{options.rounds} interleaved rounds.",
    )
    with tempfile.TemporaryDirectory() as name:
        standin = NvmlStandin(Path(name))
        at_20_us = _compare(standin, 20, options, report)
        _compare(standin, 0, options, report)
        spent = _once_a_second(standin, Path(name), options.rounds)
    parent, child = zip(*spent, strict=True)
    together = Spread.of(sum(pair) for pair in spent)
    report.table(
        ("once a second, 20 us a call: ms of CPU a second", "lowest / median / highest"),
        [("parent", Spread.of(parent)), ("child", Spread.of(child)), ("together", together)],
    )
    report.budgets(
        Budget("child, 20 us a call: ratio to bare", at_20_us, at_most=2.0),
        Budget("parent and child, period 1 s: ms of CPU a second", together, at_most=4.0),
    )


def _compare(standin: NvmlStandin, call_us: int, options: Options, report: Report) -> Spread:
    """A table for one cost of a call; returns the ratio that the budget is about."""
    plain, gpm = eight_cards(call_us), eight_cards(call_us, gpm=1, gpm_sm=40)
    subjects: dict[str, Callable[[], float]] = {
        "bare, back to back": lambda: bare(standin, plain, 0),
        "bare, once a period": lambda: bare(standin, plain, _PERIOD_S),
        "ours": lambda: ours(standin, plain, _PERIOD_S, _SAMPLES),
        "ours, utilization by GPM": lambda: ours(standin, gpm, _GPM_PERIOD_S, _GPM_SAMPLES),
    }
    found = interleaved(subjects, options.rounds)
    least = found["bare, back to back"]
    report.table(
        (f"{call_us} us a call", "CPU ms a sample", "ratio to bare"),
        [(name, Spread.of(values), ratios(values, least)) for name, values in found.items()],
    )
    return ratios(found["ours"], least)


def eight_cards(call_us: int, **values: int) -> Scenario:
    """Healthy cards whose every call takes that much processor time."""
    scenario = Scenario.healthy(CARDS).call("*", "*", busy_us=call_us)
    for index in range(CARDS):
        scenario.card(index, **values)
    return scenario


def bare(standin: NvmlStandin, scenario: Scenario, period_s: float) -> float:
    """CPU ms of one sample by the least loop."""
    standin.play(scenario)
    done = subprocess.run(
        ["taskset", "-c", str(SERVER_CORE), sys.executable, bare_nvml.__file__, str(_SAMPLES), str(period_s)],
        env=environment(standin),
        check=True,
        capture_output=True,
    )
    return float(done.stdout)


def ours(standin: NvmlStandin, scenario: Scenario, period_s: float, samples: int) -> float:
    """CPU ms of one sample by our collector process."""
    standin.play(scenario)
    with CollectorChild(("nvidia", "--period", str(period_s)), environment(standin)) as child:
        pin(child.process.pid, SERVER_CORE)
        for _ in range(_WARM):
            child.sample()
        begun_s = cpu_s(child.process.pid)
        for _ in range(samples):
            child.sample()
        return (cpu_s(child.process.pid) - begun_s) / samples * 1000


def _once_a_second(standin: NvmlStandin, folder: Path, rounds: int) -> list[tuple[float, float]]:
    """Milliseconds of CPU a second of parent and child, window by window."""
    standin.play(eight_cards(20))
    with device_manager(folder, standin, "--monitor-period=1s") as running:
        pin(running.process.pid, SERVER_CORE)
        child = collector_of(running)
        pin(child, SERVER_CORE)
        pids = (running.process.pid, child)
        windows = []
        for _ in range(rounds):
            begun_s, before = time.monotonic(), [cpu_s(pid) for pid in pids]
            time.sleep(_WINDOW_S)
            took_s = time.monotonic() - begun_s
            parent_ms, child_ms = (
                (cpu_s(pid) - was) * 1000 / took_s for pid, was in zip(pids, before, strict=True)
            )
            windows.append((parent_ms, child_ms))
        return windows
