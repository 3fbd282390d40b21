"""An Instance as the owner of other objects. A 404 here makes the garbage collector delete every dependent."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from devicemanager.errors import FetchError
from devicemanager.model.usage import SourceState
from devicemanager.worker.api_errors import fetch_error
from devicemanager.worker.apiserver.owners import LOOKUPS
from tests.timing import until
from tests.unit.worker.apiserver.api_server import GROUPS, Received, Server, running_server

pytestmark = pytest.mark.asyncio

COLLECTOR = (
    "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,"
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
)
"""What the garbage collector accepts."""

TABLE = "application/json;as=Table;g=meta.k8s.io"
KUBECTL = f"{TABLE};v=v1,{TABLE};v=v1beta1,application/json"

SOURCE = "/apis/worker.gpustack.ai/v1alpha1/namespaces/team-a/instances/web"

METADATA = {
    "name": "web",
    "namespace": "team-a",
    "uid": "00000000-0000-4000-8000-000000000001",
    "resourceVersion": "7",
    "deletionTimestamp": "2026-08-12T09:15:00Z",
    "finalizers": ["foregroundDeletion"],
}


@pytest_asyncio.fixture
async def first_server(tmp_path: Path) -> AsyncIterator[Server]:
    """A server under the group that Instances are defined in."""
    async with running_server(tmp_path) as opened:
        yield opened


def path(server: Server, name: str = "web") -> str:
    return f"{server.prefix}/namespaces/team-a/instances/{name}"


async def get(server: Server, accept: str = COLLECTOR, name: str = "web", *, method: str = "GET") -> Received:
    return await server.proxied(path(server, name), headers=[("Accept", accept)], method=method)


def instance(**metadata: Any) -> bytes:
    document = {
        "kind": "Instance",
        "apiVersion": "worker.gpustack.ai/v1alpha1",
        "metadata": {**METADATA, **metadata},
        "spec": {"secret": "not ours to tell"},
    }
    return json.dumps(document).encode()


def status(code: int, reason: str, message: str, **details: str) -> FetchError:
    """An error answer as kube-apiserver writes it."""
    document = {"kind": "Status", "apiVersion": "v1", "reason": reason, "message": message, "code": code}
    return fetch_error(code, json.dumps({**document, "details": details}).encode())


async def test_the_collector_gets_the_live_metadata_unchanged(server: Server) -> None:
    server.instances.answers[SOURCE] = instance()
    answer = await get(server)
    if server.group != GROUPS[0]:
        assert answer.status == 405
        return
    assert answer.status == 200
    assert answer["Content-Type"] == "application/json"
    assert answer.json == {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": METADATA,
    }
    assert server.instances.asked == [(SOURCE, None)], "read through no cache"


@pytest.mark.parametrize("accept", ["application/json", "", "*/*", KUBECTL])
async def test_without_a_conversion_it_is_an_instance_with_metadata_only(first_server: Server, accept: str) -> None:
    first_server.instances.answers[SOURCE] = instance()
    answer = await get(first_server, accept)
    assert answer.json == {
        "kind": "Instance",
        "apiVersion": f"{first_server.group}/v1",
        "metadata": METADATA,
    }


async def test_an_instance_that_the_api_server_says_is_missing_is_not_found(first_server: Server) -> None:
    first_server.instances.answers[SOURCE] = status(
        404, "NotFound", 'instances.worker.gpustack.ai "web" not found', name="web", kind="instances"
    )
    answer = await get(first_server)
    assert (answer.status, answer.json["reason"]) == (404, "NotFound")
    assert answer.json["details"]["name"] == "web"


@pytest.mark.parametrize(
    "failure",
    [
        FetchError(SourceState.UNREACHABLE, "connection refused"),
        FetchError(SourceState.TIMEOUT, "no answer within 5 s"),
        fetch_error(404, b"404 page not found\n"),
        status(404, "NotFound", "the server could not find the requested resource"),
        status(404, "NotFound", 'namespaces "team-a" not found', name="team-a", kind="namespaces"),
        status(403, "Forbidden", "may not", name="web"),
        status(429, "TooManyRequests", "too many requests"),
        status(500, "InternalError", "etcdserver: leader changed"),
        status(410, "Expired", "too old"),
    ],
    ids=lambda error: f"{error.status}-{error.message[:24]}",
)
async def test_any_other_failure_keeps_the_dependents(first_server: Server, failure: FetchError) -> None:
    first_server.instances.answers[SOURCE] = failure
    answer = await get(first_server)
    assert (answer.status, answer.json["reason"]) == (503, "ServiceUnavailable")
    assert answer.all("Retry-After") == []
    assert "retryAfterSeconds" not in answer.json["details"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b"[" * 100_000,
        instance(name="other"),
        instance(namespace="other"),
        instance(uid=""),
        instance(uid=None),
        b'{"metadata":[]}',
    ],
)
async def test_an_answer_that_is_not_that_instance_keeps_the_dependents(first_server: Server, body: bytes) -> None:
    first_server.instances.answers[SOURCE] = body
    assert (await get(first_server)).status == 503


async def test_what_only_protobuf_could_say_is_not_acceptable(first_server: Server) -> None:
    first_server.instances.answers[SOURCE] = instance()
    assert (await get(first_server, "application/vnd.kubernetes.protobuf")).status == 406


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("DELETE", "{prefix}/namespaces/team-a/instances/web"),
        ("PATCH", "{prefix}/namespaces/team-a/instances/web"),
        ("PUT", "{prefix}/namespaces/team-a/instances/web"),
        ("GET", "{prefix}/namespaces/team-a/instances"),
        ("GET", "{prefix}/namespaces/team-a/instances?watch=true"),
        ("POST", "{prefix}/namespaces/team-a/instances"),
        ("DELETE", "{prefix}/namespaces/team-a/instances"),
        ("GET", "{prefix}/instances"),
        ("GET", "{prefix}/instances/web"),
        ("GET", "{prefix}/namespaces/team-a/instances/web/"),
    ],
)
async def test_anything_else_about_instances_is_not_allowed(server: Server, method: str, path: str) -> None:
    server.instances.answers[SOURCE] = instance()
    answer = await server.proxied(path.format(prefix=server.prefix), method=method)
    assert (answer.status, answer.json["reason"]) == (405, "MethodNotAllowed")
    assert server.instances.asked == []


async def test_reading_an_owner_needs_the_right_to_get_instances(server: Server) -> None:
    server.api.allows = lambda spec: spec.get("resourceAttributes", {}).get("subresource") == "metrics"
    server.instances.answers[SOURCE] = instance()
    assert (await get(server)).status == 403
    assert server.instances.asked == []


async def test_each_caller_has_a_read_of_its_own_and_their_number_is_bounded(tmp_path: Path) -> None:
    """A read that began earlier may not know of an owner made since."""
    async with running_server(tmp_path) as server, asyncio.TaskGroup() as callers:
        server.instances.answers[SOURCE] = instance()
        server.instances.hold = asyncio.Event()
        reads = [callers.create_task(get(server)) for _ in range(LOOKUPS)]
        await until(lambda: len(server.instances.asked) == LOOKUPS)
        beyond = await get(server)
        assert (beyond.status, beyond.all("Retry-After")) == (503, [])
        server.instances.hold.set()
        assert {(await read).status for read in reads} == {200}
    assert len(server.instances.asked) == LOOKUPS
