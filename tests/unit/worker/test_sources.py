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
from devicemanager.worker.outcomes import Answer
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


@pytest.mark.asyncio
@pytest.mark.looptime
@pytest.mark.parametrize("state", [SourceState.INVALID, SourceState.TIMEOUT])
async def test_a_kubelet_that_misbehaves_is_named_at_once_and_asked_less_and_less_often(
    here: World, state: SourceState
) -> None:
    well = here.cluster.scripts[KUBELET].document
    here.cluster.on(KUBELET, FetchError(state, "what it did"))
    loop = asyncio.get_running_loop()
    with capture_logs() as logs:
        for _ in range(60):
            before_s = loop.time()
            outcome = await here.reader.read("team-a", "web")
            assert isinstance(outcome, Answer)
            assert outcome.usage.sample is not None
            kubelet = next(report for report in outcome.usage.sample.sources if report.name == "kubelet")
            assert kubelet.state is state
            assert "what it did" in (kubelet.message or "")
            assert loop.time() - before_s < 1
            await asyncio.sleep(1)
    asked = here.cluster.scripts[KUBELET].asked

    assert 4 <= len(asked) <= 8
    assert sorted(asked[1:]) == asked[1:]
    lines = [line for line in logs if line["event"] == "source_set_aside"]
    aside = [(line["source"], line["node"], line["state"], line["failures"]) for line in lines]
    assert aside == [("kubelet", "node-a", state, number) for number in range(1, len(asked) + 1)]
    assert here.sources.health.now_set_aside() == {"kubelet": 1}

    here.cluster.on(KUBELET, well)
    await asyncio.sleep(60)
    await here.reader.read("team-a", "web")
    assert here.sources.health.now_set_aside() == {"kubelet": 0}
    await here.reader.read("team-a", "web")
    assert len(here.cluster.scripts[KUBELET].asked) == 2


@pytest.mark.asyncio
@pytest.mark.looptime
async def test_a_long_snapshot_is_kept_for_longer_than_a_short_one(here: World) -> None:
    """What a device manager costs us is bounded, however much it sends."""
    document = snapshot_document(card("GPU-1"), timestamp=START.isoformat())
    for padding, asked in ((0, 3), (600 * 1024, 1)):
        here.device_managers.on(PLACE, {**document, "padding": "x" * padding})
        for _ in range(3):
            await here.reader.read("team-a", "web")
        assert len(here.device_managers.scripts[PLACE].asked) == asked
