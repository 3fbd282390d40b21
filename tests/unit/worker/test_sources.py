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
from devicemanager.model.usage import SourceState
from devicemanager.worker.sources import Ages
from tests.timing import START
from tests.unit.worker.conftest import card, snapshot_document
from tests.unit.worker.scripted import NO_SUCH_API, NOT_FOUND, World, kubelet_path, world

KUBELET = kubelet_path("node-a")
METRICS = "/apis/metrics.k8s.io/v1beta1/namespaces/team-a/pods/web"
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
async def test_a_fallback_that_is_not_installed_or_does_not_know_a_pod_is_no_failure(here: World) -> None:
    here.cluster.on(KUBELET, FetchError(SourceState.UNREACHABLE, "HTTP 502", status=502))
    with capture_logs() as logs:
        for answer in (NOT_FOUND, NO_SUCH_API):
            here.cluster.on(METRICS, answer)
            await here.reader.read("team-a", "web")

    assert [entry for entry in logs if entry["source"] == "metrics.k8s.io"] == []
    assert "metrics.k8s.io" not in {source for source, _ in here.sources.health.failures}


@pytest.mark.asyncio
@pytest.mark.looptime
async def test_a_fallback_that_refuses_is_logged_once_as_every_other_source(here: World) -> None:
    here.cluster.on(KUBELET, FetchError(SourceState.UNREACHABLE, "HTTP 502", status=502))
    well = here.cluster.scripts[METRICS].document
    with capture_logs() as logs:
        here.cluster.on(METRICS, FetchError(SourceState.FORBIDDEN, "HTTP 403: no", status=403))
        for _ in range(3):
            await here.reader.read("team-a", "web")
        here.cluster.on(METRICS, FetchError(SourceState.NOT_SERVED, "HTTP 404", status=404, reason="NotFound"))
        await here.reader.read("team-a", "web")
        here.cluster.on(METRICS, well)
        await here.reader.read("team-a", "web")

    lines = [{key: line[key] for key in line if key != "log_level"} for line in logs if line["source"] != "kubelet"]
    assert lines == [
        {"event": "source_failed", "source": "metrics.k8s.io", "state": "forbidden", "error": "HTTP 403: no"},
        {"event": "source_recovered", "source": "metrics.k8s.io"},
    ]
    assert here.sources.health.failures["metrics.k8s.io", "forbidden"] == 3
    assert here.sources.health.up == {"kubelet": False, "metrics.k8s.io": True, "device-manager": True}
