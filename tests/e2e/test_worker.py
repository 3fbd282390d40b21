"""``devicemanager worker`` as a process: how it starts, when it refuses to, and how it ends."""

import asyncio
import json
import re
import signal
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from devicemanager.clock import SystemClock
from devicemanager.demo.cluster.access import Rule
from devicemanager.demo.cluster.objects import InstanceSpec
from devicemanager.demo.cluster.stand_in import WORKER_TOKEN
from devicemanager.tls.certificates import Authority
from tests.cluster.faults import Fault, Trouble
from tests.cluster.stand_in import StandInCluster
from tests.e2e.device_manager import LATE_SIGNALS, template
from tests.e2e.forked import AwaitedProgram
from tests.timing import until
from tests.unit.worker.apiserver.api_server import GROUPS, SERVER_NAME, Received, exchange

pytestmark = pytest.mark.asyncio

INSTANCES = "instances.worker.gpustack.ai"
"""The custom resource, whatever group ours is served under."""

FRESH = ("-m", "devicemanager.cli")
"""The program by a start of its own: for what is measured, and for limits that it inherits."""


@dataclass
class Worker:
    """The process, and what it has logged."""

    process: asyncio.subprocess.Process | AwaitedProgram
    context: ssl.SSLContext
    ca: bytes
    lines: list[dict[str, Any]] = field(default_factory=list)
    port: int = 0

    async def logged(self, event: str) -> dict[str, Any]:
        """The next line with this event."""
        assert self.process.stdout is not None
        async with asyncio.timeout(20):
            async for line in self.process.stdout:
                self.lines.append(json.loads(line))
                if self.lines[-1]["event"] == event:
                    return self.lines[-1]
        raise AssertionError(f"it ended without {event}: {self.lines}")

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port, ssl=self.context, server_hostname=SERVER_NAME)

    async def ask(self, path: str, token: str | None = None, accept: str | None = None) -> Received:
        reader, writer = await self.connect()
        headers = [] if token is None else [("Authorization", f"Bearer {token}")]
        headers += [] if accept is None else [("Accept", accept)]
        try:
            return await exchange(reader, writer, path, headers)
        finally:
            writer.close()

    async def ready(self) -> None:
        async with asyncio.timeout(20):
            for _ in range(2000):
                if (await self.ask("/readyz")).status == 200:
                    return

    async def ended(self) -> int:
        assert self.process.stdout is not None
        async with asyncio.timeout(20):
            await self.process.stdout.read()
            return await self.process.wait()


@asynccontextmanager
async def started(
    cluster: StandInCluster,
    folder: Path,
    group: str = GROUPS[0],
    flags: Sequence[str] = (),
    program: Sequence[str] = (),
    tree: Path | None = None,
) -> AsyncIterator[Worker]:
    """A worker as a process of its own, from another copy of the product where ``tree`` says where that is."""
    kubeconfig = cluster.write_kubeconfig(folder / "kubeconfig", WORKER_TOKEN)
    environment = {} if tree is None else {"PYTHONPATH": str(tree)}
    own = [f"--kubeconfig={kubeconfig}", f"--api-group={group}", *flags]
    async with running(folder, own, program, environment, tree) as worker:
        yield worker


@asynccontextmanager
async def running(
    folder: Path, flags: Sequence[str], program: Sequence[str], environment: Mapping[str, str], cwd: Path | None
) -> AsyncIterator[Worker]:
    """A worker as a process of its own, with a serving certificate in a folder.

    It begins as a copy of a process that has imported it, unless it is asked for fresh, as another program, or from
    another folder.
    """
    authority = Authority.create("serving CA")
    authority.serving([SERVER_NAME]).write(folder)
    arguments = ["worker", "--bind-address=127.0.0.1", "--secure-port=0", f"--cert-dir={folder}", *flags]
    arguments.append("--log-format=json")
    environment = {"PATH": "", **environment}
    process: asyncio.subprocess.Process | AwaitedProgram
    if program or cwd is not None:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *(program or FRESH),
            *arguments,
            env=environment,
            cwd=cwd,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    else:
        process = await template().start_awaited(arguments, environment, folder)
    try:
        ca = authority.pem.certificate
        yield Worker(process, ssl.create_default_context(cadata=ca.decode()), ca)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


def path(group: str) -> str:
    return f"/apis/{group}/v1/namespaces/default/instances/web/metrics"


def furnish(cluster: StandInCluster, group: str) -> None:
    cluster.add_node("node-a")
    cluster.add_instance(InstanceSpec("default", "web", "node-a"))
    cluster.add_user("viewer", "viewer")
    cluster.grant(Rule("viewer", ("get",), (group,), ("instances/metrics",), namespace="default"))


@pytest.mark.parametrize("group", GROUPS)
async def test_told_to_stop_it_turns_unready_serves_on_and_finishes_what_is_under_way(
    stand_in_cluster: StandInCluster, tmp_path: Path, group: str
) -> None:
    furnish(stand_in_cluster, group)
    async with started(
        stand_in_cluster, tmp_path, group, ["--shutdown-delay=60s", "--shutdown-timeout=10s"]
    ) as worker:
        worker.port = (await worker.logged("server_listening"))["port"]
        await worker.ready()
        headers = [("Authorization", "Bearer viewer")]
        reader, writer = await worker.connect()
        before = await exchange(reader, writer, path(group), headers)
        assert before.status == 200
        assert not before.all("Connection")
        worker.process.send_signal(signal.SIGTERM)
        await worker.logged("shutdown_started")
        assert (await worker.ask("/readyz")).status == 500
        assert (await worker.ask("/livez")).status == 200
        # Served on, and told to come back on another connection, which may find another replica.
        after = await exchange(reader, writer, path(group), headers)
        assert (after.status, after.all("Connection")) == (200, ["close"])
        assert await reader.read() == b""
        writer.close()
        held = Fault(Trouble.HELD)
        with stand_in_cluster.faults.on(INSTANCES, held):
            seen = len(stand_in_cluster.requests.matching(INSTANCES))
            async with asyncio.TaskGroup() as tasks:
                under_way = tasks.create_task(worker.ask(path(group), "viewer"))
                await until(lambda: len(stand_in_cluster.requests.matching(INSTANCES)) > seen)
                worker.process.send_signal(signal.SIGTERM)
                held.released.set()
            assert under_way.result().status == 200
        assert await worker.ended() == 0
    started_with, *_ = worker.lines
    assert started_with["event"] == "program_started"
    assert started_with["settings"]["shutdown-delay"] == "1m"


@pytest.mark.parametrize("group", GROUPS)
async def test_a_group_of_another_service_is_refused_with_both_remedies(
    stand_in_cluster: StandInCluster, tmp_path: Path, group: str
) -> None:
    operator = Authority.create("operator")
    stand_in_cluster.register(
        group, "v1", "https://127.0.0.1:1", operator.pem.certificate, "operator.gpustack-system.svc"
    )
    own = "--service=gpustack-system/devicemanager-worker"
    async with started(stand_in_cluster, tmp_path, group, [own]) as worker:
        out, err = await worker.process.communicate()
        assert worker.process.returncode == 2
        message = err.decode()
        assert f"v1.{group} is registered to service gpustack-system/operator" in message
        assert "--api-group" in message
        assert "--take-over-api-service" in message
        assert b"server_listening" not in out
    async with started(stand_in_cluster, tmp_path, group, [own, "--take-over-api-service"]) as worker:
        worker.port = (await worker.logged("server_listening"))["port"]
        await worker.ready()


async def test_an_address_that_is_taken_is_one_line_and_no_traceback(
    stand_in_cluster: StandInCluster, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        async with started(stand_in_cluster, tmp_path, flags=[f"--secure-port={port}"]) as worker:
            failed = await worker.logged("listen_failed")

            assert await worker.ended() == 1
            assert failed["reason"] == (
                f"127.0.0.1:{port}: address in use: another program listens there; choose another --secure-port"
            )
            assert "exception" not in failed


async def test_without_the_front_proxys_ca_it_is_unready_says_why_and_serves_discovery(
    stand_in_cluster: StandInCluster, tmp_path: Path
) -> None:
    group = GROUPS[0]
    furnish(stand_in_cluster, group)
    stand_in_cluster.store.delete("configmaps", "kube-system", "extension-apiserver-authentication")
    async with started(stand_in_cluster, tmp_path, group) as worker:
        worker.port = (await worker.logged("server_listening"))["port"]
        told = await worker.logged("front_proxy_trust_not_current")
        assert "not found" in told["error"]
        assert told["last_good"] is False
        unready = await worker.ask("/readyz")
        assert unready.status == 500
        assert b"[-]front-proxy failed: reason withheld" in unready.body
        assert (await worker.ask(f"/apis/{group}/v1", "viewer")).status == 200
        assert (await worker.ask(path(group), "viewer")).status == 200
        stand_in_cluster.publish_front_proxy([stand_in_cluster.front_proxy])
        await worker.logged("front_proxy_trust_changed")
        await worker.ready()


async def test_its_metrics_tell_how_sources_answer_and_when_authorities_end(
    stand_in_cluster: StandInCluster, tmp_path: Path
) -> None:
    furnish(stand_in_cluster, GROUPS[0])
    stand_in_cluster.grant(Rule("viewer", ("get",), paths=("/metrics",)))
    (tmp_path / "ca.crt").write_bytes(Authority.create("serving CA").pem.certificate)
    async with started(stand_in_cluster, tmp_path) as worker:
        worker.port = (await worker.logged("server_listening"))["port"]
        await worker.ready()
        with stand_in_cluster.faults.on("kubelet/node-a", Fault(Trouble.ERROR, status=403)):
            assert (await worker.ask(path(GROUPS[0]), "viewer")).status == 200

        text = (await worker.ask("/metrics", "viewer")).body.decode()

    assert 'devicemanager_worker_source_up{source="kubelet"} 0.0' in text
    assert 'devicemanager_worker_source_up{source="metrics.k8s.io"} 1.0' in text
    assert 'devicemanager_worker_source_peers_failing{source="kubelet",state="forbidden"} 1.0' in text
    uses = re.findall(r'devicemanager_worker_ca_not_after_timestamp_seconds{use="([a-z-]+)"} ([0-9.e+]+)', text)
    assert [use for use, _ in uses] == ["front-proxy", "serving"]
    assert all(float(ends) > SystemClock().now().timestamp() for _, ends in uses)
    assert "process_resident_memory_bytes" in text


async def test_settings_that_cannot_be_used_are_refused_together(
    stand_in_cluster: StandInCluster, tmp_path: Path
) -> None:
    flags = ["--service=nonsense", "--kubelet-mode=magic", "--api-group=nodots"]
    async with started(stand_in_cluster, tmp_path, "Bad_Group", flags) as worker:
        _, err = await worker.process.communicate()
        assert worker.process.returncode == 2
        for flag in ("--service", "--kubelet-mode", "--api-group"):
            assert flag in err.decode()


async def test_a_signal_that_comes_while_the_interpreter_ends_does_not_change_the_exit_code(
    stand_in_cluster: StandInCluster, tmp_path: Path
) -> None:
    """On a busy machine, or with little processor time, that end takes longer than any alarm."""
    async with started(stand_in_cluster, tmp_path, program=("-c", LATE_SIGNALS)) as worker:
        await worker.logged("server_listening")
        worker.process.send_signal(signal.SIGTERM)
        assert (await worker.logged("interpreter_ending"))["alarm_s"] == 0
        await worker.logged("interpreter_still_ending")
        assert await worker.ended() == 0
