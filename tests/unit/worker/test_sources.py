"""What goes wrong with a source is logged when it begins, when it changes and when it ends, and not in between."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from devicemanager.demo.cluster.figures import stats_summary
from devicemanager.demo.cluster.objects import Grant, InstanceSpec
from devicemanager.errors import FetchError
from devicemanager.model.accelerator import CollectorState
from devicemanager.model.usage import SourceFailure, SourceState
from devicemanager.worker import sources as sources_module
from devicemanager.worker.sources import Ages, FaultLog
from tests.timing import START
from tests.unit.worker.conftest import card, snapshot_document
from tests.unit.worker.scripted import NO_SUCH_API, NOT_FOUND, World, kubelet_path, world

KUBELET = kubelet_path("node-a")
PLACE = ("node-a", "nvidia")


@pytest_asyncio.fixture
async def here() -> AsyncIterator[World]:
    async with world(Ages(kubelet_s=0, snapshot_s=0)) as here:
        here.add(InstanceSpec("team-a", "web", "node-a", [Grant("nvidia", "GPU-1")]))
        yield here


@pytest.mark.asyncio
@pytest.mark.looptime
async def test_a_fault_is_logged_once_for_all_readers(here: World) -> None:
    well = here.cluster.scripts[KUBELET].document
    with capture_logs() as logs:
        await here.reader.read("team-a", "web")
        here.cluster.on(KUBELET, FetchError(SourceState.UNREACHABLE, "HTTP 502", status=502))
        for _ in range(5):
            async with asyncio.TaskGroup() as tasks:
                for _ in range(10):
                    tasks.create_task(here.reader.read("team-a", "web"))
        here.cluster.on(KUBELET, FetchError(SourceState.FORBIDDEN, "HTTP 403", status=403))
        await here.reader.read("team-a", "web")
        here.cluster.on(KUBELET, well)
        await here.reader.read("team-a", "web")
        await here.reader.read("team-a", "web")

    assert [(entry["event"], entry["source"], entry["node"], entry.get("state")) for entry in logs] == [
        ("source_failed", "kubelet", "node-a", SourceState.UNREACHABLE),
        ("source_failed", "kubelet", "node-a", SourceState.FORBIDDEN),
        ("source_recovered", "kubelet", "node-a", None),
    ]


@pytest.mark.asyncio
@pytest.mark.looptime
async def test_an_error_answer_of_a_device_manager_is_logged_too(here: World) -> None:
    collector = {"state": "library_missing", "detail": "libnvidia-ml.so.1 not found", "since": START.isoformat()}
    with capture_logs() as logs:
        document = snapshot_document(card("GPU-1"), timestamp=START.isoformat(), collector=collector)
        here.device_managers.on(PLACE, document)
        await here.reader.read("team-a", "web")
        here.device_managers.on(PLACE, snapshot_document(card("GPU-1"), timestamp="0001-01-01T00:00:00Z"))
        await here.reader.read("team-a", "web")
        here.device_managers.on(PLACE, snapshot_document(card("GPU-1"), timestamp=START.isoformat()))
        await here.reader.read("team-a", "web")

    assert [(entry["event"], entry["source"], entry.get("state")) for entry in logs] == [
        ("source_failed", "device-manager/nvidia", CollectorState.LIBRARY_MISSING),
        ("source_failed", "device-manager/nvidia", SourceState.STALE),
        ("source_recovered", "device-manager/nvidia", None),
    ]


@pytest.mark.asyncio
@pytest.mark.looptime
async def test_a_summary_that_is_old_by_the_kubelets_own_clock_is_logged(here: World) -> None:
    well = here.cluster.scripts[KUBELET].document
    with capture_logs() as logs:
        here.cluster.on(KUBELET, stats_summary("node-a", [], START - timedelta(hours=1)))
        for _ in range(3):
            await here.reader.read("team-a", "web")
        here.cluster.on(KUBELET, well)
        await here.reader.read("team-a", "web")

    assert [(entry["event"], entry["source"], entry.get("state")) for entry in logs] == [
        ("source_failed", "kubelet", SourceState.STALE),
        ("source_recovered", "kubelet", None),
    ]


@pytest.mark.asyncio
@pytest.mark.looptime
async def test_a_metrics_api_that_refuses_us_is_logged_once_and_a_pod_that_it_does_not_know_is_not(
    here: World,
) -> None:
    metrics = "/apis/metrics.k8s.io/v1beta1/namespaces/team-a/pods/web"
    well = here.cluster.scripts[metrics].document
    here.cluster.on(KUBELET, FetchError(SourceState.UNREACHABLE, "HTTP 502", status=502))
    with capture_logs() as logs:
        for answer in (
            NOT_FOUND,
            NO_SUCH_API,
            *[FetchError(SourceState.FORBIDDEN, "HTTP 403", status=403)] * 3,
            well,
        ):
            here.cluster.on(metrics, answer)
            await here.reader.read("team-a", "web")

    assert [
        (entry["event"], entry["node"], entry.get("state")) for entry in logs if entry["source"] == "metrics.k8s.io"
    ] == [("source_failed", "", SourceState.FORBIDDEN), ("source_recovered", "", None)]


def test_what_is_remembered_of_faults_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources_module, "_REMEMBERED_FAULTS", 2)
    faults = FaultLog()
    fault = SourceFailure(SourceState.TIMEOUT, "late")
    with capture_logs() as logs:
        for node in ("a", "b", "c", "c", "b", "a"):
            faults.note("kubelet", node, fault)

    assert [entry["node"] for entry in logs] == ["a", "b", "c", "a"]
