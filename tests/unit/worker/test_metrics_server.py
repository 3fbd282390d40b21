"""metrics.k8s.io for one pod, and the cases in which it says nothing (case M01)."""

from datetime import timedelta
from typing import Any

import pytest

from devicemanager.errors import FetchError
from devicemanager.model.accelerator import Reason
from devicemanager.model.usage import PodReading, SourceFailure, SourceState
from devicemanager.wire.pods import Pod
from devicemanager.worker.metrics_server import MetricsServer
from tests.timing import START, LoopClock
from tests.unit.worker.scripted import NO_SUCH_API, NOT_FOUND, ScriptedCluster

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]

NAME = ("team-a", "web-0")
PATH = "/apis/metrics.k8s.io/v1beta1/namespaces/team-a/pods/web-0"
POD = Pod("team-a", "web-0", "p-1", created_at=START - timedelta(minutes=5), container_names=frozenset({"app"}))


def entry(timestamp: str | None = "2026-08-12T09:15:01Z", **usage: Any) -> dict[str, Any]:
    containers = [{"name": "app", "usage": usage}] if usage else []
    return {"kind": "PodMetrics", "timestamp": timestamp, "window": "1m0.5s", "containers": containers}


async def reading(document: object) -> PodReading | SourceFailure:
    cluster = ScriptedCluster(LoopClock())
    cluster.on(PATH, document)
    return (await MetricsServer(cluster).read(NAME)).reading(POD, LoopClock())


async def test_figures_and_age() -> None:
    found = await reading(entry(cpu="250m", memory="4548Ki"))

    assert isinstance(found, PodReading)
    assert (found.usage.cpu_nanocores, found.usage.memory_working_set_bytes) == (250_000_000, 4548 * 1024)
    assert found.usage.rootfs_used_bytes is Reason.NOT_REPORTED
    assert found.age_s == pytest.approx(4.02)


async def test_a_measured_zero_is_zero() -> None:
    found = await reading(entry(cpu="0", memory="4548Ki"))

    assert isinstance(found, PodReading)
    assert found.usage.cpu_nanocores == 0


@pytest.mark.parametrize("cpu", ["-1", "NaN", "1 m", "1e999", "", "½"])
async def test_what_is_no_quantity_costs_its_figure(cpu: str) -> None:
    found = await reading(entry(cpu=cpu, memory="1Mi"))

    assert isinstance(found, PodReading)
    assert (found.usage.cpu_nanocores, found.usage.memory_working_set_bytes) == (Reason.INVALID_DATA, 1 << 20)


@pytest.mark.parametrize(
    "document",
    [entry(), entry(timestamp=None, cpu="1", memory="1Mi"), entry(timestamp="0001-01-01T00:00:00Z", cpu="1")],
    ids=["no containers", "no time", "zero time"],
)
async def test_an_answer_that_says_nothing_counts_as_unserved(document: object) -> None:
    found = await reading(document)

    assert isinstance(found, SourceFailure)
    assert found.state is SourceState.NOT_SERVED


async def test_an_entry_older_than_the_pod_is_rejected() -> None:
    found = await reading(entry(timestamp="2026-08-12T09:10:03Z", cpu="1", memory="1Mi"))

    assert isinstance(found, SourceFailure)
    assert found.state is SourceState.UNKNOWN_POD


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        (NOT_FOUND, SourceState.NOT_YET),
        (NO_SUCH_API, SourceState.NOT_SERVED),
        (FetchError(SourceState.UNREACHABLE, "HTTP 503: service unavailable", status=503), SourceState.UNREACHABLE),
        (FetchError(SourceState.FORBIDDEN, "HTTP 403: pods.metrics.k8s.io", status=403), SourceState.FORBIDDEN),
        ("<html>", SourceState.INVALID),
        ({"kind": "NodeMetrics"}, SourceState.INVALID),
    ],
    ids=["404 for the pod", "404 for the API", "503", "403", "no object", "another kind"],
)
async def test_what_cannot_be_had_says_why(answer: object, state: SourceState) -> None:
    with pytest.raises(FetchError) as caught:
        await reading(answer)

    assert caught.value.state is state
