"""Programs that print once, in this process, with real collector processes and a real server beside them."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from aiohttp import web
from structlog.testing import capture_logs

from devicemanager.programs import inspect
from devicemanager.serving.listener import Listener
from devicemanager.settings.flags import Settings
from devicemanager.settings.loading import load
from devicemanager.settings.node import DetectSettings, MonitorSettings, SnapshotSettings
from tests.tls_peers import Logged, authority, cas, on_both_loops, running, server_identity

SIMULATED = "--manufacturer=simulated"

BODY = {
    "timestamp": "2026-08-12T09:15:04.5Z",
    "periodSeconds": 15,
    "groups": [{"manufacturer": "nvidia", "accelerators": [{"id": "GPU-1", "memory": 81920, "unhealthy": False}]}],
}


@pytest.fixture(autouse=True)
def _logs() -> Iterator[None]:
    """Standard output is for answers here; what is logged goes elsewhere."""
    with capture_logs():
        yield


@pytest.fixture
def scenario(tmp_path: Path) -> str:
    """Two cards, of which one is lost."""
    file = tmp_path / "scenario.toml"
    file.write_text('[[cards]]\nid = "SIM-a"\n\n[[cards]]\nid = "SIM-b"\nlost = true\n')
    return f"--simulated-scenario={file}"


@on_both_loops
async def test_monitor_prints_every_card(capsys: pytest.CaptureFixture[str], scenario: str) -> None:
    assert await inspect.monitor(load(MonitorSettings, [SIMULATED, scenario, "-o=json"], {})) == 0

    found = json.loads(capsys.readouterr().out)
    first, second = found["groups"][0]["accelerators"]
    assert (first["id"], first["unhealthy"]) == ("SIM-a", False)
    assert (second["unhealthy"], second["absent"]["memory"]) == (True, "lost")


@on_both_loops
async def test_monitor_is_1_when_no_card_is_there(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "none.toml"
    file.write_text("count = 0\n")

    assert await inspect.monitor(load(MonitorSettings, [SIMULATED, f"--simulated-scenario={file}"], {})) == 1

    assert capsys.readouterr().out.startswith("simulated: no_devices")


@on_both_loops
@pytest.mark.parametrize("program", ["monitor", "detect"])
async def test_every_mistake_of_a_scenario_is_a_line(
    program: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "wrong.toml"
    file.write_text("".join(f"unknown_key_number_{number} = 1\n" for number in range(20)))
    flags = [SIMULATED, f"--simulated-scenario={file}", f"--sys-root={tmp_path}"]

    if program == "monitor":
        assert await inspect.monitor(load(MonitorSettings, flags, {})) == 1
    else:
        assert await inspect.detect(load(DetectSettings, flags, {})) == 1

    lines = capsys.readouterr().err.splitlines()
    assert lines == [f"{file}: unknown_key_number_{number} is unknown" for number in range(20)]


@on_both_loops
async def test_detect_asks_the_library_of_a_named_manufacturer(
    capsys: pytest.CaptureFixture[str], scenario: str, tmp_path: Path
) -> None:
    settings = load(DetectSettings, [SIMULATED, scenario, f"--sys-root={tmp_path}", "-o=yaml"], {})

    assert await inspect.detect(settings) == 0

    found = yaml.safe_load(capsys.readouterr().out)
    assert found["bus"] == []
    assert [card["id"] for card in found["manufacturers"][0]["accelerators"]] == ["SIM-a", "index:1"]


@on_both_loops
async def test_detect_lists_partitions_below_their_card(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    scenario = tmp_path / "cards.toml"
    scenario.write_text('count = 1\n[card]\npartitions = [{ profile = "2g.20gb", memory_mib = 19968 }]\n')
    flags = [SIMULATED, f"--simulated-scenario={scenario}", f"--sys-root={tmp_path}"]

    assert await inspect.detect(load(DetectSettings, flags, {})) == 0

    lines = capsys.readouterr().out.splitlines()
    (card,) = (number for number, line in enumerate(lines) if line.endswith(" SIM-0"))
    assert lines[card + 1].split() == ["simulated", "-", "└", "2g.20gb", "19968", "MiB", "-", "-", "SIM-0-P0"]


@on_both_loops
async def test_detect_is_1_when_nothing_is_there(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert await inspect.detect(load(DetectSettings, [f"--sys-root={tmp_path}"], {})) == 1

    missing = f"No PCI bus can be looked at, {tmp_path}/bus/pci/devices does not exist.\n"
    assert capsys.readouterr().out == missing

    (tmp_path / "bus" / "pci" / "devices").mkdir(parents=True)
    assert await inspect.detect(load(DetectSettings, [f"--sys-root={tmp_path}"], {})) == 1

    assert capsys.readouterr().out == "No accelerator of a known manufacturer is on the PCI bus.\n"


class Served:
    """An HTTPS server with one answer, and what it was asked."""

    def __init__(
        self, body: object, status: int = 200, age: str | None = "3", *, with_ca: bool = False, leaves: bool = False
    ) -> None:
        self.certificates: list[object] = []
        self.paths: list[str] = []
        text = body if isinstance(body, str) else json.dumps(body)

        async def answer(request: web.Request) -> web.StreamResponse:
            self.paths.append(request.path)
            assert request.transport is not None
            if leaves:
                request.transport.abort()
            self.certificates.append(request.transport.get_extra_info("peercert"))
            headers = {} if age is None else {"Age": age}
            return web.Response(text=text, status=status, content_type="application/json", headers=headers)

        app = web.Application()
        app.router.add_get("/{path:.*}", answer)
        identity = server_identity(cas(authority()) if with_ca else None)
        self.listener = Listener(app, [("127.0.0.1", 0)], identity, log=Logged().log)

    async def read(self, *flags: str, path: str = "", scheme: str = "https://") -> int:
        """The exit code of the program, told to read this server."""
        async with running(self.listener):
            url = f"{scheme}127.0.0.1:{self.listener.addresses[0][1]}{path}"
            settings: Settings = load(SnapshotSettings, [url, *flags], {})
            assert isinstance(settings, SnapshotSettings)
            return await inspect.served(settings)


@pytest.fixture
def ca(tmp_path: Path) -> str:
    """A flag that makes the program believe the servers here."""
    file = tmp_path / "ca.crt"
    file.write_bytes(authority().pem.certificate)
    return f"--ca-file={file}"


@on_both_loops
async def test_what_is_served_is_shown_with_its_age(capsys: pytest.CaptureFixture[str], ca: str) -> None:
    server = Served(BODY)

    assert await server.read(ca) == 0

    assert capsys.readouterr().out.splitlines()[:2] == ["nvidia: ok", "sampled every 15s; last 3s ago"]
    assert server.paths == ["/monitor/snapshot"]


@on_both_loops
async def test_another_path_is_taken_as_given(ca: str) -> None:
    server = Served(BODY)

    await server.read(ca, path="/behind/a/proxy")

    assert server.paths == ["/behind/a/proxy"]


@on_both_loops
async def test_the_document_is_printed_as_served(capsys: pytest.CaptureFixture[str], ca: str) -> None:
    assert await Served(BODY).read(ca, "-o=json") == 0

    assert json.loads(capsys.readouterr().out) == BODY


@on_both_loops
async def test_a_client_certificate_is_shown(ca: str, tmp_path: Path) -> None:
    authority().client("someone").write(tmp_path)
    server = Served(BODY, with_ca=True)

    assert await server.read(ca, f"--cert={tmp_path / 'tls.crt'}", f"--key={tmp_path / 'tls.key'}") == 0

    (certificate,) = server.certificates
    assert "someone" in str(certificate)


@on_both_loops
async def test_the_name_to_verify_can_be_given(capsys: pytest.CaptureFixture[str], ca: str) -> None:
    assert await Served(BODY).read(ca, "--server-name=device-manager.test") == 0
    assert await Served(BODY).read(ca, "--server-name=another.test") == 1

    assert "certificate not accepted" in capsys.readouterr().err


@on_both_loops
@pytest.mark.parametrize(("shown", "hint"), [(False, "may want a client certificate"), (True, "may not trust")])
async def test_a_lost_connection_hints_at_the_certificate(
    shown: bool, hint: str, capsys: pytest.CaptureFixture[str], ca: str, tmp_path: Path
) -> None:
    authority("another").client("someone").write(tmp_path)
    flags = [f"--cert={tmp_path / 'tls.crt'}", f"--key={tmp_path / 'tls.key'}"] if shown else []
    server = Served(BODY, with_ca=shown, leaves=True)

    assert await server.read(ca, *flags) == 1

    assert hint in capsys.readouterr().err


@on_both_loops
async def test_before_the_first_sample_it_is_1(capsys: pytest.CaptureFixture[str], ca: str) -> None:
    starting = {"timestamp": "0001-01-01T00:00:00Z", "periodSeconds": 15, "groups": []}

    assert await Served(starting, age=None).read(ca) == 1

    assert "no sample yet" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("body", "status", "expected"),
    [
        ('{"message": "a client certificate is required"}', 401, "HTTP 401: "),
        ("<html>", 200, "not a snapshot: it begins with '<html>'"),
        ("[]", 200, "not a snapshot: it begins with '[]'"),
        ('{"groups": []}', 200, "; the answer begins with "),
        ("gone", 302, "redirect"),
    ],
    ids=["refused", "not-json", "not-an-object", "not-a-snapshot", "redirect"],
)
@on_both_loops
async def test_what_is_no_snapshot_is_1_and_says_why(
    body: str, status: int, expected: str, capsys: pytest.CaptureFixture[str], ca: str
) -> None:
    assert await Served(body, status).read(ca) == 1

    printed = capsys.readouterr()
    assert expected in printed.err
    assert printed.out == ""


@on_both_loops
async def test_a_path_that_serves_something_else_is_said_to(capsys: pytest.CaptureFixture[str], ca: str) -> None:
    server = Served("# HELP devicemanager_build_info What is running.")

    assert await server.read(ca, path="/metrics") == 1

    err = capsys.readouterr().err
    assert "not a snapshot: it begins with '# HELP devicemanager_build_info What is running.'" in err
    assert err.endswith("; /monitor/snapshot is asked for if the address has no path\n")


@on_both_loops
async def test_a_long_answer_is_shown_by_its_beginning(capsys: pytest.CaptureFixture[str], ca: str) -> None:
    assert await Served("[" * 10_000).read(ca) == 1

    assert len(capsys.readouterr().err) < 400


@on_both_loops
async def test_an_address_needs_neither_scheme_nor_flag_to_be_understood(
    capsys: pytest.CaptureFixture[str], ca: str
) -> None:
    assert await Served(BODY).read(ca, scheme="") == 0

    assert capsys.readouterr().out.startswith("nvidia: ok")


@on_both_loops
@pytest.mark.parametrize(
    ("flag", "hint"),
    [
        ("--timeout=5s", "; --ca-file names the authorities to trust, --insecure looks without verifying\n"),
        ("--server-name=another.test", "; --server-name gives the name to verify it for, --insecure looks"),
    ],
)
async def test_a_refused_certificate_names_the_ways_out(
    flag: str, hint: str, capsys: pytest.CaptureFixture[str], ca: str
) -> None:
    flags = [flag] if flag.startswith("--timeout") else [flag, ca]

    assert await Served(BODY).read(*flags) == 1

    err = capsys.readouterr().err
    assert "certificate not accepted: " in err
    assert hint in err
