"""``devicemanager instance-metrics`` against the stand-in cluster, with a worker's API and without."""

import asyncio
import json
import ssl
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
import yaml
from aiohttp import web
from structlog.testing import capture_logs

from devicemanager.demo.cluster.objects import Grant, InstanceSpec
from devicemanager.demo.cluster.stand_in import ADMIN_TOKEN
from devicemanager.errors import SettingsError
from devicemanager.programs.instance_metrics import run
from devicemanager.settings.instance_metrics import InstanceMetricsSettings
from devicemanager.settings.loading import load
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
async def test_a_worker_that_has_no_figures_is_believed(
    stand_in_cluster: StandInCluster,
    settings: InstanceMetricsSettings,
    answers: list[web.Response],
    capsys: pytest.CaptureFixture[str],
) -> None:
    stand_in_cluster.add_instance(WEB)
    answers.append(status(503, "no figures of pod team-a/web: kubelet: timeout", "ServiceUnavailable", "web"))

    assert await run(settings) == 1

    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == (
        "devicemanager instance-metrics: HTTP 503: no figures of pod team-a/web: kubelet: timeout\n"
    )
    assert stand_in_cluster.requests.matching("instances.worker.gpustack.ai") == []


@pytest.mark.parametrize("output", [Output.TABLE, Output.JSON])
@pytest.mark.asyncio
async def test_an_answer_without_a_sample_is_a_failure(
    settings: InstanceMetricsSettings,
    answers: list[web.Response],
    capsys: pytest.CaptureFixture[str],
    output: Output,
) -> None:
    metadata = {"namespace": "team-a", "name": "web", "uid": "u-1"}
    document = {"kind": "InstanceMetrics", "apiVersion": "worker.gpustack.ai/v1", "metadata": metadata}
    answers.append(web.json_response({**document, "sample": None}))

    assert await run(settings.model_copy(update={"output": output})) == 1

    printed = capsys.readouterr()
    assert printed.out == ""
    assert "the worker answered without a sample of Instance team-a/web" in printed.err


@pytest.mark.asyncio
async def test_a_busy_worker_is_asked_again(
    settings: InstanceMetricsSettings, answers: list[web.Response], capsys: pytest.CaptureFixture[str]
) -> None:
    metadata = {"namespace": "team-a", "name": "web", "uid": "u-1"}
    document = {"kind": "InstanceMetrics", "apiVersion": "worker.gpustack.ai/v1", "metadata": metadata}
    answers += [
        status(429, "too many reads are under way", "TooManyRequests"),
        web.json_response({**document, "sample": {"timestamp": "2026-08-12T09:15:00Z", "cpuUsageNanoCores": 7}}),
    ]

    assert await run(settings) == 0
    assert '"cpuUsageNanoCores": 7' in capsys.readouterr().out


def kubeconfig_of(folder: Path, server: str, user: str) -> str:
    path = folder / "of-its-own"
    path.write_text(
        f"{{clusters: [{{name: c, cluster: {{server: '{server}'}}}}], users: [{{name: u, user: {user}}}],"
        " contexts: [{name: x, context: {cluster: c, user: u}}], current-context: x}"
    )
    return str(path)


@pytest.mark.asyncio
async def test_it_goes_through_the_proxy_of_its_environment(
    settings: InstanceMetricsSettings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked: list[bytes] = []

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n"))
        writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    kubeconfig = kubeconfig_of(tmp_path, "https://api.example:6443", "{token: t}")
    async with await asyncio.start_server(proxy, "127.0.0.1", 0) as server:
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        assert await run(settings.model_copy(update={"kubeconfig": kubeconfig})) == 1

    assert asked[0] == b"CONNECT api.example:6443 HTTP/1.1\r\n"


@pytest.mark.asyncio
async def test_a_plugin_that_hangs_takes_no_more_than_the_whole_answer_may(
    settings: InstanceMetricsSettings, tmp_path: Path
) -> None:
    plugin = tmp_path / "plugin"
    plugin.write_text(f"#!{sys.executable}\nimport signal; signal.pause()\n")
    plugin.chmod(0o700)
    user = f"{{exec: {{apiVersion: client.authentication.k8s.io/v1, command: {plugin}}}}}"
    kubeconfig = kubeconfig_of(tmp_path, "https://api.example:6443", user)

    with pytest.raises(SettingsError, match=r"its exec plugin did not answer within 0\.[45]"):
        await run(settings.model_copy(update={"kubeconfig": kubeconfig, "timeout": 0.5}))


@pytest.mark.asyncio
async def test_a_plugin_is_asked_once_also_where_no_worker_answers(
    stand_in_cluster: StandInCluster, settings: InstanceMetricsSettings, tmp_path: Path
) -> None:
    stand_in_cluster.add_instance(WEB)
    calls = tmp_path / "calls"
    credential = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": ADMIN_TOKEN},
    }
    plugin = tmp_path / "plugin"
    plugin.write_text(
        f"#!{sys.executable}\nopen({str(calls)!r}, 'a').write('.'); print({json.dumps(credential)!r})\n"
    )
    plugin.chmod(0o700)
    document = yaml.safe_load(stand_in_cluster.kubeconfig())
    document["users"][0]["user"] = {"exec": {"apiVersion": credential["apiVersion"], "command": str(plugin)}}
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(document))

    assert await run(settings) == 0

    assert calls.read_text() == "."


@pytest.mark.asyncio
async def test_an_unauthorized_caller_is_told_so_and_nothing_is_read(
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


@pytest.mark.parametrize("arguments", [["Web"], ["../nodes"], ["a/b"], ["web", "-n", "Team A"], ["web", "-n=a/b"]])
def test_an_invalid_name_is_wrong_usage(arguments: list[str]) -> None:
    with pytest.raises(SettingsError, match="must be a name in Kubernetes"):
        load(InstanceMetricsSettings, arguments, {})


@pytest.mark.asyncio
async def test_a_context_with_an_invalid_namespace_is_named_and_nothing_sent(
    stand_in_cluster: StandInCluster, settings: InstanceMetricsSettings, tmp_path: Path
) -> None:
    kubeconfig = stand_in_cluster.write_kubeconfig(tmp_path / "kubeconfig", ADMIN_TOKEN, namespace="Team/A")

    with pytest.raises(SettingsError, match="the context's namespace 'Team/A'"):
        await run(settings.model_copy(update={"namespace": None, "kubeconfig": str(kubeconfig)}))
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


def test_a_client_pair_needs_a_ca_file(tmp_path: Path) -> None:
    settings = InstanceMetricsSettings(name="web", device_manager_client_cert_dir=tmp_path)
    assert [conflict.names for conflict in settings.conflicts()] == [
        ("device_manager_client_cert_dir", "device_manager_ca_file")
    ]


def test_kubeconfigs_may_be_several_and_at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/tina")
    settings = InstanceMetricsSettings(name="web", kubeconfig="~/.kube/config:/etc/kube:")
    assert settings.kubeconfig_paths == "/home/tina/.kube/config:/etc/kube"
