"""The device manager put together, in this process; tests/e2e runs it as users do."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import structlog
from structlog.testing import capture_logs

from devicemanager.errors import SettingsError
from devicemanager.programs.serve import serve, snapshot_command
from devicemanager.settings.loading import load
from devicemanager.settings.node import ServeSettings
from tests.timing import until
from tests.tls_peers import Peer, authority, client, connected, on_both_loops, write_pair

COMMON = ("--manufacturer=simulated", "--secure-port=0", "--node-name=node-1")


@pytest.fixture
def pair(tmp_path: Path) -> str:
    """A serving pair that :func:`client` believes."""
    folder = tmp_path / "pair"
    folder.mkdir()
    write_pair(folder, authority().serving(["device-manager.test", "127.0.0.1"]))
    return f"--cert-dir={folder}"


@asynccontextmanager
async def running(*flags: str) -> AsyncIterator[tuple[str, int]]:
    """A device manager for as long as the block runs; gives its address."""
    structlog.reset_defaults()
    with capture_logs() as lines:
        async with asyncio.TaskGroup() as tasks:
            program = tasks.create_task(serve(load(ServeSettings, [*COMMON, *flags], {})))

            def listening() -> list[tuple[str, int]]:
                return [(one["address"], one["port"]) for one in lines if one["event"] == "server_listening"]

            await until(lambda: listening() or program.done())
            yield listening()[0]
            os.kill(os.getpid(), signal.SIGTERM)
        assert program.result() == 0


async def snapshot_of(peer: Peer, state: str = "ok") -> dict[str, object]:
    """Its snapshot, once it is in this state."""
    while True:
        found = json.loads((await peer.get("/monitor/snapshot")).body)
        if found["collector"]["state"] == state:
            assert isinstance(found, dict)
            return found


@on_both_loops
async def test_it_serves_what_the_settings_say(pair: str) -> None:
    async with running(pair, "--monitor-period=2s") as address, connected(address, client()) as peer:
        found = await snapshot_of(peer)

        assert address[0] == "127.0.0.1"
        assert (found["nodeName"], found["periodSeconds"]) == ("node-1", 2)
        assert (await peer.get("/readyz")).status == (await peer.get("/livez")).status == 200
        assert b"devicemanager_certificate_not_after_timestamp_seconds" in (await peer.get("/metrics")).body


@on_both_loops
async def test_clients_are_checked_when_there_is_a_way_to(pair: str, tmp_path: Path) -> None:
    bundle = tmp_path / "clients.crt"
    bundle.write_bytes(authority().pem.certificate)
    flags = (pair, f"--client-ca-file={bundle}", "--client-allowed-names=worker", "--bind-address=127.0.0.1")
    answers = {}
    async with running(*flags) as address:
        for name in ("worker", "other", None):
            context = client(None if name is None else authority().client(name))
            async with connected(address, context) as peer:
                answers[name] = (await peer.get("/monitor/snapshot")).status
                assert (await peer.get("/livez")).status == 200

    assert answers == {"worker": 200, "other": 403, None: 401}


@on_both_loops
async def test_a_pair_that_cannot_be_used_is_a_problem_with_the_settings(tmp_path: Path) -> None:
    (tmp_path / "tls.crt").write_text("nothing")

    with pytest.raises(SettingsError) as raised:
        await serve(load(ServeSettings, [*COMMON, f"--cert-dir={tmp_path}"], {}))

    assert str(tmp_path) in str(raised.value)


@pytest.mark.parametrize(
    ("flags", "address", "command"),
    [
        ([], "127.0.0.1", "devicemanager snapshot 127.0.0.1:32443 --insecure"),
        (["--allow-anonymous"], "0.0.0.0", "devicemanager snapshot 127.0.0.1:32443 --insecure"),
        (["--allow-anonymous"], "::", "devicemanager snapshot [::1]:32443 --insecure"),
        (["--allow-anonymous"], "fd00::7", "devicemanager snapshot [fd00::7]:32443 --insecure"),
    ],
)
def test_the_command_that_shows_what_is_served(flags: list[str], address: str, command: str) -> None:
    assert snapshot_command(load(ServeSettings, flags, {}), address, 32443) == command


def test_where_clients_are_checked_the_command_asks_for_a_pair(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_bytes(authority().pem.certificate)
    settings = load(ServeSettings, [f"--client-ca-file={tmp_path / 'ca.crt'}"], {})

    command = snapshot_command(settings, "0.0.0.0", 1)

    assert command == "devicemanager snapshot 127.0.0.1:1 --insecure --cert CLIENT.crt --key CLIENT.key"
