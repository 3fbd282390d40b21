"""What else may answer to the name ``pynvml``, in a real collector process on the stand-in library."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.standins import binding
from tests.standins.child import CollectorChild
from tests.standins.nvml import GIB, MIB, NvmlStandin, Scenario, healthy_card

Install = Callable[[Path], Path]


def first_on_the_path(folder: Path) -> Mapping[str, str]:
    return {"PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", str(Path.cwd()))])}


@pytest.mark.parametrize(
    ("install", "name"),
    [
        (binding.older_release, "nvidia-ml-py 11.450.51"),
        (binding.other_distribution, "pynvml 8.0.4"),
    ],
)
def test_an_older_module_costs_at_most_the_figures_that_it_lacks(
    nvml: NvmlStandin, tmp_path: Path, install: Install, name: str
) -> None:
    """The older calls give their figures, and every card says who it is."""
    nvml.play(Scenario.healthy(2).card(1, gpm=1, gpm_sm=33))
    environment = {**nvml.environment, **first_on_the_path(install(tmp_path / "old"))}
    with CollectorChild(("nvidia", "--once"), environment) as child:
        line = child.line()
        assert line is not None
        hello = line["hello"]
        readings = child.sample().readings
    for index in range(2):
        readings[index].pop("notes", None)  # which figures come from older calls
        assert readings[index] == {
            "index": index,
            "id": healthy_card(index)["uuid"],
            "name": "NVIDIA H100 80GB HBM3",
            "pci": f"0000:{0x1B + index:02x}:00.0",
            "serial": f"16530{index:08d}",
            "memory": 80 * GIB,
            "memoryUsed": (index + 1) * 3 * GIB + 5 + 512 * MIB,
            "cores": 10 + index,
            "temperature": 40 + index,
            "power": 120_500 + 1000 * index,
            "powerLimit": 700_000,
            "clockReductionReasons": [],
            "unhealthy": None,
            "unread": {},
        }
    assert hello["libraryName"].startswith(f"{name} ({tmp_path}")
    assert "lacks nvmlMemory_v2, nvmlGpmQueryDeviceSupport" in hello["libraryFault"]
    assert ("not known to be of nvidia-ml-py" in hello["libraryFault"]) is (install is binding.other_distribution)


def test_the_module_that_we_are_written_for_has_no_fault(nvml: NvmlStandin) -> None:
    nvml.play(Scenario.healthy(1))
    with CollectorChild(("nvidia", "--once"), nvml.environment) as child:
        line = child.line()
        assert line is not None
        assert "libraryFault" not in line["hello"]
        child.sample()
        assert child.end() == 0
        assert child.process.stderr is not None
        assert child.process.stderr.read() == b""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("answer = 42\n", "is not that of nvidia-ml-py: pynvml of unknown version"),
        ("print 'an old dialect'\n", "cannot be imported: SyntaxError"),
        ("raise ImportError('half of it is missing')\n", "cannot be imported: ImportError: half of it is missing"),
        ("import a_part_of_it\n", "cannot be imported: ModuleNotFoundError: No module named 'a_part_of_it'"),
        ("raise ModuleNotFoundError(name='pynvml')\n", "the Python package nvidia-ml-py is not installed"),
    ],
)
def test_without_its_module_the_collector_fails_and_no_library_is_missing(
    nvml: NvmlStandin, tmp_path: Path, text: str, said: str
) -> None:
    """And the message names the file."""
    nvml.play(Scenario.healthy(1))
    folder = binding.something_else(tmp_path / "other", text)
    with CollectorChild(("nvidia",), {**nvml.environment, **first_on_the_path(folder)}) as child:
        state, detail, ended = child.failure()
    assert (state, ended) == ("failed", 1)
    assert said in detail
