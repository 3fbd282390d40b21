"""The one use case: outcomes, deadlines and what each failing source costs, in virtual time."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
import pytest_asyncio

from devicemanager.demo.cluster.figures import stats_summary
from devicemanager.demo.cluster.objects import Grant, InstanceSpec, kubernetes_time
from devicemanager.errors import FetchError
from devicemanager.model.accelerator import Reason
from devicemanager.model.figures import Figures
from devicemanager.model.usage import SourceState, UsageSample
from devicemanager.worker.outcomes import Answer, DeadlineExceeded, NotFound, Outcome, Unavailable
from devicemanager.worker.sources import Ages
from tests.timing import START
from tests.unit.worker.scripted import NO_SUCH_API, NOT_FOUND, POD_UID, World, kubelet_path, summaries_held, world

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]

WEB = InstanceSpec(
    "team-a", "web", "node-a", [Grant("nvidia", "GPU-1"), Grant("amd", "GPU-2")], labels={"app": "web"}
)
INSTANCE = "/apis/worker.gpustack.ai/v1alpha1/namespaces/team-a/instances/web"
POD = "/api/v1/namespaces/team-a/pods/web"
KUBELET = kubelet_path("node-a")
METRICS = "/apis/metrics.k8s.io/v1beta1/namespaces/team-a/pods/web"

TIMEOUT = FetchError(SourceState.TIMEOUT, "no complete answer")
BROKEN = FetchError(SourceState.UNREACHABLE, "HTTP 500", status=500)


@pytest_asyncio.fixture
async def here() -> AsyncIterator[World]:
    """Everything well: one Instance with a card of each of two manufacturers."""
    async with world() as here:
        here.add(WEB)
        yield here


def sample_of(outcome: Outcome) -> UsageSample:
    assert isinstance(outcome, Answer), outcome
    assert outcome.usage.sample is not None
    return outcome.usage.sample


def states_of(outcome: Outcome) -> dict[str, str]:
    return {report.name: str(report.state) for report in sample_of(outcome).sources}


async def timed(read: Any) -> tuple[Outcome, float]:
    loop = asyncio.get_running_loop()
    before = loop.time()
    return await read, loop.time() - before


async def test_all_is_well(here: World) -> None:
    outcome, took_s = await timed(here.reader.read("team-a", "web"))

    assert isinstance(outcome, Answer)
    assert (outcome.usage.namespace, outcome.usage.name) == ("team-a", "web")
    assert (outcome.usage.node_name, outcome.usage.labels) == ("node-a", {"app": "web"})
    sample = sample_of(outcome)
    assert not isinstance(sample.cpu_usage_nanocores, Reason)
    assert not isinstance(sample.ephemeral_storage_used_mib, Reason)
    assert [(entry.manufacturer, entry.id) for entry in sample.accelerators] == [
        ("amd", "GPU-2"),
        ("nvidia", "GPU-1"),
    ]
    assert states_of(outcome) == {"kubelet": "ok", "device-manager/amd": "ok", "device-manager/nvidia": "ok"}
    assert sample.limits.cpu_millicores == 4000
    assert took_s == pytest.approx(0.04)  # two rounds of 20 ms


async def test_two_reads_of_the_api_server_and_no_more(here: World) -> None:
    await here.reader.read("team-a", "web")

    asked = {path: len(script.asked) for path, script in here.cluster.scripts.items()}
    assert asked == {INSTANCE: 1, POD: 1, KUBELET: 1, METRICS: 0}


async def test_a_hundred_readers_cost_what_one_costs(here: World) -> None:
    async with asyncio.TaskGroup() as tasks:
        reads = [tasks.create_task(here.reader.read("team-a", "web")) for _ in range(100)]

    assert all(isinstance(read.result(), Answer) for read in reads)
    assert {len(script.asked) for script in here.cluster.scripts.values()} == {0, 1}
    assert {len(script.asked) for script in here.device_managers.scripts.values()} == {1}


async def test_a_kubelet_is_read_once_in_a_window(here: World) -> None:
    for _ in range(14):
        await here.reader.read("team-a", "web")
        await asyncio.sleep(1)
    assert len(here.cluster.scripts[KUBELET].asked) == 1

    await asyncio.sleep(1)
    await here.reader.read("team-a", "web")
    assert len(here.cluster.scripts[KUBELET].asked) == 2


async def test_the_age_grows_while_an_answer_is_kept(here: World) -> None:
    first = sample_of(await here.reader.read("team-a", "web"))
    await asyncio.sleep(10)
    later = sample_of(await here.reader.read("team-a", "web"))

    [before] = [report.age_s for report in first.sources if report.name == "kubelet"]
    [after] = [report.age_s for report in later.sources if report.name == "kubelet"]
    assert before is not None
    assert after == before + 10


# Outcomes without a sample


async def test_a_missing_instance_is_not_found(here: World) -> None:
    script = here.cluster.on(INSTANCE, NOT_FOUND)

    outcome = await here.reader.read("team-a", "web")

    assert outcome == NotFound("Instance team-a/web not found")
    assert script.queries == [{"resourceVersion": "0"}, {}], "believed of no cache"


async def test_an_instance_that_a_cache_does_not_know_yet_is_found(here: World) -> None:
    """What names it as an owner would be collected otherwise."""
    instance = here.cluster.scripts[INSTANCE].document
    here.cluster.on(INSTANCE, NOT_FOUND).uncached = instance

    outcome = await here.reader.read("team-a", "web")

    assert isinstance(outcome, Answer)


@pytest.mark.parametrize(
    "failure",
    [
        FetchError(
            SourceState.NOT_SERVED, "HTTP 404: namespaces", status=404, reason="NotFound", object_name="team-a"
        ),
        FetchError(SourceState.NOT_SERVED, "HTTP 404: nothing named", status=404, reason="NotFound"),
        NO_SUCH_API,
    ],
)
async def test_a_404_that_does_not_name_the_instance_is_not_its_absence(here: World, failure: FetchError) -> None:
    here.cluster.on(INSTANCE, failure)

    assert isinstance(await here.reader.read("team-a", "web"), Unavailable)


@pytest.mark.parametrize("name", ["..", "../../nodes", "Web", "web?x", "", "web/metrics", "a" * 300])
async def test_an_invalid_name_is_not_found_and_nothing_is_asked(here: World, name: str) -> None:
    assert isinstance(await here.reader.read("team-a", name), NotFound)
    assert isinstance(await here.reader.read(name, "web"), NotFound)
    assert {len(script.asked) for script in here.cluster.scripts.values()} == {0}


async def test_without_the_custom_resource_it_is_unavailable_and_says_so(here: World) -> None:
    here.cluster.on(INSTANCE, NO_SUCH_API)

    outcome = await here.reader.read("team-a", "web")

    assert isinstance(outcome, Unavailable)
    assert "not_served: HTTP 404" in outcome.message


@pytest.mark.parametrize("path", [INSTANCE, POD])
async def test_an_api_server_that_fails_is_unavailable(here: World, path: str) -> None:
    here.cluster.on(path, FetchError(SourceState.FORBIDDEN, "HTTP 403: instances is forbidden", status=403))

    outcome = await here.reader.read("team-a", "web")

    assert outcome == Unavailable("Instance team-a/web cannot be read: forbidden: HTTP 403: instances is forbidden")


@pytest.mark.parametrize("path", [INSTANCE, POD])
async def test_an_api_server_that_does_not_answer_times_out_after_five_seconds(here: World, path: str) -> None:
    here.cluster.scripts[path].takes_s = 1e6

    outcome, took_s = await timed(here.reader.read("team-a", "web"))

    assert isinstance(outcome, Unavailable)
    assert took_s == pytest.approx(5)


async def test_an_unscheduled_instance_is_unavailable(here: World) -> None:
    here.add(InstanceSpec("team-a", "web", None))

    outcome = await here.reader.read("team-a", "web")

    assert outcome == Unavailable("Instance team-a/web is not scheduled to a node")


async def test_an_instance_without_a_pod_is_unavailable(here: World) -> None:
    here.cluster.on(POD, NOT_FOUND)

    outcome = await here.reader.read("team-a", "web")

    assert outcome == Unavailable("Instance team-a/web has no backing pod")


async def test_a_pod_of_an_earlier_incarnation_is_not_used(here: World) -> None:
    here.add(WEB, instance_uid="33333333-0000-0000-0000-000000000003")
    pod = here.cluster.scripts[POD].document
    assert isinstance(pod, dict)
    pod["metadata"]["labels"]["app.kubernetes.io/part-of"] = "11111111-0000-0000-0000-000000000001"

    outcome = await here.reader.read("team-a", "web")

    assert isinstance(outcome, Unavailable)
    assert "earlier incarnation" in outcome.message


# The kubelet and its fallback


async def test_a_failing_kubelet_costs_the_disk_and_not_the_rest(here: World) -> None:
    here.cluster.on(KUBELET, BROKEN)

    outcome, took_s = await timed(here.reader.read("team-a", "web"))

    sample = sample_of(outcome)
    assert not isinstance(sample.cpu_usage_nanocores, Reason)
    assert not isinstance(sample.memory_working_set_mib, Reason)
    assert sample.rootfs_used_mib is Reason.NOT_REPORTED
    assert states_of(outcome) == {
        "kubelet": "unreachable",
        "metrics.k8s.io": "ok",
        "device-manager/amd": "ok",
        "device-manager/nvidia": "ok",
    }
    assert took_s == pytest.approx(0.06)


async def test_a_summary_that_is_an_hour_old_by_the_kubelets_own_clock_leads_to_the_fallback(here: World) -> None:
    pod = here.cluster.scripts[POD].document
    assert isinstance(pod, dict)
    here.cluster.on(KUBELET, stats_summary("node-a", [pod], START - timedelta(hours=1)))

    outcome = await here.reader.read("team-a", "web")

    sample = sample_of(outcome)
    assert (states_of(outcome)["kubelet"], states_of(outcome)["metrics.k8s.io"]) == ("stale", "ok")
    assert isinstance(sample.cpu_usage_nanocores, int)
    assert sample.ephemeral_storage_used_mib is Reason.STALE
    assert sample.timestamp == START


@pytest.mark.parametrize(
    ("measured", "state"),
    [(timedelta(days=-180), "stale"), (timedelta(days=180), "invalid"), (timedelta(days=-20_000), "not_served")],
    ids=["six months ago", "in six months", "1971"],
)
async def test_figures_of_another_time_are_none(here: World, measured: timedelta, state: str) -> None:
    here.cluster.on(KUBELET, BROKEN)
    metrics = here.cluster.scripts[METRICS].document
    assert isinstance(metrics, dict)
    metrics["timestamp"] = kubernetes_time(START + measured)
    pod = here.cluster.scripts[POD].document
    assert isinstance(pod, dict)
    pod["metadata"]["creationTimestamp"] = None

    outcome = await here.reader.read("team-a", "web")

    assert isinstance(outcome, Unavailable)
    assert f"metrics.k8s.io: {state}, metrics.k8s.io" in outcome.message


@pytest.mark.parametrize("annotation", ["kubernetes.io/config.hash", "kubernetes.io/config.mirror"])
@pytest.mark.parametrize("listed", ["static-uid", POD_UID])
async def test_a_static_pod_is_found_however_its_kubelet_lists_it(
    here: World, annotation: str, listed: str
) -> None:
    pod = here.cluster.scripts[POD].document
    assert isinstance(pod, dict)
    pod["metadata"]["annotations"] = {annotation: "static-uid"}
    here.cluster.on(
        KUBELET, stats_summary("node-a", [{**pod, "metadata": {**pod["metadata"], "uid": listed}}], START)
    )

    assert states_of(await here.reader.read("team-a", "web"))["kubelet"] == "ok"


async def test_a_kubelet_that_does_not_know_the_pod(here: World) -> None:
    here.cluster.on(KUBELET, {"node": {"nodeName": "node-a"}, "pods": []})

    outcome = await here.reader.read("team-a", "web")

    assert states_of(outcome)["kubelet"] == "unknown_pod"
    assert states_of(outcome)["metrics.k8s.io"] == "ok"


async def test_a_recreated_pod_gets_nothing_of_its_predecessor(here: World) -> None:
    """The kubelet and metrics.k8s.io still carry the earlier pod of that name."""
    old_summary = here.cluster.scripts[KUBELET].document
    old_metrics = here.cluster.scripts[METRICS].document
    new_pod = here.add(WEB, pod_uid="44444444-0000-0000-0000-000000000004")
    new_pod["metadata"]["creationTimestamp"] = kubernetes_time(START + timedelta(seconds=1))
    here.cluster.on(KUBELET, old_summary)
    here.cluster.on(METRICS, old_metrics)

    outcome = await here.reader.read("team-a", "web")

    assert isinstance(outcome, Unavailable)
    assert "kubelet of node node-a: unknown_pod" in outcome.message
    assert "metrics.k8s.io: unknown_pod, metrics.k8s.io only knows an earlier pod of this name" in outcome.message


def recreate(here: World, pod_uid: str, **seconds: float) -> Any:
    """The Instance's pod is made anew now; its kubelet carries the new one from now on."""
    new_pod = here.add(WEB, pod_uid=pod_uid)
    now = START + timedelta(seconds=asyncio.get_running_loop().time())
    new_pod["metadata"]["creationTimestamp"] = kubernetes_time(now - timedelta(**seconds))
    new_pod["status"]["containerStatuses"] = []
    here.cluster.on(KUBELET, stats_summary("node-a", [new_pod], now))
    here.cluster.on(METRICS, NOT_FOUND)
    return new_pod


async def test_a_pod_that_is_newer_than_the_kept_summary_is_asked_for_at_once(here: World) -> None:
    await here.reader.read("team-a", "web")
    await asyncio.sleep(5)
    recreate(here, "44444444-0000-0000-0000-000000000004")

    outcome = await here.reader.read("team-a", "web")

    assert states_of(outcome)["kubelet"] == "ok"
    assert len(here.cluster.scripts[KUBELET].asked) == 1


async def test_a_new_pod_that_the_kubelet_does_not_carry_yet_is_not_asked_for_again_and_again(here: World) -> None:
    await here.reader.read("team-a", "web")
    await asyncio.sleep(5)
    recreate(here, "44444444-0000-0000-0000-000000000004")
    script = here.cluster.on(KUBELET, stats_summary("node-a", [], START))

    for _ in range(20):
        assert isinstance(await here.reader.read("team-a", "web"), Unavailable)

    assert len(script.asked) == 1


async def test_a_kept_summary_counts_for_a_pod_that_is_older_and_unknown(here: World) -> None:
    await here.reader.read("team-a", "web")
    await asyncio.sleep(5)
    recreate(here, "44444444-0000-0000-0000-000000000004", minutes=10)

    outcome = await here.reader.read("team-a", "web")

    assert isinstance(outcome, Unavailable)
    assert here.cluster.scripts[KUBELET].asked == []


async def test_a_pod_whose_container_started_after_the_kept_summary_is_newer_too(here: World) -> None:
    await here.reader.read("team-a", "web")
    await asyncio.sleep(5)
    pod = recreate(here, "44444444-0000-0000-0000-000000000004", minutes=10)
    started_at = START + timedelta(seconds=asyncio.get_running_loop().time())
    running = {"name": "main", "state": {"running": {"startedAt": kubernetes_time(started_at)}}}
    pod["status"]["containerStatuses"] = [running]

    assert states_of(await here.reader.read("team-a", "web"))["kubelet"] == "ok"


async def test_a_slow_kubelet_is_waited_for_and_preferred(here: World) -> None:
    here.cluster.scripts[KUBELET].takes_s = 3.5

    outcome, took_s = await timed(here.reader.read("team-a", "web"))

    assert not isinstance(sample_of(outcome).rootfs_used_mib, Reason)
    assert took_s == pytest.approx(3.52)
    assert here.cluster.scripts[METRICS].asked == [pytest.approx(2.02)]


async def test_no_summary_is_held_while_the_fallback_is_awaited() -> None:
    async with world(Ages(kubelet_s=0)) as here:
        here.add(WEB)
        here.cluster.on(KUBELET, stats_summary("node-a", [], START))
        here.cluster.scripts[METRICS].takes_s = 2
        before = summaries_held()

        reading = asyncio.create_task(here.reader.read("team-a", "web"))
        await asyncio.sleep(1)

        assert len(here.cluster.scripts[METRICS].asked) == 1
        assert summaries_held() == before
        assert states_of(await reading)["kubelet"] == "unknown_pod"


async def test_a_kubelet_that_does_not_answer_times_out_after_four_seconds(here: World) -> None:
    here.cluster.scripts[KUBELET].takes_s = 1e6

    outcome, took_s = await timed(here.reader.read("team-a", "web"))

    assert states_of(outcome)["kubelet"] == "timeout"
    assert states_of(outcome)["metrics.k8s.io"] == "ok"
    assert sample_of(outcome).rootfs_used_mib is Reason.TIMEOUT
    assert took_s == pytest.approx(4.02)


async def test_the_fallback_has_three_seconds_of_its_own(here: World) -> None:
    here.cluster.scripts[KUBELET].takes_s = 1e6
    here.cluster.scripts[METRICS].takes_s = 2.9

    outcome, took_s = await timed(here.reader.read("team-a", "web"))

    assert states_of(outcome)["metrics.k8s.io"] == "ok"
    assert took_s == pytest.approx(4.92)


async def test_no_source_at_all_is_unavailable_and_names_each_and_why(here: World) -> None:
    here.cluster.on(KUBELET, FetchError(SourceState.FORBIDDEN, "HTTP 403: nodes is forbidden", status=403))
    here.cluster.on(METRICS, NO_SUCH_API)

    outcome = await here.reader.read("team-a", "web")

    assert outcome == Unavailable(
        "no figures of pod team-a/web: kubelet of node node-a: forbidden, HTTP 403: nodes is forbidden; "
        "metrics.k8s.io: not_served, metrics.k8s.io is not served in this cluster"
    )


async def test_without_any_answer_a_read_ends_within_five_seconds_of_the_pod(here: World) -> None:
    for script in (*here.cluster.scripts.values(), *here.device_managers.scripts.values()):
        if script is not here.cluster.scripts[INSTANCE] and script is not here.cluster.scripts[POD]:
            script.takes_s = 1e6

    outcome, took_s = await timed(here.reader.read("team-a", "web"))

    assert isinstance(outcome, Unavailable)
    assert "kubelet of node node-a: timeout" in outcome.message
    assert "metrics.k8s.io: timeout" in outcome.message
    assert took_s == pytest.approx(5.02)


# Device managers


@pytest.mark.parametrize(
    ("failure", "state", "reason"),
    [
        (TIMEOUT, "timeout", Reason.TIMEOUT),
        (BROKEN, "unreachable", Reason.NOT_REPORTED),
        (FetchError(SourceState.INVALID, "HTML"), "invalid", Reason.INVALID_DATA),
    ],
    ids=["timeout", "500", "invalid"],
)
async def test_a_failing_device_manager_costs_its_own_cards_their_figures(
    here: World, failure: FetchError, state: str, reason: Reason
) -> None:
    here.device_managers.on(("node-a", "nvidia"), failure)

    outcome = await here.reader.read("team-a", "web")

    sample = sample_of(outcome)
    assert [entry.id for entry in sample.accelerators if entry.figures.measured] == ["GPU-2"]
    (lost,) = [entry for entry in sample.accelerators if entry.manufacturer == "nvidia"]
    assert lost.figures == Figures(reason)
    assert not isinstance(sample.cpu_usage_nanocores, Reason)
    assert states_of(outcome) == {"kubelet": "ok", "device-manager/amd": "ok", "device-manager/nvidia": state}


async def test_waiting_for_a_device_manager_that_hangs_makes_no_other_snapshot_stale(here: World) -> None:
    """Periods of a second: the healthy one's sample came at once, and is three seconds older in the answer."""
    script = here.device_managers.scripts["node-a", "amd"]
    assert isinstance(script.document, dict)
    script.document["periodSeconds"] = 1
    here.device_managers.scripts["node-a", "nvidia"].takes_s = 1e6

    outcome = await here.reader.read("team-a", "web")

    amd, nvidia = sample_of(outcome).accelerators
    assert (amd.figures.measured, nvidia.figures) == (True, Figures(Reason.TIMEOUT))
    [report] = [report for report in sample_of(outcome).sources if report.name == "device-manager/amd"]
    assert (report.state, report.age_s) == ("ok", 3)


async def test_a_kept_snapshot_that_was_stale_when_it_was_asked_for_is_stale() -> None:
    async with world(Ages(snapshot_s=60)) as here:
        here.add(WEB)
        script = here.device_managers.scripts["node-a", "amd"]
        assert isinstance(script.document, dict)
        script.document["periodSeconds"] = 1
        assert states_of(await here.reader.read("team-a", "web"))["device-manager/amd"] == "ok"
        await asyncio.sleep(5)

        outcome = await here.reader.read("team-a", "web")

    assert states_of(outcome)["device-manager/amd"] == "stale"
    assert len(script.asked) == 1


async def test_a_device_manager_that_does_not_answer_times_out_after_three_seconds(here: World) -> None:
    here.device_managers.scripts["node-a", "nvidia"].takes_s = 1e6

    outcome, took_s = await timed(here.reader.read("team-a", "web"))

    assert states_of(outcome)["device-manager/nvidia"] == "timeout"
    assert took_s == pytest.approx(3.02)


async def test_without_any_card_no_device_manager_is_asked(here: World) -> None:
    here.add(InstanceSpec("team-a", "web", "node-a"))

    outcome = await here.reader.read("team-a", "web")

    assert states_of(outcome) == {"kubelet": "ok"}
    assert sample_of(outcome).accelerators == ()
    assert [script.asked for script in here.device_managers.scripts.values()] == [[], []]


async def test_an_annotation_that_is_malformed_says_so_and_breaks_nothing(here: World) -> None:
    here.add(InstanceSpec("team-a", "web", "node-a", annotation='{"groups": []}'))

    outcome = await here.reader.read("team-a", "web")

    assert states_of(outcome) == {"kubelet": "ok", "allocation": "invalid"}
    assert not isinstance(sample_of(outcome).cpu_usage_nanocores, Reason)


# The caller's own deadline


async def test_a_shorter_deadline_is_kept(here: World) -> None:
    here.device_managers.scripts["node-a", "nvidia"].takes_s = 2

    outcome, took_s = await timed(here.reader.read("team-a", "web", deadline_s=1))

    assert states_of(outcome)["device-manager/nvidia"] == "timeout"
    assert states_of(outcome)["kubelet"] == "ok"
    assert took_s == pytest.approx(1)


async def test_a_longer_one_changes_nothing(here: World) -> None:
    here.cluster.scripts[POD].takes_s = 1e6

    _, took_s = await timed(here.reader.read("team-a", "web", deadline_s=3600))

    assert took_s == pytest.approx(5)


async def test_time_that_runs_out_while_asking_the_api_server(here: World) -> None:
    here.cluster.scripts[POD].takes_s = 1e6

    outcome, took_s = await timed(here.reader.read("team-a", "web", deadline_s=1))

    assert isinstance(outcome, DeadlineExceeded)
    assert took_s == pytest.approx(1)


async def test_time_that_runs_out_while_asking_the_sources(here: World) -> None:
    here.cluster.scripts[KUBELET].takes_s = 1e6

    outcome, took_s = await timed(here.reader.read("team-a", "web", deadline_s=1))

    assert isinstance(outcome, DeadlineExceeded)
    assert "kubelet of node node-a: timeout" in outcome.message
    assert took_s == pytest.approx(1)


@pytest.mark.parametrize("deadline_s", [0.0, -3.0])
async def test_no_time_at_all(here: World, deadline_s: float) -> None:
    outcome, took_s = await timed(here.reader.read("team-a", "web", deadline_s=deadline_s))

    assert isinstance(outcome, DeadlineExceeded)
    assert took_s == 0


async def test_a_reader_that_leaves_disturbs_no_other(here: World) -> None:
    async with asyncio.TaskGroup() as tasks:
        leaver = tasks.create_task(here.reader.read("team-a", "web"))
        stayer = tasks.create_task(here.reader.read("team-a", "web"))
        await asyncio.sleep(0.03)
        leaver.cancel()

    assert isinstance(stayer.result(), Answer)


# Look-alikes


async def test_look_alikes_never_lend_a_figure(here: World) -> None:
    """Pods of the same name elsewhere, of nearly the same name, and of another UID, in one summary."""
    pod = here.cluster.scripts[POD].document
    assert isinstance(pod, dict)
    mine = sample_of(await here.reader.read("team-a", "web"))
    summary = here.cluster.scripts[KUBELET].document
    assert isinstance(summary, dict)
    [entry] = summary["pods"]
    others = [
        {**entry, "podRef": {**entry["podRef"], **changed}, "cpu": {**entry["cpu"], "usageNanoCores": 1}}
        for changed in (
            {"namespace": "team-b"},
            {"name": "web-0"},
            {"name": "we"},
            {"uid": "22222222-0000-0000-0000-000000000003"},
        )
    ]
    here.cluster.on(KUBELET, {**summary, "pods": [*others, entry, *others]})
    await asyncio.sleep(20)

    again = sample_of(await here.reader.read("team-a", "web"))

    assert again.cpu_usage_nanocores == mine.cpu_usage_nanocores
    here.cluster.on(KUBELET, {**summary, "pods": others})
    await asyncio.sleep(20)
    assert states_of(await here.reader.read("team-a", "web"))["kubelet"] == "unknown_pod"


async def test_a_static_pod_is_known_by_its_hash(here: World) -> None:
    pod = here.cluster.scripts[POD].document
    summary = here.cluster.scripts[KUBELET].document
    assert isinstance(pod, dict)
    assert isinstance(summary, dict)
    pod["metadata"]["annotations"]["kubernetes.io/config.hash"] = "0123456789abcdef"
    summary["pods"][0]["podRef"]["uid"] = "0123456789abcdef"

    outcome = await here.reader.read("team-a", "web")

    assert states_of(outcome)["kubelet"] == "ok"
