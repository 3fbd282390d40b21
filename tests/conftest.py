"""Fixtures shared by all tests."""

import os
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import pytest
import pytest_asyncio
import structlog

from devicemanager.node import launcher
from tests.cluster.stand_in import StandInCluster
from tests.standins.nvml import NvmlStandin

HERE = Path(__file__).parent

UNTRACED = {"chart", "fuzz", "property"}
"""Folders in which coverage stands still. It takes as long again as the examples of the properties, and what those
reach, unit tests reach, too."""


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    for item in items:
        if UNTRACED.intersection(item.path.relative_to(HERE).parts):
            item.add_marker("no_cover")


def pytest_xdist_auto_num_workers() -> int:
    """Half as many again as there are processors, because tests of whole programs mostly wait."""
    given = os.environ.get("PYTEST_XDIST_AUTO_NUM_WORKERS")
    return int(given) if given else (3 * len(os.sched_getaffinity(0)) + 1) // 2


@pytest.fixture(autouse=True)
def log_as_it_comes() -> Iterator[None]:
    """Undoes what a program run inside a test has set for its log: others could not see what is logged."""
    structlog.reset_defaults()
    yield
    structlog.reset_defaults()


@pytest.fixture(autouse=True)
def killed_processes_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A supervisor run inside a test waits for the processes that it has killed, however busy the machine is.

    By itself it leaves them after a third of a second, and they would be reported against the tests that follow.
    """
    monkeypatch.setattr(launcher, "_EXIT_WAIT_S", 30.0)


@pytest_asyncio.fixture
async def stand_in_cluster() -> AsyncIterator[StandInCluster]:
    """A running stand-in for a cluster: namespaces and the authentication ConfigMap, no nodes yet."""
    async with StandInCluster() as cluster:
        yield cluster


@pytest.fixture
def nvml(tmp_path: Path) -> NvmlStandin:
    """The stand-in for NVIDIA's library, compiled if need be, with no scenario playing yet."""
    folder = tmp_path / "nvml"
    folder.mkdir()
    return NvmlStandin(folder)
