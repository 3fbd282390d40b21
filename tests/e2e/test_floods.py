"""Floods of real programs by unverified peers: memory stays below the chart's limit, and probes are answered."""

import asyncio
import http.client
import resource
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest
import pytest_asyncio

from devicemanager.serving.descriptors import MOST
from devicemanager.tls.certificates import Authority
from tests.cluster.stand_in import StandInCluster
from tests.e2e.device_manager import DeviceManager, Serve, trusting_anyone
from tests.e2e.test_worker import FRESH, Worker, started
from tests.floods import (
    MIB,
    Flood,
    chart_limit_bytes,
    header_line,
    long_names,
    peak_bytes,
    probe,
    request,
    unfinished_head,
)
from tests.timing import wait_until

DEVICE_MANAGER = "deviceManager"
WORKER = "worker"
SIMULATED = "--manufacturer=simulated"


@pytest.fixture
def manager(serve: Serve) -> DeviceManager:
    made = serve(SIMULATED, fresh=True)
    made.until_state("ok")
    return made


@pytest_asyncio.fixture
async def worker(stand_in_cluster: StandInCluster, tmp_path: Path) -> AsyncIterator[Worker]:
    async with started(stand_in_cluster, tmp_path, program=FRESH) as made:
        made.port = (await made.logged("server_listening"))["port"]
        await made.ready()
        yield made


def handshakes_begun_at_once(port: int, number: int) -> int:
    """How many connections from one address, all there before the first handshake begins, are served."""
    with Flood(port) as flood:
        for _ in range(number):
            flood.idle("127.0.0.1")
        return sum(flood.ask(one) for one in flood.shake_hands())


def unfinished_heads_on_800_connections(port: int) -> None:
    head = unfinished_head(960 * 1024)
    with Flood(port, send_buffer=262_144) as flood:
        for _ in range(800):
            connection = flood.open("127.0.0.1")
            if connection is not None:
                flood.ask(connection)
        flood.push_all(head)


def answers_that_nobody_reads(port: int, addresses: int, each: int, path: str) -> None:
    with Flood(port) as flood:
        for number in range(addresses * each):
            connection = flood.open(f"127.0.2.{1 + number % addresses}")
            assert connection is not None
        flood.push_all(request(path) * 14)


def an_endless_head_behind_answers_that_nobody_reads(port: int) -> None:
    with Flood(port, send_buffer=262_144) as flood:
        assert flood.open("127.0.2.1") is not None
        begun = request(long_names(60_000)) * 100 + b"GET /livez HTTP/1.1\r\n"
        flood.push_all(begun, header_line(60_000), 320 * MIB)


def large_requests_behind_answers_that_nobody_reads(port: int, connections: int) -> None:
    with Flood(port) as flood:
        for _ in range(connections):
            assert flood.open("127.0.2.1") is not None
        flood.push_all(request("/metrics") * 200, request("/livez", header_line(8000) * 120), 40 * MIB)


@pytest.mark.asyncio
@pytest.mark.timeout(120)
class TestMemory:
    async def test_unfinished_heads_on_800_connections_leave_the_worker_below_its_limit(
        self, worker: Worker
    ) -> None:
        """960 KB of a head on each connection once made 2,115 MiB of it."""
        await asyncio.to_thread(unfinished_heads_on_800_connections, worker.port)

        assert peak_bytes(worker.process.pid) < chart_limit_bytes(WORKER)
        assert (await worker.ask("/livez")).status == 200

    async def test_connections_that_never_read_leave_the_worker_below_its_limit(self, worker: Worker) -> None:
        """One such connection, with an endless head at its end, once made 779 MiB of it."""
        await asyncio.to_thread(an_endless_head_behind_answers_that_nobody_reads, worker.port)
        await asyncio.to_thread(answers_that_nobody_reads, worker.port, 8, 32, long_names(60_000))

        assert peak_bytes(worker.process.pid) < chart_limit_bytes(WORKER)
        assert (await worker.ask("/livez")).status == 200


@pytest.mark.asyncio
async def test_connections_that_an_api_server_begins_at_once_are_all_served(worker: Worker) -> None:
    """Limits for unverified peers hold for it too, until its handshake has shown its certificate."""
    assert await asyncio.to_thread(handshakes_begun_at_once, worker.port, 96) == 96


@pytest.mark.timeout(120)
def test_unfinished_heads_leave_the_device_manager_below_its_limit(manager: DeviceManager) -> None:
    """The same kind, on the program with the smaller limit."""
    unfinished_heads_on_800_connections(manager.port)

    assert peak_bytes(manager.process.pid) < chart_limit_bytes(DEVICE_MANAGER)
    assert manager.ask("/livez").status == 200


@pytest.mark.timeout(120)
def test_connections_that_never_read_leave_the_device_manager_below_its_limit(manager: DeviceManager) -> None:
    """Six of them once made 240 MiB of it."""
    large_requests_behind_answers_that_nobody_reads(manager.port, 6)
    answers_that_nobody_reads(manager.port, 8, 32, "/metrics")

    assert peak_bytes(manager.process.pid) < chart_limit_bytes(DEVICE_MANAGER)
    assert manager.ask("/livez").status == 200


@pytest.mark.timeout(120)
def test_a_connection_that_never_reads_is_not_read_from_either(manager: DeviceManager) -> None:
    """What the device manager takes of it is what the kernel's buffers hold, whatever is sent after that."""
    with Flood(manager.port) as flood:
        connection = flood.open("127.0.0.2")
        assert connection is not None
        taken = flood.push(connection, request("/metrics") * 100_000)

    assert taken < 1024 * 1024


@pytest.mark.timeout(120)
def test_probes_are_answered_while_all_connections_hold_answers_that_are_not_read(
    serve: Serve, tmp_path: Path
) -> None:
    """From 11 addresses; of 42 probes from a twelfth, 24 once failed."""
    many = tmp_path / "many.toml"
    many.write_text("count = 128\n")
    manager = serve(SIMULATED, f"--simulated-scenario={many}", fresh=True)
    manager.until_state("ok")
    with Flood(manager.port) as flood:
        for number in range(11 * 24):
            connection = flood.open(f"127.0.2.{1 + number % 11}")
            assert connection is not None
        flood.push_all(request("/monitor/snapshot") * 400)
        wait_until(lambda: probe(manager.port, "127.0.3.1"), "the answer to the burst itself")

        assert [probe(manager.port, "127.0.3.1") for _ in range(42)] == [True] * 42


@contextmanager
def soft_limit_of_descriptors(number: int) -> Iterator[None]:
    """For this process, and those that it starts."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (number, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def raised(pid: int) -> bool:
    soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    return soft == min(hard, MOST)


def idle_connections(flood: Flood, number: int, addresses: int = 100) -> None:
    for index in range(number):
        flood.idle(f"127.0.4.{1 + index % addresses}")


class TestDescriptors:
    @pytest.mark.asyncio
    async def test_the_worker_raises_its_soft_limit_and_outlives_1400_idle_connections(
        self, stand_in_cluster: StandInCluster, tmp_path: Path
    ) -> None:
        """With a soft limit of 1,024 every probe and reader once timed out."""
        with soft_limit_of_descriptors(1024):
            manager = started(stand_in_cluster, tmp_path, program=FRESH)
            made = await manager.__aenter__()
        try:
            made.port = (await made.logged("server_listening"))["port"]
            await made.ready()
            assert raised(made.process.pid)
            with Flood(made.port) as flood:
                await asyncio.to_thread(idle_connections, flood, 1400)
                await asyncio.to_thread(wait_until, lambda: probe(made.port, "127.0.3.1"), "all are accepted")
                probes = [await asyncio.to_thread(probe, made.port, "127.0.3.1") for _ in range(10)]
        finally:
            await manager.__aexit__(None, None, None)

        assert probes == [True] * 10

    def test_the_device_manager_raises_its_soft_limit(self, serve: Serve) -> None:
        """The same in the other program."""
        with soft_limit_of_descriptors(1024):
            made = serve(SIMULATED, fresh=True)
        made.until_state("ok")

        assert raised(made.process.pid)
        assert made.events("connections_limited") == []

    def test_fewer_descriptors_are_fewer_connections(self, serve: Serve) -> None:
        """Where the hard limit allows no more, connections stay within it, and the log says so."""
        made = serve(SIMULATED, descriptors=200)

        line = made.event("connections_limited")

        assert (line["descriptors"], line["wanted"]) == (200, 320)
        assert line["connections"] <= 100
        with Flood(made.port) as flood:
            idle_connections(flood, 300)
            wait_until(lambda: probe(made.port, "127.0.3.1"), "an answered probe")
            assert [probe(made.port, "127.0.3.1") for _ in range(10)] == [True] * 10
        assert made.events("accept_failed") == []

    def test_connections_are_evicted_when_descriptors_run_out(self, manager: DeviceManager) -> None:
        """The longest waiting connection is evicted; a new one does not wait until another closes."""
        pid = manager.process.pid
        _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (psutil.Process(pid).num_fds() + 20, hard))
        with Flood(manager.port) as flood:
            idle_connections(flood, 100)
            wait_until(lambda: manager.events("accept_failed"), "accept_failed in the log")
            wait_until(lambda: probe(manager.port, "127.0.3.1"), "an answered probe")
            assert [probe(manager.port, "127.0.3.1") for _ in range(5)] == [True] * 5

        evicted = manager.events("connection_evicted")
        assert [line["reason"] for line in evicted] == ["no descriptor or memory for another connection"]


def test_a_client_certificate_that_expires_on_a_kept_connection_is_no_longer_trusted(
    serve: Serve, tmp_path: Path
) -> None:
    """It was once good for as long as its connection."""
    authority = Authority.create("clients")
    authority.pem.write(tmp_path, "ca")
    made = serve(SIMULATED, f"--client-ca-file={tmp_path / 'ca.crt'}", fresh=True)
    made.event("server_listening")
    ends = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=8)
    authority.client("worker", now=ends - timedelta(days=1), days=1).write(tmp_path, "worker")
    context = trusting_anyone()
    context.load_cert_chain(tmp_path / "worker.crt", tmp_path / "worker.key")
    with closing(http.client.HTTPSConnection("127.0.0.1", made.port, timeout=10, context=context)) as connection:
        connection.auto_open = False
        connection.connect()
        status = first = snapshot_status(connection)
        while status == 200:
            status = snapshot_status(connection)

    assert first == 200
    assert datetime.now(UTC) >= ends
    assert status in {401, None}
    assert made.event("client_refused" if status else "client_certificate_expired")


def snapshot_status(connection: http.client.HTTPSConnection) -> int | None:
    """Of one more answer on a kept connection; None when that is closed."""
    try:
        connection.request("GET", "/monitor/snapshot")
        answer = connection.getresponse()
        answer.read()
    except (OSError, http.client.HTTPException):
        return None
    return answer.status
