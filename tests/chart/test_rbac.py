"""The worker does all its work with the rights that the chart gives it, and has use for each of them."""

import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import structlog

from devicemanager.clock import SystemClock
from devicemanager.demo.cluster.access import DISCOVERY, MASTERS, Rule, User
from devicemanager.demo.cluster.objects import InstanceSpec
from devicemanager.programs import worker as program
from devicemanager.settings.loading import load
from devicemanager.settings.worker import WorkerSettings
from tests.chart.conftest import NAMESPACE, Document, Render
from tests.chart.installed import SERVICE_ACCOUNT, Installed, bindings, the
from tests.cluster.faults import Fault, Trouble
from tests.cluster.stand_in import StandInCluster

ACCOUNT = "node-devicemanager-worker"
USER = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"
GROUP = "worker.gpustack.ai"
SERVER_NAME = f"{ACCOUNT}.{NAMESPACE}.svc"

EVERY_CLUSTERS_OWN: Mapping[str, Sequence[Mapping[str, Sequence[str]]]] = {
    "system:auth-delegator": [
        {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]},
        {"apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"]},
    ],
    "extension-apiserver-authentication-reader": [
        {
            "apiGroups": [""],
            "resources": ["configmaps"],
            "resourceNames": ["extension-apiserver-authentication"],
            "verbs": ["get", "list", "watch"],
        }
    ],
}
"""Roles that Kubernetes brings (plugin/pkg/auth/authorizer/rbac/bootstrappolicy), by name."""


@dataclass(frozen=True)
class Right:
    """One verb on one resource, as small as a right can be.

    Attributes:
        rule: What the stand-in decides by.
        rendered: Whether the chart wrote it, and not Kubernetes.
    """

    rule: Rule
    rendered: bool = field(compare=False)


def rights(documents: Sequence[Document]) -> list[Right]:
    """Everything the worker's service account may, one verb on one resource at a time."""
    roles = {d["metadata"]["name"]: d["rules"] for d in documents if d["kind"] in {"ClusterRole", "Role"}}
    return [
        Right(
            Rule(USER, (verb,), (group,), (resource,), namespace, tuple(rule.get("resourceNames", ()))),
            rendered=reference["name"] in roles,
        )
        for reference, namespace in bindings(documents, ACCOUNT)
        # A binding whose role is not there yet, or no longer, gives nothing.
        for rule in roles.get(reference["name"]) or EVERY_CLUSTERS_OWN.get(reference["name"], ())
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]


class Worker:
    """One that runs as installed, asked by a user with a token."""

    def __init__(self, session: aiohttp.ClientSession, url: str, context: ssl.SSLContext) -> None:
        self._session = session
        self._url = url
        self._context = context

    async def ask(self, path: str) -> Mapping[str, Any]:
        """A good answer below the group's version."""
        answer = await self._session.get(
            f"{self._url}/apis/{GROUP}/v1/{path}",
            headers={"Authorization": "Bearer admin"},
            ssl=self._context,
            server_hostname=SERVER_NAME,
        )
        body: Mapping[str, Any] = await answer.json()
        assert answer.status == 200, body
        return body


@asynccontextmanager
async def running(cluster: StandInCluster, documents: Sequence[Document], root: Path) -> AsyncIterator[Worker]:
    """The worker as the chart starts it, with the rights that the chart gives it and no others."""
    installed = Installed(documents, the(documents, "Deployment", "-worker"), root)
    cluster.access.tokens["worker"] = User(USER, groups=("system:serviceaccounts",))
    cluster.access.tokens["admin"] = User("admin", groups=(MASTERS,))
    cluster.access.rules[:] = [*DISCOVERY, *(right.rule for right in rights(documents))]
    authority = root / SERVICE_ACCOUNT.relative_to("/") / "ca.crt"
    authority.parent.mkdir(parents=True)
    authority.write_bytes(cluster.authority.pem.certificate)
    kubeconfig = cluster.write_kubeconfig(root / "kubeconfig", "worker")
    settings = load(
        WorkerSettings, installed.on_loopback(f"--kubeconfig={kubeconfig}", "--kubelet-max-age=0s")[1:], {}
    )
    serving = ssl.create_default_context(cafile=str(installed.path("--cert-dir") / "ca.crt"))
    async with (
        program.running(settings, SystemClock(), structlog.get_logger().bind()) as worker,
        aiohttp.ClientSession() as session,
    ):
        yield Worker(session, f"https://127.0.0.1:{worker.listener.addresses[0][1]}", serving)


async def everything_asked(cluster: StandInCluster, worker: Worker) -> None:
    """Each thing that the worker can be asked, with each source failing once."""
    await worker.ask("namespaces/team-a/instances/web/metrics")
    await worker.ask("namespaces/team-a/instancemetrics/web")
    await worker.ask("namespaces/team-a/instancemetrics")
    assert len((await worker.ask("instancemetrics"))["items"]) == 2
    with cluster.faults.on("kubelet/node-a", Fault(Trouble.ERROR, status=500)):
        await worker.ask("namespaces/team-a/instances/web/metrics")
        assert len((await worker.ask("instancemetrics"))["items"]) == 2
    watched = await cluster.requests.wait_for(2, verb="watch", user=USER)
    assert {entry.target for entry in watched} == {"configmaps", "pods"}


@pytest.mark.parametrize("mode", ["proxy", "direct"])
@pytest.mark.asyncio
async def test_each_right_is_enough_and_needed(
    mode: str, render: Render, stand_in_cluster: StandInCluster, tmp_path: Path
) -> None:
    cluster = stand_in_cluster
    documents = render(worker={"kubelet": {"mode": mode}})
    cluster.add_node("node-a")
    for namespace in ("team-a", "team-b"):
        cluster.add_instance(InstanceSpec(namespace, "web", "node-a"))
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(cluster.kubelet("node-a"))
        worker = await stack.enter_async_context(running(cluster, documents, tmp_path))
        await everything_asked(cluster, worker)

    asked = {entry.asked for entry in cluster.requests.matching(user=USER)}
    worker_itself = cluster.access.tokens["worker"]
    given = rights(documents)
    allowed_by = {
        request: [right for right in given if right.rule.allows(worker_itself, request)]
        for request in asked
        if request.resource
    }
    assert [request for request, by in allowed_by.items() if not by] == []
    used = [right for by in allowed_by.values() for right in by]
    assert [right.rule for right in given if right.rendered and right not in used] == []
    assert {right.rule.resources for right in given if not right.rendered} <= {
        right.rule.resources for right in used
    }
