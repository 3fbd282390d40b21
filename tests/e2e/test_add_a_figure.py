"""A figure is added by a few lines: a patch adds one to a copy of the source, and it is read in every place.

The patch is what somebody would write who wants the speed of the fans. Where it no longer applies, make it anew:
its files are the list of what adding a figure touches.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.e2e.device_manager import Serve, cards, environment
from tests.standins.nvml import NvmlStandin, Scenario

ROOT: Final = Path(__file__).parents[2]
PATCH: Final = Path(__file__).with_name("add_a_figure.patch")
MOST_FILES: Final = 6

DEMO: Final = ("-m", "devicemanager.cli", "demo", "--once")
ROWS: Final = """
import json, sys
from datetime import UTC, datetime
from devicemanager.wire import instance_metrics
from devicemanager.worker.workloads.instance.table import COLUMNS, cells
names = [column.name for column in COLUMNS]
for item in json.load(sys.stdin)["items"]:
    print(json.dumps(dict(zip(names, cells(instance_metrics.parse(json.dumps(item).encode()), datetime.now(UTC))))))
"""

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The source with the figure added."""
    copy = tmp_path_factory.mktemp("tree")
    for folder in ("collectors", "devicemanager", "docs", "tests"):
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run(["git", "apply", str(PATCH)], cwd=copy, env=_of(copy), check=True)
    yield copy
    shutil.rmtree(copy)


def _of(tree: Path) -> Mapping[str, str]:
    """Our environment, in which that tree is imported, and which no repository around it concerns."""
    return {**environment({}), "PYTHONPATH": str(tree), "GIT_CEILING_DIRECTORIES": str(tree.parent)}


def _python(tree: Path, *arguments: str, text: str = "") -> str:
    done = subprocess.run(
        [sys.executable, "-P", *arguments],
        cwd=tree,
        env=_of(tree),
        input=text,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_adding_a_figure_touches_the_table_its_collectors_its_page_and_its_tests() -> None:
    touched = re.findall(r"^\+\+\+ b/(.*)$", PATCH.read_text(encoding="utf-8"), re.MULTILINE)

    assert len(touched) <= MOST_FILES
    places = {"devicemanager/model/figures.py", "docs/figures.md", "collectors", "tests"}
    assert all(path in places or path.split("/")[0] in places for path in touched)


def test_its_own_tests_and_its_page_are_right(tree: Path) -> None:
    page = tree / "docs" / "figures.md"
    before = page.read_text(encoding="utf-8")
    _python(tree, "docs/tables.py")
    assert page.read_text(encoding="utf-8") == before

    _python(tree, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:cov", "--import-mode=importlib",
            "-c", os.devnull, "--rootdir", str(tree), "tests/unit/collectors/test_fan_speed.py")  # fmt: skip


def test_it_is_read_from_the_library_to_the_snapshot_and_the_metrics(
    tree: Path, serve: Serve, nvml: NvmlStandin
) -> None:
    nvml.play(Scenario.healthy(2).card(0, fan=55))
    manager = serve(
        "--manufacturer=nvidia",
        "--monitor-period=1s",
        "--no-pci-check",
        environment={**nvml.environment, "PYTHONPATH": str(tree)},
    )
    first, second = cards(manager.until_state("ok"))

    assert first["fanSpeed"] == 55
    assert "fanSpeed" not in second
    assert second["absent"] == {"fanSpeed": "unsupported"}
    metrics = manager.ask("/metrics").body.decode()
    (series,) = re.findall(r"^accelerator_fan_speed_ratio\{.*\} (.*)$", metrics, re.MULTILINE)
    assert float(series) == 0.55


def test_it_is_read_from_simulated_cards_to_the_sample_and_the_table(tree: Path) -> None:
    answer = _python(tree, *DEMO, "-o", "json")
    entries = [card for item in json.loads(answer)["items"] for card in item["sample"]["accelerators"]]
    assert entries
    assert all(30 <= card["fanSpeedPercent"] <= 100 for card in entries)

    rows = [json.loads(line) for line in _python(tree, "-c", ROWS, text=answer).splitlines()]
    assert all(re.fullmatch(r"\d+%", row["Fan"]) for row in rows)
