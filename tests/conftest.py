"""Fixtures shared by all tests."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
import structlog

from devicemanager.node import launcher
from tests.cluster.stand_in import StandInCluster
from tests.standins.nvml import NvmlStandin


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
