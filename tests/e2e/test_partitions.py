"""Hardware partitions through whole programs: simulated collector, device manager, and what reads Instances."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio

from devicemanager.demo.cluster.objects import Grant, InstanceSpec
from devicemanager.demo.fixtures import (
    DEVICE_MANAGER_NAME,
    NAMESPACE,
    NODE,
    WORKER_CLIENT_NAME,
    CertificateStore,
    SimulatedVendor,
    serve_arguments,
)
from devicemanager.demo.processes import Program
from devicemanager.model.allocation import Mode
from devicemanager.tls.certificates import Authority
from tests.cluster.stand_in import StandInCluster
from tests.e2e.device_manager import DeviceManager, Document, Serve, cards

SCENARIO: Final = """\
count = 2
[[cards]]
index = 0
partitions = [
  {{ profile = "2g.20gb", memory_mib = 19968, load = {{ shape = "constant", high = 40 }} }},
  {{ absent = {{ cores = "unsupported" }} }},
  {{ {third} }},
]
"""


@pytest.fixture
def simulated(serve: Serve, tmp_path: Path) -> Callable[[str], DeviceManager]:
    def start(third: str) -> DeviceManager:
        play(tmp_path, third)
        flags = ("--manufacturer=simulated", "--monitor-period=1s", "--card-timeout=500ms", "--open-timeout=5s")
        return serve(*flags, f"--simulated-scenario={tmp_path / 'cards.toml'}")

    return start


def play(folder: Path, third: str) -> None:
    """The scenario with these keys for the third partition."""
    new = folder / "cards.new"
    new.write_text(SCENARIO.format(third=third))
    new.replace(folder / "cards.toml")


def partitions(seen: Document) -> list[Document]:
    return next((card.get("partitions", []) for card in cards(seen) if card["id"] == "SIM-0"), [])


def test_partitions_are_published_on_their_card(simulated: Callable[[str], DeviceManager]) -> None:
    seen = simulated("").until(lambda seen: bool(cards(seen)))
    parent, other = cards(seen)
    assert parent["absent"] == {"coresUtilization": "partitioned"}
    assert "partitions" not in other
    first, second, third = parent["partitions"]
    assert (first["id"], first["profile"], first["memory"]) == ("SIM-0-P0", "2g.20gb", 19968)
    assert (first["coresUtilization"], first["absent"]) == (40, {})
    assert 0 < first["memoryUtilization"] < 100
    assert second["absent"] == {"coresUtilization": "unsupported"}
    assert "coresUtilization" not in second
    assert set(third) == {*first}


def test_a_partition_that_hangs_is_quarantined_alone_and_comes_back(
    simulated: Callable[[str], DeviceManager], tmp_path: Path
) -> None:
    manager = simulated("hang = true")
    seen = manager.until(lambda seen: len(partitions(seen)) == 3)
    figures = ("memory", "memoryUsage", "memoryUtilization", "coresUtilization")
    assert partitions(seen)[2] == {
        "id": "SIM-0-P2",
        "profile": "1g.10gb",
        "absent": dict.fromkeys(figures, "timeout"),
    }
    assert partitions(seen)[0]["coresUtilization"] == 40
    assert [card["unhealthy"] for card in cards(seen)] == [False, False]
    assert seen["collector"]["state"] == "ok"
    event = manager.event("device_quarantined", id="SIM-0-P2", parent="SIM-0", reason="timeout")
    assert event["detail"].startswith("the partition did not answer within")

    play(tmp_path, "")
    manager.until(lambda seen: "memoryUsage" in partitions(seen)[2])
    manager.event("device_readmitted", id="SIM-0-P2", parent="SIM-0")


def test_a_partition_that_was_taken_away_is_listed_no_longer(
    simulated: Callable[[str], DeviceManager], tmp_path: Path
) -> None:
    manager = simulated("hang = true")
    manager.until(lambda seen: len(partitions(seen)) == 3)
    new = tmp_path / "cards.new"
    new.write_text("count = 2\n")
    new.replace(tmp_path / "cards.toml")
    manager.until(lambda seen: partitions(seen) == [] and "coresUtilization" in cards(seen)[0])
    manager.event("device_released", id="SIM-0-P2", parent="SIM-0")


def test_partitions_of_a_card_that_hangs_stay_listed_with_its_reason(
    simulated: Callable[[str], DeviceManager], tmp_path: Path
) -> None:
    manager = simulated("")
    manager.until(lambda seen: len(partitions(seen)) == 3)
    new = tmp_path / "cards.new"
    new.write_text(SCENARIO.format(third="").replace("index = 0\n", "index = 0\nhang = true\n"))
    new.replace(tmp_path / "cards.toml")
    seen = manager.until(lambda seen: cards(seen)[0]["unhealthy"])
    assert [set(one["absent"].values()) for one in partitions(seen)] == [{"timeout"}] * 3
    assert [one["id"] for one in partitions(seen)] == ["SIM-0-P0", "SIM-0-P1", "SIM-0-P2"]
    assert cards(seen)[1]["unhealthy"] is False


VENDOR: Final = SimulatedVendor("simulated", "127.0.0.7", SCENARIO.format(third="hang = true"))


def granted(partition_id: str) -> InstanceSpec:
    grant = Grant(VENDOR.name, "SIM-0", 0, Mode.PARTITIONED, partition_id=partition_id)
    return InstanceSpec(NAMESPACE, f"with-{partition_id.lower()}", NODE, [grant])


@pytest.fixture
def certificates(tmp_path: Path) -> CertificateStore:
    return CertificateStore(tmp_path, Authority.create("authority of the device managers"))


@pytest_asyncio.fixture
async def kubeconfig(
    stand_in_cluster: StandInCluster, certificates: CertificateStore, tmp_path: Path
) -> AsyncIterator[Path]:
    """A cluster whose node has one partitioned card, and an Instance for each of three partitions and a fourth."""
    stand_in_cluster.add_node(NODE)
    for number in range(4):
        stand_in_cluster.add_instance(granted(f"SIM-0-P{number}"))
    program = await Program.start("the device manager", serve_arguments(VENDOR, certificates), os.environ)
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(program.follow())
            _, port = await program.listening()
            stand_in_cluster.add_device_manager(NODE, VENDOR.name, VENDOR.address, port)
            yield stand_in_cluster.write_kubeconfig(tmp_path / "kubeconfig")
            await program.stop()
    finally:
        await program.stop()


async def accelerator(kubeconfig: Path, certificates: CertificateStore, number: int) -> dict[str, Any]:
    """What the Instance with this partition is told of it, once the device manager has a sample."""
    folder = certificates.folder / "client"
    certificates.authority.client(WORKER_CLIENT_NAME).write(folder)
    command = (
        *(sys.executable, "-m", "devicemanager.cli", "instance-metrics", f"with-sim-0-p{number}", "-n", NAMESPACE),
        *(f"--kubeconfig={kubeconfig}", "-o", "json", f"--device-manager-ca-file={certificates.ca_file}"),
        f"--device-manager-client-cert-dir={folder}",
        f"--device-manager-server-name={DEVICE_MANAGER_NAME}",
    )
    while True:
        process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        printed, noted = await process.communicate()
        assert process.returncode == 0, noted
        sample = json.loads(printed)["sample"]
        (found,) = sample["accelerators"]
        if all(source["state"] == "ok" for source in sample["sources"]):
            assert isinstance(found, dict)
            return found


@pytest.mark.asyncio
@pytest.mark.timeout(120)
async def test_an_instance_is_told_of_its_own_partition_and_no_other(
    kubeconfig: Path, certificates: CertificateStore
) -> None:
    """By ``allocatedPhysicalID``; temperature, power and health are the card's."""
    async with asyncio.timeout(100):
        first, second, third, unknown = [await accelerator(kubeconfig, certificates, number) for number in range(4)]

    assert (first["id"], first["memoryMiB"], first["coresUtilizationPercent"]) == ("SIM-0-P0", 19968, 40)
    assert (first["profile"], second["profile"]) == ("2g.20gb", "1g.10gb")
    assert 0 < first["memoryUsageMiB"] < first["memoryMiB"]
    assert first["temperatureCelsius"] > 0
    assert (second["id"], second["memoryMiB"]) == ("SIM-0-P1", 9856)
    assert second["absent"]["coresUtilizationPercent"] == "unsupported"
    for found, reason in ((third, "timeout"), (unknown, "partitioned")):
        shares = ("memoryMiB", "memoryUsageMiB", "memoryUtilizationPercent", "coresUtilizationPercent")
        assert {key: found["absent"].get(key) for key in shares} == dict.fromkeys(shares, reason)
        assert found["temperatureCelsius"] > 0
