"""The examples of docs/library.md run, and print what the page says."""

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest

from devicemanager.demo.cluster.objects import Grant, InstanceSpec
from devicemanager.worker.client import ReadOptions
from tests.cluster.stand_in import StandInCluster
from tests.unit.worker.conftest import SERVER_NAME, DeviceManagerPeer

PAGE = Path(__file__).parents[3] / "docs" / "library.md"
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
READING, MERGING = (text for language, text in BLOCKS if language == "python")
[PRINTED] = (text for language, text in BLOCKS if language == "")


def run(text: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(compile(text, str(PAGE), "exec"), names)
    return names


@pytest.mark.asyncio
async def test_reading(
    stand_in_cluster: StandInCluster, kubeconfig: Path, device_manager: DeviceManagerPeer
) -> None:
    stand_in_cluster.add_node("node-a")
    stand_in_cluster.add_instance(InstanceSpec("team-a", "web", "node-a", [Grant("nvidia", "GPU-1")]))
    stand_in_cluster.add_device_manager("node-a", "nvidia", "127.0.0.1", device_manager.port)
    options = ReadOptions(device_manager.client_context, device_manager_server_name=SERVER_NAME)
    describe = run(READING)["describe"]

    found = await describe(str(kubeconfig), "team-a", "web", options)
    missing = await describe(str(kubeconfig), "team-a", "db", options)

    assert re.fullmatch(r"\d+ MiB on node-a, \{'kubelet': 'ok', 'device-manager/nvidia': 'ok'\}", found), found
    assert missing == "Instance team-a/db not found"


def test_merging() -> None:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        run(MERGING)

    assert printed.getvalue() == PRINTED
