"""Fixtures shared by all tests."""

import gc
import importlib
import os
import pkgutil
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import pytest_asyncio
import structlog
from hypothesis import is_hypothesis_test

import collectors
import devicemanager
from devicemanager.node import launcher
from tests.cluster.stand_in import StandInCluster
from tests.standins.nvml import NvmlStandin

HERE = Path(__file__).parent

UNTRACED = {"chart", "e2e", "fuzz", "property"}
"""Folders in which coverage stands still. It takes as long again as what it follows, and what these tests reach in
this process, others reach, too; the programs that e2e starts are other processes."""


@contextmanager
def untraced(config: pytest.Config) -> Iterator[None]:
    """Lets coverage, where it is measured, stand still meanwhile."""
    coverage = getattr(config.pluginmanager.getplugin("_cov"), "cov_controller", None)
    if coverage is None:
        yield
        return
    coverage.pause()
    try:
        yield
    finally:
        coverage.resume()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Collects without coverage, which would follow pytest's rewriting of assertions, and without freeing garbage.

    What modules do when they are imported counts, so they are imported before.
    """
    config = session.config
    if config.pluginmanager.hasplugin("_cov") and not config.getoption("numprocesses", None):
        for package in (collectors, devicemanager):
            for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
                importlib.import_module(module.name)
    gc.disable()
    try:
        with untraced(config):
            return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Coverage stands still for some folders, and for properties, which try the same lines a hundred times."""
    folders = item.path.relative_to(HERE).parts
    if UNTRACED.intersection(folders) or is_hypothesis_test(getattr(item, "obj", None)):
        with untraced(item.config):
            return (yield)
    return (yield)


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
