"""``devicemanager instance-metrics`` against the stand-in cluster, with a worker's API and without."""

import json
import ssl
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from aiohttp import web
from structlog.testing import capture_logs

from devicemanager.demo.cluster.objects import Grant, InstanceSpec
from devicemanager.demo.cluster.stand_in import ADMIN_TOKEN
from devicemanager.programs.instance_metrics import run
from devicemanager.settings.instance_metrics import InstanceMetricsSettings
from devicemanager.settings.output import Output
from devicemanager.tls.certificates import Authority
from tests.cluster.stand_in import StandInCluster

WEB = InstanceSpec("team-a", "web", "node-a", [Grant("nvidia", "GPU-1")])
SERVER_NAME = "worker.gpustack-system.svc"


@pytest.fixture(autouse=True)
def log() -> Iterator[None]:
    """The log goes elsewhere: what is printed is looked at."""
    with capture_logs():
        yield


@pytest.fixture
def settings(stand_in_cluster: StandInCluster, tmp_path: Path) -> InstanceMetricsSettings:
    """An administrator's question about team-a/web."""
    stand_in_cluster.add_node("node-a")
    kubeconfig = stand_in_cluster.write_kubeconfig(tmp_path / "kubeconfig", ADMIN_TOKEN)
    return InstanceMetricsSettings(name="web", namespace="team-a", kubeconfig=str(kubeconfig), output=Output.JSON)


@pytest_asyncio.fixture
async def answers(stand_in_cluster: StandInCluster, tmp_path: Path) -> AsyncIterator[list[web.Response]]:
    """A worker's API that gives these answers, the first one first."""
    prepared: list[web.Response] = []

    async def answer(_: web.Request) -> web.Response:
        return prepared.pop(0)

    authority = Authority.create("serving CA")
    authority.serving([SERVER_NAME]).write(tmp_path, "worker")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "worker.crt", tmp_path / "worker.key")
    application = web.Application()
    application.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    url = f"https://127.0.0.1:{runner.addresses[0][1]}"
    stand_in_cluster.register("worker.gpustack.ai", "v1", url, authority.pem.certificate, SERVER_NAME)
    yield prepared
    await runner.cleanup()


def status(code: int, message: str, reason: str = "", name: str = "") -> web.Response:
    document = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code}
    return web.json_response({**document, "reason": reason, "details": {"name": name}}, status=code)


@pytest.mark.asyncio
async def test_the_workers_answer_is_printed(
    stand_in_cluster: StandInCluster,
    settings: InstanceMetricsSettings,
    answers: list[web.Response],
    capsys: pytest.CaptureFixture[str],
) -> None:
    stand_in_cluster.add_instance(WEB)
    sample = {"timestamp": "2026-08-12T09:15:00Z", "cpuUsageNanoCores": 7}
    metadata = {"namespace": "team-a", "name": "web", "uid": "u-1"}
    document = {
        "kind": "InstanceMetrics",
        "apiVersion": "worker.gpustack.ai/v1",
        "metadata": metadata,
        "sample": sample,
    }
    answers.append(web.json_response(document))

    assert await run(settings) == 0

    printed = capsys.readouterr()
    assert printed.err == ""
    assert json.loads(printed.out)["sample"]["cpuUsageNanoCores"] == 7
    assert stand_in_cluster.requests.matching("nodes/proxy") == []


@pytest.mark.asyncio
async def test_without_a_worker_it_reads_for_itself_and_says_so(
    stand_in_cluster: StandInCluster, settings: InstanceMetricsSettings, capsys: pytest.CaptureFixture[str]
) -> None:
    uids = stand_in_cluster.add_instance(WEB)
    stand_in_cluster.add_device_manager("node-a", "nvidia", "127.0.0.9")

    assert await run(settings) == 0

    printed = capsys.readouterr()
    assert "no worker answers for worker.gpustack.ai" in printed.err
    document = json.loads(printed.out)
    assert document["metadata"]["uid"] == uids.instance
    assert document["sample"]["cpuUsageNanoCores"] > 0
    sources = {source["name"]: source["state"] for source in document["sample"]["sources"]}
    assert sources == {"kubelet": "ok", "device-manager/nvidia": "unauthorized"}


@pytest.mark.asyncio
async def test_a_worker_that_is_down_is_no_reason_to_say_nothing(
    stand_in_cluster: StandInCluster,
    settings: InstanceMetricsSettings,
    answers: list[web.Response],
    capsys: pytest.CaptureFixture[str],
) -> None:
    stand_in_cluster.add_instance(WEB)
    answers.append(status(503, "no source at all"))

    assert await run(settings.model_copy(update={"output": Output.TABLE})) == 0

    printed = capsys.readouterr()
    assert "no source at all" in printed.err
    assert printed.out.startswith("team-a/web: sampled ")
    assert "CPU" in printed.out


@pytest.mark.asyncio
async def test_who_may_not_ask_is_told_so_and_nothing_is_read(
    stand_in_cluster: StandInCluster,
    settings: InstanceMetricsSettings,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    stand_in_cluster.add_instance(WEB)
    stand_in_cluster.add_user("tina-token", "tina")
    kubeconfig = stand_in_cluster.write_kubeconfig(tmp_path / "tina", "tina-token")

    assert await run(settings.model_copy(update={"kubeconfig": str(kubeconfig)})) == 1

    printed = capsys.readouterr()
    assert printed.out == ""
    assert 'User "tina" cannot get resource "instances/metrics"' in printed.err
    assert stand_in_cluster.requests.matching("instances.worker.gpustack.ai") == []


@pytest.mark.asyncio
async def test_an_instance_that_is_not_there(
    settings: InstanceMetricsSettings, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await run(settings) == 1
    assert "Instance team-a/web not found" in capsys.readouterr().err


@pytest.mark.asyncio
async def test_an_instance_that_the_worker_does_not_know(
    stand_in_cluster: StandInCluster,
    settings: InstanceMetricsSettings,
    answers: list[web.Response],
    capsys: pytest.CaptureFixture[str],
) -> None:
    answers.append(status(404, 'instances.worker.gpustack.ai "web" not found', "NotFound", "web"))
    assert await run(settings) == 1
    assert capsys.readouterr().err == (
        "devicemanager instance-metrics: "
        'HTTP 404: instances.worker.gpustack.ai "web" not found in namespace "team-a"\n'
    )
    assert stand_in_cluster.requests.matching("instances.worker.gpustack.ai") == []


@pytest.mark.parametrize(("flag", "expected"), [(None, "team-b/web"), ("team-c", "team-c/web")])
@pytest.mark.asyncio
async def test_the_namespace_is_the_contexts_unless_a_flag_names_one(
    stand_in_cluster: StandInCluster,
    settings: InstanceMetricsSettings,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    flag: str | None,
    expected: str,
) -> None:
    kubeconfig = stand_in_cluster.write_kubeconfig(tmp_path / "of-team-b", ADMIN_TOKEN, "team-b")
    changed = {"kubeconfig": str(kubeconfig), "namespace": flag}

    assert await run(settings.model_copy(update=changed)) == 1

    assert f"Instance {expected} not found" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["Web", "../nodes", ""])
@pytest.mark.asyncio
async def test_a_name_that_is_none_is_not_sent(
    stand_in_cluster: StandInCluster, settings: InstanceMetricsSettings, name: str
) -> None:
    assert await run(settings.model_copy(update={"name": name})) == 1
    assert stand_in_cluster.requests.entries == []


@pytest.mark.asyncio
async def test_the_callers_time_is_over(
    stand_in_cluster: StandInCluster,
    settings: InstanceMetricsSettings,
    answers: list[web.Response],
    capsys: pytest.CaptureFixture[str],
) -> None:
    answers.append(status(504, "the kubelet did not answer"))
    assert await run(settings) == 1
    assert "the kubelet did not answer" in capsys.readouterr().err


def test_a_client_pair_needs_somebody_to_believe(tmp_path: Path) -> None:
    settings = InstanceMetricsSettings(name="web", device_manager_client_cert_dir=tmp_path)
    assert [conflict.names for conflict in settings.conflicts()] == [
        ("device_manager_client_cert_dir", "device_manager_ca_file")
    ]


def test_kubeconfigs_may_be_several_and_at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/tina")
    settings = InstanceMetricsSettings(name="web", kubeconfig="~/.kube/config:/etc/kube:")
    assert settings.kubeconfig_paths == "/home/tina/.kube/config:/etc/kube"
