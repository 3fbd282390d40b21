"""The whole read side over real TLS: stand-in cluster, device manager, and each fault of each of them."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web

from devicemanager.demo.cluster.objects import Grant, InstanceSpec
from devicemanager.errors import SettingsError
from devicemanager.model.accelerator import Reason
from devicemanager.model.figures import Figures
from devicemanager.model.usage import UsageSample
from devicemanager.transport.body_memory import BodyMemory
from devicemanager.worker.apiserver.front_proxy import FrontProxy
from devicemanager.worker.client import Client, ReadOptions, connect, connect_reader
from devicemanager.worker.credentials import Kubeconfig
from devicemanager.worker.deadlines import Deadlines
from devicemanager.worker.outcomes import Answer, ListOutcome, Outcome, Unavailable
from devicemanager.worker.pages import Lister
from devicemanager.worker.slices import Slices
from devicemanager.worker.sources import Ages
from tests.cluster.faults import Fault, Trouble
from tests.cluster.stand_in import StandInCluster
from tests.unit.worker.conftest import SERVER_NAME, DeviceManagerPeer, SkewedClock

WEB = InstanceSpec("team-a", "web", "node-a", [Grant("nvidia", "GPU-1")])
DEADLINES = Deadlines(kubelet_s=1.0, device_manager_s=1.0, hedge_s=0.5, fallback_s=1.0)


@pytest.fixture
def furnished(stand_in_cluster: StandInCluster, device_manager: DeviceManagerPeer) -> StandInCluster:
    """A node, an Instance with one card, and its device manager."""
    stand_in_cluster.add_node("node-a")
    stand_in_cluster.add_instance(WEB)
    stand_in_cluster.add_device_manager("node-a", "nvidia", "127.0.0.1", device_manager.port)
    return stand_in_cluster


@pytest.fixture
def options(device_manager: DeviceManagerPeer) -> ReadOptions:
    return ReadOptions(
        device_manager_tls=device_manager.client_context,
        device_manager_server_name=SERVER_NAME,
        ages=Ages(kubelet_s=0, snapshot_s=0),
        deadlines=DEADLINES,
    )


@pytest_asyncio.fixture
async def side(furnished: StandInCluster, kubeconfig: Path, options: ReadOptions) -> AsyncIterator[Client]:
    async with connect(Kubeconfig(str(kubeconfig)), options) as side:
        yield side


def sample_of(outcome: Outcome) -> UsageSample:
    assert isinstance(outcome, Answer), outcome
    assert outcome.usage.sample is not None
    return outcome.usage.sample


def states_of(outcome: Outcome) -> dict[str, str]:
    return {report.name: str(report.state) for report in sample_of(outcome).sources}


@pytest.mark.asyncio
async def test_all_that_reads_shares_one_memory_and_one_turn(
    furnished: StandInCluster, kubeconfig: Path, options: ReadOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    for kind in (BodyMemory, Slices, Lister):
        original = kind.__init__

        def noting(self: object, *args: object, _original: Any = original, **more: object) -> None:
            made.append(type(self).__name__)
            _original(self, *args, **more)

        monkeypatch.setattr(kind, "__init__", noting)
    async with connect(Kubeconfig(str(kubeconfig)), options) as side:
        FrontProxy(side.cluster, lambda _: None, lister=side.lister)

    assert sorted(made) == ["BodyMemory", "Lister", "Lister", "Slices"]  # and one that a WorkloadReads has


@pytest.mark.asyncio
async def test_everything_together(side: Client) -> None:
    outcome = await side.reader.read("team-a", "web")

    sample = sample_of(outcome)
    assert states_of(outcome) == {"kubelet": "ok", "device-manager/nvidia": "ok"}
    assert not isinstance(sample.cpu_usage_nanocores, Reason)
    assert not isinstance(sample.rootfs_used_mib, Reason)
    [entry] = sample.accelerators
    assert (entry.id, entry.figures["memory_total"], entry.figures["power_usage"]) == ("GPU-1", 81920, 233)
    assert all(report.age_s is not None and 0 <= report.age_s < 60 for report in sample.sources)


@pytest.mark.parametrize(
    ("fault", "state"),
    [
        (Fault(Trouble.HELD), "timeout"),
        (Fault(Trouble.DRIP, delay_s=0.05), "timeout"),
        (Fault(Trouble.ERROR, status=500), "unreachable"),
        (Fault(Trouble.ERROR, status=502), "unreachable"),
        (Fault(Trouble.ERROR, status=504), "timeout"),
        (Fault(Trouble.ERROR, status=403), "forbidden"),
        (Fault(Trouble.ERROR, status=404), "not_served"),
        (Fault(Trouble.HTML), "invalid"),
        (Fault(Trouble.HUGE), "invalid"),
        (Fault(Trouble.HALF), "invalid"),
        (Fault(Trouble.GZIP_BOMB), "invalid"),
        (Fault(Trouble.RESET), "unreachable"),
        (Fault(Trouble.ABSENT_POD, pod=("team-a", "web")), "unknown_pod"),
        (Fault(Trouble.EARLIER_POD, pod=("team-a", "web")), "unknown_pod"),
    ],
    ids=lambda value: f"{value.trouble.name} {value.status}" if isinstance(value, Fault) else "",
)
@pytest.mark.asyncio
async def test_each_fault_of_the_kubelet_leads_to_the_fallback(
    side: Client, furnished: StandInCluster, fault: Fault, state: str
) -> None:
    with furnished.faults.on("kubelet/node-a", fault):
        outcome = await side.reader.read("team-a", "web")

    assert states_of(outcome) == {"kubelet": state, "metrics.k8s.io": "ok", "device-manager/nvidia": "ok"}
    sample = sample_of(outcome)
    assert not isinstance(sample.cpu_usage_nanocores, Reason)
    assert isinstance(sample.rootfs_used_mib, Reason)
    assert len(sample.accelerators) == 1


PASSING = [
    *(Fault(Trouble.ERROR, status=status) for status in (429, 500, 502, 503, 504)),
    Fault(Trouble.RESET),
    Fault(Trouble.HALF),
]


@pytest.mark.parametrize(
    "fault", PASSING, ids=lambda fault: f"{fault.trouble.name} {fault.status}" if isinstance(fault, Fault) else ""
)
@pytest.mark.asyncio
async def test_a_failure_of_a_moment_costs_no_answer(
    side: Client, furnished: StandInCluster, device_manager: DeviceManagerPeer, fault: Fault
) -> None:
    async def failing_once(request: web.Request) -> web.StreamResponse:
        device_manager.answer = device_manager.snapshot
        return web.Response(status=fault.status)

    await side.reader.read("team-a", "web")  # device managers are known from here on
    device_manager.answer = failing_once
    for target in ("instances.worker.gpustack.ai", "pods", "kubelet/node-a"):
        furnished.faults.switch_on(target, fault, times=1)

    outcome = await side.reader.read("team-a", "web")

    assert states_of(outcome) == {"kubelet": "ok", "device-manager/nvidia": "ok"}
    assert len(sample_of(outcome).accelerators) == 1


@pytest.mark.parametrize(
    "fault", PASSING, ids=lambda fault: f"{fault.trouble.name} {fault.status}" if isinstance(fault, Fault) else ""
)
@pytest.mark.asyncio
async def test_a_failure_of_a_moment_costs_no_list(side: Client, furnished: StandInCluster, fault: Fault) -> None:
    await side.reader.read("team-a", "web")  # device managers are known from here on
    for target in ("instances.worker.gpustack.ai", "pods", "kubelet/node-a"):
        furnished.faults.switch_on(target, fault, times=1)

    outcome = await side.reader.list()

    assert isinstance(outcome, ListOutcome)
    assert (len(outcome.items), outcome.warnings) == (1, ())


@pytest.mark.asyncio
async def test_pods_that_cannot_be_read_cost_their_rows_and_say_so(
    side: Client, furnished: StandInCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("devicemanager.worker.workloads.reads.BATCH", 1)
    furnished.add_instance(InstanceSpec("team-b", "web", "node-a"))
    await side.reader.read("team-a", "web")  # device managers are known from here on
    furnished.faults.switch_on("pods", Fault(Trouble.ERROR, status=403), times=1)

    outcome = await side.reader.list()

    assert isinstance(outcome, ListOutcome)
    assert [item.sample is None for item in outcome.items] == [True, False]
    [(name, why)] = outcome.absences.items()
    assert name == "team-a/web"
    assert why == "the pods of Instance team-a/web cannot be read: HTTP 403"
    [warning] = outcome.warnings
    assert warning == "the pods of 1 Instances cannot be read: forbidden: HTTP 403"


@pytest.mark.asyncio
async def test_a_failure_of_a_moment_costs_no_fallback(side: Client, furnished: StandInCluster) -> None:
    furnished.faults.switch_on("pods.metrics.k8s.io", Fault(Trouble.ERROR, status=500), times=1)
    with furnished.faults.on("kubelet/node-a", Fault(Trouble.ERROR, status=403)):
        outcome = await side.reader.read("team-a", "web")

    assert states_of(outcome)["metrics.k8s.io"] == "ok"


@pytest.mark.asyncio
async def test_blocks_left_behind_are_stale(side: Client, furnished: StandInCluster) -> None:
    with furnished.faults.on("kubelet/node-a", Fault(Trouble.STALE, behind=timedelta(minutes=4))):
        sample = sample_of(await side.reader.read("team-a", "web"))

    assert sample.cpu_usage_nanocores is Reason.STALE
    assert sample.memory_working_set_mib is Reason.STALE
    assert isinstance(sample.ephemeral_storage_used_mib, int)


@pytest.mark.asyncio
async def test_where_every_block_is_left_behind_the_fallback_answers(
    side: Client, furnished: StandInCluster
) -> None:
    with furnished.faults.on("kubelet/node-a", Fault(Trouble.STALE, behind=timedelta(minutes=10))):
        outcome = await side.reader.read("team-a", "web")

    sample = sample_of(outcome)
    assert isinstance(sample.cpu_usage_nanocores, int)
    assert sample.ephemeral_storage_used_mib is Reason.STALE
    states = states_of(outcome)
    assert (states["kubelet"], states["metrics.k8s.io"]) == ("stale", "ok")


@pytest.mark.asyncio
async def test_no_source_of_usage_at_all(side: Client, furnished: StandInCluster) -> None:
    furnished.remove_metrics_api()
    with furnished.faults.on("kubelet/node-a", Fault(Trouble.ERROR, status=500)):
        outcome = await side.reader.read("team-a", "web")

    assert isinstance(outcome, Unavailable)
    assert outcome.message == (
        "no figures of pod team-a/web: kubelet of node node-a: unreachable, HTTP 500; "
        "metrics.k8s.io: not_served, metrics.k8s.io is not served in this cluster"
    )


@pytest.mark.parametrize("trouble", [Trouble.ERROR, Trouble.HTML, Trouble.HALF, Trouble.HELD])
@pytest.mark.asyncio
async def test_both_failing_name_each_and_why(side: Client, furnished: StandInCluster, trouble: Trouble) -> None:
    with (
        furnished.faults.on("kubelet/node-a", Fault(trouble)),
        furnished.faults.on("pods.metrics.k8s.io", Fault(trouble)),
    ):
        outcome = await side.reader.read("team-a", "web")

    assert isinstance(outcome, Unavailable)
    assert "kubelet of node node-a: " in outcome.message
    assert "; metrics.k8s.io: " in outcome.message


@pytest.mark.asyncio
async def test_a_recreated_pod_is_followed(side: Client, furnished: StandInCluster) -> None:
    before = await side.reader.read("team-a", "web")
    assert isinstance(before, Answer)
    furnished.recreate_pod(WEB, before.usage.uid)

    after = await side.reader.read("team-a", "web")

    assert states_of(after)["kubelet"] == "ok"


@pytest.mark.asyncio
async def test_a_recreated_instance_does_not_get_the_old_pod(side: Client, furnished: StandInCluster) -> None:
    instances = "instances.worker.gpustack.ai"

    def recreate(instance: dict[str, dict[str, str]]) -> None:
        instance["metadata"]["uid"] = "99999999-0000-0000-0000-000000000009"

    furnished.store.edit(instances, "team-a", "web", recreate)

    outcome = await side.reader.read("team-a", "web")

    assert isinstance(outcome, Unavailable)
    assert "earlier incarnation" in outcome.message


@pytest.mark.parametrize("skew", [timedelta(minutes=-5), timedelta(minutes=5)], ids=str)
@pytest.mark.asyncio
async def test_a_skewed_clock_of_the_reader_changes_no_age_and_no_figure(
    furnished: StandInCluster, kubeconfig: Path, options: ReadOptions, skew: timedelta
) -> None:
    async with connect(Kubeconfig(str(kubeconfig)), options, clock=SkewedClock(skew)) as side:
        outcome = await side.reader.read("team-a", "web")

    assert states_of(outcome) == {"kubelet": "ok", "device-manager/nvidia": "ok"}
    sample = sample_of(outcome)
    assert len(sample.accelerators) == 1
    assert all(report.age_s is not None and 0 <= report.age_s < 60 for report in sample.sources)


@pytest.mark.asyncio
async def test_all_are_listed(side: Client, furnished: StandInCluster) -> None:
    furnished.add_instance(InstanceSpec("team-b", "db", "node-a"))
    furnished.requests.clear()

    found = await side.reader.list()

    assert isinstance(found, ListOutcome)
    assert [(item.namespace, item.name) for item in found.items] == [("team-a", "web"), ("team-b", "db")]
    assert found.warnings == ()
    assert len(furnished.requests.matching("nodes/proxy")) == 1


@pytest.mark.asyncio
async def test_without_a_client_pair_only_the_cards_are_missing(
    furnished: StandInCluster, kubeconfig: Path
) -> None:
    async with connect_reader(Kubeconfig(str(kubeconfig))) as reader:
        outcome = await reader.read("team-a", "web")

    assert states_of(outcome) == {"kubelet": "ok", "device-manager/nvidia": "unauthorized"}
    (card,) = sample_of(outcome).accelerators
    assert (card.id, card.figures) == ("GPU-1", Figures(Reason.PERMISSION))


@pytest.mark.asyncio
async def test_a_rotated_client_pair_is_used_at_once(
    furnished: StandInCluster,
    kubeconfig: Path,
    device_manager: DeviceManagerPeer,
    tmp_path: Path,
    options: ReadOptions,
) -> None:
    unknown = DeviceManagerPeer(tmp_path / "unknown")
    await unknown.start()
    contexts = [await asyncio.to_thread(peer.client_context) for peer in (unknown, device_manager)]
    await unknown.stop()
    current = contexts[:1]
    rotating = ReadOptions(
        lambda: current[0],
        device_manager_server_name=SERVER_NAME,
        ages=options.ages,
        deadlines=DEADLINES,
    )
    async with connect(Kubeconfig(str(kubeconfig)), rotating) as side:
        before = await side.reader.read("team-a", "web")
        current[0] = contexts[1]
        after = await side.reader.read("team-a", "web")

    assert states_of(before)["device-manager/nvidia"] == "unreachable"
    assert states_of(after)["device-manager/nvidia"] == "ok"


@pytest.mark.asyncio
async def test_credentials_that_cannot_be_read_end_it_before_it_begins(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="no such file"):
        async with connect(Kubeconfig(str(tmp_path / "none"))):
            pass


@pytest.mark.asyncio
async def test_what_its_user_raises_comes_out_as_it_is(furnished: StandInCluster, kubeconfig: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        async with connect(Kubeconfig(str(kubeconfig))):
            raise ZeroDivisionError


@pytest.mark.asyncio
async def test_a_cancelled_user_leaves_nothing_behind(furnished: StandInCluster, kubeconfig: Path) -> None:
    entered = asyncio.Event()

    async def use() -> None:
        async with connect(Kubeconfig(str(kubeconfig))):
            entered.set()
            await asyncio.Event().wait()

    async with asyncio.TaskGroup() as tasks:
        using = tasks.create_task(use())
        await entered.wait()
        before = asyncio.all_tasks()
        using.cancel()

    assert using.cancelled()
    assert not [task for task in before if not task.done() and "follow" in repr(task.get_coro())]
