"""What goes wrong with a source is logged when it begins, when it changes and when it ends, and not in between."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
import pytest_asyncio
from structlog.testing import capture_logs
from typing_extensions import override

from devicemanager.demo.cluster.figures import stats_summary
from devicemanager.demo.cluster.objects import Grant, InstanceSpec
from devicemanager.errors import FetchError
from devicemanager.model.accelerator import CollectorState
from devicemanager.model.usage import SourceState
from devicemanager.transport import body_memory, peer_time
from devicemanager.transport.failures import within
from devicemanager.worker.device_manager_pods import DeviceManager
from devicemanager.worker.kubelet import NodeRead, ProxiedKubelets
from devicemanager.worker.metrics_server import MetricsServer
from devicemanager.worker.outcomes import Answer
from devicemanager.worker.sources import Ages, Sources
from tests.timing import START, LoopClock
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
    here.cluster.on(KUBELET, FetchError(state, "what it did", by_peer=True))
    loop = asyncio.get_running_loop()
    with capture_logs() as logs:
        for number in range(60):
            before_s = loop.time()
            outcome = await here.reader.read("team-a", "web")
            assert isinstance(outcome, Answer)
            assert outcome.usage.sample is not None
            kubelet = next(report for report in outcome.usage.sample.sources if report.name == "kubelet")
            assert kubelet.state is state
            assert "what it did" in (kubelet.message or "")
            assert loop.time() - before_s < 1
            if number == 0:
                assert here.sources.health.in_backoff() == {"kubelet": 1}
            await asyncio.sleep(1)
    asked = here.cluster.scripts[KUBELET].asked

    assert 4 <= len(asked) <= 8
    assert sorted(asked[1:]) == asked[1:]
    lines = [line for line in logs if line["event"] == "source_backed_off"]
    assert [(line["source"], line["node"], line["state"]) for line in lines] == [("kubelet", "node-a", state)]

    here.cluster.on(KUBELET, well)
    await asyncio.sleep(300)
    await here.reader.read("team-a", "web")
    assert here.sources.health.in_backoff() == {"kubelet": 0}
    await here.reader.read("team-a", "web")
    assert len(here.cluster.scripts[KUBELET].asked) == 2


@pytest.mark.asyncio
@pytest.mark.looptime
@pytest.mark.parametrize("state", [SourceState.INVALID, SourceState.TIMEOUT])
async def test_a_peer_is_asked_again_at_once_where_it_was_not_its_fault(here: World, state: SourceState) -> None:
    """The API server is slow, or answers with a redirect; we had no memory left; a fault of ours."""
    ours = FetchError(state, "somebody else's fault")
    here.cluster.on(KUBELET, ours)
    here.device_managers.on(PLACE, ours)
    for _ in range(5):
        await here.reader.read("team-a", "web")

    assert len(here.cluster.scripts[KUBELET].asked) == 5
    assert len(here.device_managers.scripts[PLACE].asked) == 5
    assert here.sources.health.in_backoff() == {}


class Kubelets(ProxiedKubelets):
    """Those of nodes named ``bad`` send 16 MiB and then nothing; those of others a summary that they do not finish
    here, but all of whose bytes come."""

    @override
    async def read(self, node: str) -> NodeRead:
        async with within(4.0):
            peer_time.begin()
            async with body_memory.arriving():
                for _ in range(64 if node.startswith("bad") else 1):
                    await body_memory.take(200 * 1024)
                if node.startswith("bad"):
                    await asyncio.Event().wait()
            peer_time.end()
        raise FetchError(SourceState.NOT_SERVED, "all of it came")


@pytest.mark.asyncio
@pytest.mark.looptime
async def test_bad_kubelets_neither_delay_good_ones_nor_put_them_into_backoff(here: World) -> None:
    loop = asyncio.get_running_loop()
    managers = here.device_managers
    async with Sources(Kubelets(here.cluster), MetricsServer(here.cluster), managers, LoopClock()) as sources:
        bad = [sources.kubelets.begin(f"bad-{number}", deadline_s=5) for number in range(8)]
        await asyncio.sleep(0.1)
        began_s = loop.time()
        for number in range(20):
            outcome = await sources.kubelets.begin(f"good-{number}", deadline_s=5).outcome()
            assert isinstance(outcome, FetchError)
            assert outcome.message == "all of it came"
        assert loop.time() - began_s < 0.1

        for pending in bad:
            outcome = await pending.outcome()
            assert isinstance(outcome, FetchError)
            assert outcome.state is SourceState.TIMEOUT
        assert 1 <= sources.health.in_backoff()["kubelet"] <= len(bad)


@pytest.mark.asyncio
@pytest.mark.looptime
async def test_a_device_manager_whose_pod_was_replaced_is_asked_at_once(here: World) -> None:
    old = DeviceManager(*PLACE, (), START, "nvidia-old")
    new = DeviceManager(*PLACE, (), START, "nvidia-new")
    bad = FetchError(SourceState.INVALID, "no JSON", by_peer=True)
    here.device_managers.there = {old}
    for there, asked in (({old}, 1), ({old}, 1), (set(), 1), ({old}, 1), ({new}, 2), ({new}, 2), ({new, old}, 3)):
        here.device_managers.there = there
        script = here.device_managers.scripts.get(PLACE)
        if script is None or script.document is not bad:
            script = here.device_managers.on(PLACE, bad)
        await here.reader.read("team-a", "web")
        assert len(script.asked) == asked


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
