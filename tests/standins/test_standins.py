"""The stand-ins themselves: they compile with what is there, and do what a scenario says or say why not."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.standins import build
from tests.standins.nvml import GIB, NvmlStandin, Scenario

SOURCE = Path(build.__file__).with_name("nvml.c")


def binding(nvml: NvmlStandin, script: str) -> subprocess.CompletedProcess[str]:
    """Run a script with the real binding on the stand-in, in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", f"from pynvml import *\n{script}"],
        capture_output=True,
        text=True,
        env={**os.environ, **nvml.environment},
        check=False,
    )


def test_the_source_has_no_warnings(tmp_path: Path) -> None:
    command = [
        *build.compiler(),
        "-std=c11",
        "-D_GNU_SOURCE",
        "-Wall",
        "-Wextra",
        "-Wpedantic",
        "-Werror",
        "-fPIC",
        "-c",
    ]
    done = subprocess.run(
        [*command, str(SOURCE), "-o", str(tmp_path / "nvml.o")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(importlib.util.find_spec("ziglang") is None, reason="ziglang is not installed")
@pytest.mark.timeout(180)
def test_the_source_compiles_without_a_system_compiler_and_without_a_home(tmp_path: Path) -> None:
    script = f"""
from pathlib import Path
from tests.standins import build
assert build.compiler()[-2:] == ("ziglang", "cc"), build.compiler()
print(build.shared_library(Path({str(SOURCE)!r}), "libnvidia-ml.so.1", Path({str(tmp_path)!r})))
"""
    bare = {"PATH": str(tmp_path), "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run([sys.executable, "-c", script], env=bare, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).is_relative_to(tmp_path)


def test_a_library_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    library = build.shared_library(SOURCE, "libnvidia-ml.so.1")
    monkeypatch.setattr(build, "compiler", lambda: pytest.fail("compiled again"))
    assert build.shared_library(SOURCE, "libnvidia-ml.so.1") == library


def test_no_compiler_is_said_to_be_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(build.NoCompilerError, match="install one"):
        build.compiler()


@pytest.mark.parametrize(
    "line",
    [
        "nonsense",
        "card 0 colour red",
        "call nvmlNothing 0 code=1",
        "call * here code=1",
        "call * 0 faint=1",
        "cards 65",
    ],
)
def test_a_scenario_that_cannot_be_understood_ends_the_process(nvml: NvmlStandin, line: str) -> None:
    Path(nvml.environment["NVML_STANDIN_SCENARIO"]).write_text(f"cards 1\n{line}\n", encoding="ascii")
    done = binding(nvml, "nvmlInit()")
    assert done.returncode == 97
    assert "nvml stand-in: scenario line 2: " in done.stderr


def test_without_a_scenario_there_is_no_driver(nvml: NvmlStandin) -> None:
    done = binding(nvml, "nvmlInit()")
    assert "NVMLError_DriverNotLoaded" in done.stderr


def test_calls_need_a_session(nvml: NvmlStandin) -> None:
    nvml.play(Scenario.healthy(1))
    done = binding(nvml, "nvmlInit(); nvmlShutdown(); nvmlDeviceGetCount()")
    assert "NVMLError_Uninitialized" in done.stderr


def test_partitions_have_holes_and_memory_of_their_own(nvml: NvmlStandin) -> None:
    scenario = Scenario.healthy(1).card(0, mig=1, gpu=None)
    scenario.mig(0, 0, uuid="MIG-a", total=10 * GIB, used=GIB, gpu_instance=3)
    nvml.play(scenario.mig(0, 2, uuid="MIG-c", total=20 * GIB, used=2 * GIB, gpu_instance=5))
    done = binding(
        nvml,
        """
nvmlInit()
card = nvmlDeviceGetHandleByIndex(0)
for slot in range(nvmlDeviceGetMaxMigDeviceCount(card)):
    try:
        mig = nvmlDeviceGetMigDeviceHandleByIndex(card, slot)
    except NVMLError as error:
        print(slot, error.value)
    else:
        print(slot, nvmlDeviceGetUUID(mig), nvmlDeviceGetMemoryInfo(mig).used, nvmlDeviceGetGpuInstanceId(mig))
""",
    )
    holes = [f"{slot} 6" for slot in (1, 3, 4, 5, 6)]
    found = done.stdout.splitlines()
    assert [line for line in found if line.endswith(" 6")] == holes
    assert [line for line in found if "MIG" in line] == [f"0 MIG-a {GIB} 3", f"2 MIG-c {2 * GIB} 5"]


def test_the_last_word_on_a_call_counts_action_by_action(nvml: NvmlStandin) -> None:
    scenario = Scenario.healthy(2).call("*", 1, code=15, delay_ms=1)
    nvml.play(scenario.call("nvmlDeviceGetHandleByIndex_v2", 1, code=0))
    done = binding(nvml, "nvmlInit(); card = nvmlDeviceGetHandleByIndex(1); nvmlDeviceGetName(card)")
    assert "NVMLError_GpuIsLost" in done.stderr
    assert ("nvmlDeviceGetName", "1") in nvml.calls()


def test_processes_and_fields(nvml: NvmlStandin) -> None:
    nvml.play(Scenario.healthy(1).card(0, processes="7:1000 9:2000").field(0, 186, 87_000))
    done = binding(
        nvml,
        """
nvmlInit()
card = nvmlDeviceGetHandleByIndex(0)
print([(one.pid, one.usedGpuMemory) for one in nvmlDeviceGetComputeRunningProcesses(card)])
print([(one.nvmlReturn, one.value.ullVal) for one in nvmlDeviceGetFieldValues(card, [186, 82])])
print([(one.pid, one.smUtil) for one in nvmlDeviceGetProcessUtilization(card, 0)])
""",
    )
    assert done.stdout.splitlines() == ["[(7, 1000), (9, 2000)]", "[(0, 87000), (3, 0)]", "[(4000, 10)]"]
