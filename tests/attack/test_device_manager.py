"""``devicemanager serve`` with the chart's memory limit, under attack by strangers on the pod network."""

import http.client
import resource
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest

from devicemanager.tls.certificates import Authority
from tests.attack import attackers
from tests.attack.attackers import attack
from tests.attack.conftest import StartDeviceManager
from tests.e2e.device_manager import Serve, trusting_anyone
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
    target = start_device_manager(soft_descriptors=1024)
    assert target.program.soft_limit_raised()
    with target.attacked():
        attack(attackers.idle_connections, target.program.port)

    assert target.program.events("accept_failed") == []
    assert target.program.events("connections_limited") == []


def test_all_kinds_at_once_from_16_addresses(start_device_manager: StartDeviceManager) -> None:
    target = start_device_manager()
    with target.attacked():
        attack(attackers.mixed, target.program.port)
