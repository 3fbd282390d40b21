"""``devicemanager serve`` from its start to its end, with simulated cards."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from devicemanager import __version__
from tests.e2e.device_manager import LATE_SIGNALS, DeviceManager, Serve, bus, cards, environment, trusting_anyone

SIMULATED = "--manufacturer=simulated"

HANGING = """
[[cards]]
id = "SIM-well"

[[cards]]
id = "SIM-stuck"
hang = true
"""


def command(*arguments: str, more_environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "devicemanager.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env=environment(more_environment or {}),
    )


@pytest.fixture
def hanging(tmp_path: Path) -> str:
    """A scenario with a card that never answers."""
    file = tmp_path / "hanging.toml"
    file.write_text(HANGING)
    return f"--simulated-scenario={file}"


def test_simulated_cards_are_served_with_all_their_figures(serve: Serve) -> None:
    manager = serve(SIMULATED, "--node-name=node-1")

    snapshot = manager.until_state("ok")

    assert snapshot["nodeName"] == "node-1"
    assert snapshot["periodSeconds"] == 15
    assert [group["manufacturer"] for group in snapshot["groups"]] == ["simulated"]
    for index, card in enumerate(cards(snapshot)):
        assert card["index"] == index
        assert card["id"].startswith("SIM-")
        assert 0 < card["memoryUsage"] < card["memory"]
        assert card["memoryUtilization"] == pytest.approx(100 * card["memoryUsage"] / card["memory"], abs=1)
        assert 0 <= card["coresUtilization"] <= 100
        assert 0 < card["temperature"] < 120
        assert 0 < card["powerUsage"] < 1500
        assert card["unhealthy"] is False
        assert card["absent"] == {}
    assert len(cards(snapshot)) == 2


def test_headers_say_how_old_it_is_and_whether_it_changed(serve: Serve) -> None:
    manager = serve(SIMULATED)
    manager.until_state("ok")

    answer = manager.ask()

    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-cache"
    assert 0 <= int(answer.headers["age"]) < 15
    assert "server" not in answer.headers
    unchanged = manager.ask(headers={"If-None-Match": answer.headers["etag"]})
    assert (unchanged.status, unchanged.body) == (304, b"")


def test_what_is_served_and_what_is_not(serve: Serve) -> None:
    manager = serve(SIMULATED)
    manager.until_state("ok")

    answered = {
        (method, path): manager.ask(path, method).status
        for method, path in [
            ("GET", "/livez"),
            ("GET", "/healthz"),
            ("GET", "/readyz"),
            ("GET", "/metrics"),
            ("HEAD", "/monitor/snapshot"),
            ("POST", "/monitor/snapshot"),
            ("GET", "/"),
        ]
    }

    assert list(answered.values()) == [200, 200, 200, 200, 200, 405, 404]
    assert manager.ask(method="DELETE").headers["allow"] == "GET, HEAD"
    assert manager.ask("/nothing").document["message"].startswith("nothing is served here")


def test_before_the_first_sample_it_says_that_it_is_starting(serve: Serve, tmp_path: Path) -> None:
    file = tmp_path / "slow.toml"
    file.write_text(HANGING.replace('id = "SIM-well"', 'id = "SIM-also"\nhang = true'))
    manager = serve(SIMULATED, f"--simulated-scenario={file}", "--card-timeout=3s")

    snapshot = manager.snapshot()

    assert snapshot["timestamp"] == "0001-01-01T00:00:00Z"
    assert snapshot["periodSeconds"] == 15
    assert snapshot["groups"] == []
    assert snapshot["collector"]["state"] == "starting"
    assert manager.ask("/readyz").status == 500
    assert manager.ask("/livez").status == 200
    assert "age" not in manager.ask().headers


def test_samples_go_on(serve: Serve) -> None:
    manager = serve(SIMULATED, "--monitor-period=1s")
    first = manager.until_state("ok")["timestamp"]

    assert manager.until(lambda seen: seen["timestamp"] > first)["collector"]["restarts"] == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT])
def test_a_signal_ends_it_with_0(serve: Serve, number: signal.Signals) -> None:
    manager = serve(SIMULATED)
    manager.until_state("ok")
    (child,) = manager.children()

    assert manager.stop(number) == 0

    assert not child.is_running()
    assert manager.event("shutdown_started")["signal"] == number.name
    assert manager.events("shutdown_complete")


def test_the_start_line_says_version_and_effective_settings(serve: Serve) -> None:
    manager = serve(SIMULATED, "--monitor-period=2m", "--san=a.example,b.example", "--memory-limit=100Mi")

    started = manager.event("program_started")

    assert (started["program"], started["version"]) == ("devicemanager serve", __version__)
    assert started["settings"]["monitor-period"] == "2m"
    assert started["settings"]["san"] == "a.example,b.example"
    assert started["settings"]["shutdown-timeout"] == "5s"
    assert "client-ca-file" not in started["settings"]
    assert manager.event("memory_limit_found")["limit"] == "100Mi (--memory-limit)"


def test_a_signal_that_comes_while_the_interpreter_ends_does_not_change_the_exit_code(serve: Serve) -> None:
    """On a busy machine, or with little processor time, that end takes longer than any alarm."""
    manager = serve(SIMULATED, code=LATE_SIGNALS)
    manager.until_state("ok")

    assert manager.stop() == 0

    assert manager.events("shutdown_complete")
    assert manager.event("interpreter_ending")["alarm_s"] == 0
    assert manager.events("interpreter_still_ending")


def test_a_signal_ends_it_with_0_also_when_a_card_hangs(serve: Serve, hanging: str) -> None:
    manager = serve(SIMULATED, hanging, "--monitor-period=10m", "--card-timeout=1m")
    manager.snapshot()

    assert manager.stop() == 0


def test_a_signal_ends_it_with_0_also_when_the_collector_cannot_be_stopped(serve: Serve) -> None:
    manager = serve(SIMULATED)
    manager.until_state("ok")
    (child,) = manager.children()
    child.suspend()

    assert manager.stop() == 0


def test_it_is_unready_from_the_signal_on_and_finishes_what_it_has_begun(serve: Serve) -> None:
    manager = serve(SIMULATED, "--shutdown-timeout=10s")
    manager.until_state("ok")
    raw = socket.create_connection(("127.0.0.1", manager.port))
    with trusting_anyone().wrap_socket(raw) as kept:
        kept.settimeout(10)
        kept.sendall(b"GET /readyz HTTP/1.1\r\nHost: a\r\n")  # a request that is under way when the signal comes
        manager.process.send_signal(signal.SIGTERM)
        manager.event("shutdown_started")
        kept.sendall(b"\r\n")
        answered = kept.recv(65536)

    assert b"500 Internal Server Error" in answered
    assert b"[-]shutdown failed" in answered
    assert manager.process.wait(timeout=15) == 0


def test_a_killed_collector_is_replaced_and_its_sample_kept(serve: Serve) -> None:
    manager = serve(SIMULATED, "--monitor-period=1s")
    manager.until_state("ok")
    (child,) = manager.children()

    child.kill()

    again = manager.until(lambda seen: seen["collector"]["restarts"] == 1 and seen["collector"]["state"] == "ok")
    assert len(cards(again)) == 2
    assert len(manager.children()) == 1


def test_the_collector_ends_with_the_device_manager_however_that_ends(serve: Serve, hanging: str) -> None:
    manager = serve(SIMULATED, hanging, "--card-timeout=14s")
    manager.snapshot()
    (child,) = manager.children()

    manager.process.kill()

    child.wait(timeout=10)


def test_a_card_that_hangs_is_listed_with_its_reason_and_the_other_is_read(serve: Serve, hanging: str) -> None:
    manager = serve(SIMULATED, hanging, "--monitor-period=1s")

    well, stuck = cards(manager.until(lambda seen: len(cards(seen)) == 2))

    assert (well["id"], well["unhealthy"], well["absent"]) == ("SIM-well", False, {})
    assert stuck["unhealthy"] is True
    assert set(stuck["absent"].values()) == {"timeout"}
    assert "memory" not in stuck


def test_nothing_is_logged_while_nothing_changes(serve: Serve) -> None:
    manager = serve(SIMULATED, "--monitor-period=1s")
    first = manager.until_state("ok")["timestamp"]
    before = len(manager.log_lines())
    manager.ask("/livez")
    manager.ask("/metrics")

    manager.until(lambda seen: seen["timestamp"] > first)

    assert manager.log_lines()[before:] == []


def test_a_part_that_ends_ends_the_program_with_1(serve: Serve) -> None:
    taken = socket.create_server(("127.0.0.1", 0))
    with taken:
        manager = serve(SIMULATED, f"--secure-port={taken.getsockname()[1]}")

        assert manager.process.wait(timeout=20) == 1

    (line,) = manager.events("listen_failed")
    assert "in use" in line["reason"].lower()


def test_every_problem_is_reported_and_nothing_starts() -> None:
    done = command("serve", "--monitor-period=0s", "--bind-address=0.0.0.0", "--manufacturer=amd", "--wat")

    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        "devicemanager serve: --wat: unknown flag",
        "devicemanager serve: --monitor-period=0s: must be between 1s and 1h",
        "devicemanager serve: --bind-address=0.0.0.0: anyone who reaches it could read the snapshot; give "
        "--client-ca-file to require client certificates, or --allow-anonymous to let anyone read",
        "devicemanager serve: --manufacturer=amd: the collector for amd is not built yet; "
        "built are nvidia, simulated",
        "Try devicemanager serve --help.",
    ]


def test_open_to_anyone_is_said_loudly(serve: Serve) -> None:
    manager = serve(SIMULATED, "--allow-anonymous", "--bind-address=127.0.0.1")

    assert manager.event("anonymous_access_allowed")["level"] == "warning"
    assert manager.ask().status == 200


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        ([("0000:3c:00.0", "10de"), ("0000:3d:00.0", "1002")], ["amd and nvidia"]),
        ([("0000:3d:00.0", "1002")], ["the collector for amd is not built yet"]),
    ],
    ids=["two", "not-built"],
)
def test_auto_needs_no_more_than_one_manufacturer_that_can_be_read(
    tmp_path: Path, devices: Sequence[tuple[str, str]], expected: Sequence[str]
) -> None:
    done = command("serve", bus(tmp_path / "sys", *devices))

    assert done.returncode == 2
    for part in expected:
        assert part in done.stderr


def test_auto_serves_that_there_is_no_card(serve: Serve, tmp_path: Path) -> None:
    manager = serve(bus(tmp_path / "sys"))

    snapshot = manager.until_state("no_devices")

    assert (snapshot["groups"], snapshot["timestamp"]) == ([], "0001-01-01T00:00:00Z")
    assert snapshot["collector"]["detail"].startswith("no accelerator of a known manufacturer is on the PCI bus; ")
    assert manager.ask("/readyz").status == manager.ask("/livez").status == manager.ask("/metrics").status == 200


def test_auto_takes_the_manufacturer_on_the_bus(serve: Serve, tmp_path: Path) -> None:
    manager = serve(bus(tmp_path / "sys", ("0000:3c:00.0", "10de")), environment={"LD_LIBRARY_PATH": ""})

    assert manager.until_state("library_missing")["groups"] == []
    assert manager.ask("/readyz").status == 200


def test_settings_come_from_the_environment_too(serve: Serve) -> None:
    manager = serve(environment={"DEVICEMANAGER_MANUFACTURER": "simulated-b", "NODE_NAME": "node-2"})

    snapshot = manager.until_state("ok")

    assert (snapshot["groups"][0]["manufacturer"], snapshot["nodeName"]) == ("simulated-b", "node-2")


def test_code_in_the_working_directory_is_not_run(serve: Serve, tmp_path: Path) -> None:
    for name in ("collectors", "devicemanager"):
        planted = tmp_path / "programs" / name
        planted.mkdir()
        for module in ("__init__.py", "__main__.py", "certificates.py"):
            (planted / module).write_text("raise SystemExit('planted')")

    assert len(cards(serve(SIMULATED).until_state("ok"))) == 2


def test_the_log_is_json_lines(serve: Serve) -> None:
    manager = serve(SIMULATED)
    manager.until_state("ok")

    assert all({"time", "level", "event"} <= line.keys() for line in manager.log_lines())


def test_monitor_prints_one_sample() -> None:
    done = command("monitor", SIMULATED, "-o", "json")

    assert done.returncode == 0, done.stderr
    assert [card["id"] for card in cards(json.loads(done.stdout))] == ["SIM-0", "SIM-1"]
    assert done.stderr == ""


def test_monitor_prints_a_table_by_default() -> None:
    done = command("monitor", SIMULATED)

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "simulated: ok"
    assert "SIM-1" in done.stdout


def test_monitor_says_why_nothing_can_be_read() -> None:
    done = command("monitor", "--manufacturer=nvidia", more_environment={"LD_LIBRARY_PATH": ""})

    assert done.returncode == 1
    assert done.stdout.startswith("nvidia: library_missing: ")


def test_detect_shows_the_bus_and_the_cards(tmp_path: Path) -> None:
    root = bus(tmp_path / "sys", ("0000:3c:00.0", "10de"), ("0000:3d:00.0", "1002"))

    done = command("detect", root, "-o", "json", more_environment={"LD_LIBRARY_PATH": ""})

    assert done.returncode == 1
    found = json.loads(done.stdout)
    assert [(one["address"], one["manufacturer"]) for one in found["bus"]] == [
        ("0000:3c:00.0", "nvidia"),
        ("0000:3d:00.0", "amd"),
    ]
    assert [(one["manufacturer"], one["built"], one.get("state")) for one in found["manufacturers"]] == [
        ("amd", False, None),
        ("nvidia", True, "library_missing"),
    ]


def test_detect_lists_the_cards_of_a_named_manufacturer() -> None:
    done = command("detect", SIMULATED)

    assert done.returncode == 0, done.stderr
    assert "SIM-0" in done.stdout


def snapshot_command(manager: DeviceManager, *flags: str) -> subprocess.CompletedProcess[str]:
    return command("snapshot", f"https://127.0.0.1:{manager.port}", *flags)


def test_snapshot_reads_a_running_device_manager(serve: Serve) -> None:
    manager = serve(SIMULATED, "--node-name=node-1")
    served = manager.until_state("ok")

    table = snapshot_command(manager, "--insecure")
    document = snapshot_command(manager, "--insecure", "-o", "json")

    assert table.returncode == document.returncode == 0
    assert table.stdout.startswith("simulated on node-1: ok\n")
    assert json.loads(document.stdout) == served


def test_snapshot_verifies_unless_told_not_to(serve: Serve) -> None:
    manager = serve(SIMULATED)
    manager.until_state("ok")

    done = snapshot_command(manager)

    assert done.returncode == 1
    assert "certificate not accepted" in done.stderr
    assert done.stdout == ""


def test_snapshot_reports_that_nothing_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]

    done = command("snapshot", f"https://127.0.0.1:{port}")

    assert done.returncode == 1
    assert "cannot connect" in done.stderr


def test_version_and_help() -> None:
    assert command("version").stdout.startswith("devicemanager ")
    assert command("--version").stdout == command("version").stdout
    assert "serve" in command("--help").stdout
    assert "--monitor-period DURATION" in command("serve", "--help").stdout


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "Usage: "),
        (["monitr"], "monitr: unknown command; did you mean monitor?"),
        (["snapshot"], "URL: is required"),
    ],
    ids=["nothing", "misspelt", "incomplete"],
)
def test_wrong_usage_is_2_and_says_what_is_right(arguments: Sequence[str], expected: str) -> None:
    done = command(*arguments)

    assert done.returncode == 2
    assert expected in done.stderr
    assert done.stdout == ""


def test_it_runs_without_a_home_directory(serve: Serve) -> None:
    manager = serve(SIMULATED, environment={"HOME": "/nonexistent", "PATH": os.defpath})

    manager.until_state("ok")


def test_a_signal_to_the_whole_group_is_no_crash_of_the_collector(serve: Serve) -> None:
    """systemd sends it to all processes of a unit, and the collector may end first."""
    manager = serve(SIMULATED)
    manager.until_state("ok")
    (child,) = manager.children()

    child.terminate()
    assert manager.stop() == 0

    assert [line["state"] for line in manager.events("collector_state_changed")] == ["ok"]
    assert manager.events("shutdown_complete")


def test_a_bus_that_hangs_keeps_it_neither_from_starting_nor_from_ending(serve: Serve, tmp_path: Path) -> None:
    flag = bus(tmp_path / "sys", ("0000:3b:00.0", "10de"))
    vendor = tmp_path / "sys/bus/pci/devices/0000:3b:00.0/vendor"
    vendor.unlink()
    os.mkfifo(vendor)  # nobody ever writes to it

    manager = serve(flag)

    seen = manager.until_state("failed")
    assert "the PCI bus: not read within 5 s" in seen["collector"]["detail"]
    assert manager.ask("/livez").status == manager.ask("/readyz").status == 200
    assert b"[+]collector ok (its state is failed)" in manager.ask("/readyz?verbose").body
    assert manager.stop() == 0
