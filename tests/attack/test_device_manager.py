"""``devicemanager serve`` with the chart's memory limit, under attack by strangers on the pod network."""

import http.client
import resource
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from devicemanager.tls.certificates import Authority, PemPair
from tests.attack import attackers
from tests.attack.attackers import attack
from tests.attack.conftest import StartDeviceManager
from tests.e2e.device_manager import trusting_anyone
from tests.floods import MIB, Flood, probe, request
from tests.timing import wait_until

pytestmark = pytest.mark.timeout(120)


def many_cards(folder: Path) -> str:
    """A snapshot that no socket buffer holds."""
    scenario = folder / "many.toml"
    scenario.write_text("count = 128\n")
    return f"--simulated-scenario={scenario}"


def test_unfinished_heads_on_800_connections(start_device_manager: StartDeviceManager) -> None:
    target = start_device_manager()
    with target.attacked():
        attack(attackers.unfinished_heads, target.program.port)


def test_answers_never_read_and_endless_heads_behind_them(
    start_device_manager: StartDeviceManager, tmp_path: Path
) -> None:
    """Six such connections once made 240 MiB of it. Whoever may read it anonymously gets long answers."""
    target = start_device_manager(many_cards(tmp_path), anonymous=True)
    with target.attacked():
        attack(attackers.large_requests_behind_answers, target.program.port)
        attack(attackers.answers_never_read, target.program.port, "/monitor/snapshot")
        attack(attackers.an_endless_head_behind_answers, target.program.port)


def test_every_slot_held_by_an_answer_that_is_not_read(
    start_device_manager: StartDeviceManager, tmp_path: Path
) -> None:
    """From 11 addresses; of 42 probes from a twelfth, 24 once failed."""
    target = start_device_manager(many_cards(tmp_path), anonymous=True)
    with target.attacked():
        attack(attackers.every_slot_with_an_answer_not_read, target.program.port, "/monitor/snapshot")


def test_1400_idle_connections_where_the_soft_limit_is_1024(start_device_manager: StartDeviceManager) -> None:
    target = start_device_manager(ulimit="-S -n 1024")
    assert target.program.soft_limit_raised()
    with target.attacked():
        attack(attackers.idle_connections, target.program.port)

    assert target.program.events("accept_failed") == []
    assert target.program.events("connections_limited") == []


def test_all_kinds_at_once_from_16_addresses(start_device_manager: StartDeviceManager) -> None:
    target = start_device_manager()
    with target.attacked():
        attack(attackers.mixed, target.program.port)


class TestDescriptors:
    def test_fewer_descriptors_are_fewer_connections(self, start_device_manager: StartDeviceManager) -> None:
        """Where the hard limit allows no more, connections stay within it, and the log says so."""
        program = start_device_manager(ulimit="-n 200").program
        line = program.event("connections_limited")

        assert (line["descriptors"], line["wanted"]) == (200, 320)
        assert line["connections"] <= 100
        with Flood(program.port) as flood:
            idle_connections(flood, 300)
            wait_until(lambda: probe(program.port, "127.0.3.1"), "an answered probe")
            assert [probe(program.port, "127.0.3.1") for _ in range(10)] == [True] * 10
        assert program.events("accept_failed") == []

    def test_connections_are_evicted_when_descriptors_run_out(
        self, start_device_manager: StartDeviceManager
    ) -> None:
        """The longest waiting connection is evicted; a new one does not wait until another closes."""
        program = start_device_manager().program
        _, hard = resource.prlimit(program.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(program.pid, resource.RLIMIT_NOFILE, (program.descriptors() + 20, hard))
        with Flood(program.port) as flood:
            idle_connections(flood, 100)
            wait_until(lambda: program.events("accept_failed"), "accept_failed in the log")
            wait_until(lambda: probe(program.port, "127.0.3.1"), "an answered probe")
            assert [probe(program.port, "127.0.3.1") for _ in range(5)] == [True] * 5

        evicted = program.events("connection_evicted")
        assert [line["reason"] for line in evicted] == ["no descriptor or memory for another connection"]


def idle_connections(flood: Flood, number: int) -> None:
    for index in range(number):
        flood.idle(f"127.0.4.{1 + index % 100}")


def test_a_connection_that_never_reads_is_not_read_from_either(
    start_device_manager: StartDeviceManager, tmp_path: Path
) -> None:
    """What the device manager takes of it is what the kernel's buffers hold, whatever is sent after that."""
    program = start_device_manager(many_cards(tmp_path), anonymous=True).program
    with Flood(program.port) as flood:
        connection = flood.open("127.0.0.2")
        assert connection is not None
        taken = flood.push(connection, request("/monitor/snapshot") * 100_000)

    assert taken < MIB


def test_a_client_certificate_that_expires_on_a_kept_connection_is_no_longer_trusted(
    start_device_manager: StartDeviceManager, tmp_path: Path
) -> None:
    """It was once good for as long as its connection."""
    target = start_device_manager()
    ends = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=5)
    key = Authority.load(PemPair((tmp_path / "ca.crt").read_bytes(), (tmp_path / "ca.key").read_bytes()))
    key.client("worker", now=ends - timedelta(days=1), days=1).write(tmp_path, "worker")
    context = trusting_anyone()
    context.load_cert_chain(tmp_path / "worker.crt", tmp_path / "worker.key")
    with closing(
        http.client.HTTPSConnection("127.0.0.1", target.program.port, timeout=10, context=context)
    ) as connection:
        connection.auto_open = False
        connection.connect()
        status = first = snapshot_status(connection)
        while status == 200:
            status = snapshot_status(connection)

    assert first == 200
    assert datetime.now(UTC) >= ends
    assert status in {401, None}
    assert target.program.event("client_refused" if status else "client_certificate_expired")


def snapshot_status(connection: http.client.HTTPSConnection) -> int | None:
    """Of one more answer on a kept connection; None when that is closed."""
    try:
        connection.request("GET", "/monitor/snapshot")
        answer = connection.getresponse()
        answer.read()
    except (OSError, http.client.HTTPException):
        return None
    return answer.status
