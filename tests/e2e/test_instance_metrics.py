"""``devicemanager instance-metrics`` where no worker answers: real programs, and real mutual TLS between them."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from devicemanager.demo.fixtures import (
    AURORA,
    DEVICE_MANAGER_NAME,
    INSTANCES,
    NODE,
    WORKER_CLIENT_NAME,
    CertificateStore,
    serve_arguments,
)
from devicemanager.demo.processes import Program
from devicemanager.tls.certificates import Authority
from tests.cluster.stand_in import StandInCluster
from tests.e2e.device_manager import environment, template

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(60)]

CHAT = INSTANCES[0]
SOURCE = f"device-manager/{AURORA.name}"


@pytest.fixture
def certificates(tmp_path: Path) -> CertificateStore:
    return CertificateStore(tmp_path, Authority.create("authority of the device managers"))


@pytest_asyncio.fixture
async def kubeconfig(
    stand_in_cluster: StandInCluster, certificates: CertificateStore, tmp_path: Path
) -> AsyncIterator[Path]:
    """A cluster with one Instance and the device manager of its card, which believes the worker alone."""
    stand_in_cluster.add_node(NODE)
    stand_in_cluster.add_instance(CHAT)
    program = await Program.start("the device manager", serve_arguments(AURORA, certificates), os.environ)
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(program.follow())
            _, port = await program.listening()
            stand_in_cluster.add_device_manager(NODE, AURORA.name, AURORA.address, port)
            yield stand_in_cluster.write_kubeconfig(tmp_path / "kubeconfig")
            await program.stop()
    finally:
        await program.stop()


async def asked(kubeconfig: Path, *flags: str) -> dict[str, Any]:
    """The sample that the command prints."""
    process = await template().start_awaited(
        ["instance-metrics", CHAT.name, "-n", CHAT.namespace, f"--kubeconfig={kubeconfig}", "-o", "json", *flags],
        environment({}),
        kubeconfig.parent,
    )
    printed, noted = await process.communicate()
    assert process.returncode == 0, noted
    assert b"no worker answers" in noted
    sample = json.loads(printed)["sample"]
    assert isinstance(sample, dict)
    return sample


def source(sample: dict[str, Any]) -> dict[str, Any]:
    (found,) = (entry for entry in sample["sources"] if entry["name"] == SOURCE)
    assert isinstance(found, dict)
    return found


def as_client(certificates: CertificateStore, name: str) -> list[str]:
    """Flags for asking device managers under this name."""
    folder = certificates.folder / f"client-{name}"
    certificates.authority.client(name).write(folder)
    return [
        f"--device-manager-ca-file={certificates.ca_file}",
        f"--device-manager-client-cert-dir={folder}",
        f"--device-manager-server-name={DEVICE_MANAGER_NAME}",
    ]


async def test_with_the_workers_pair_the_cards_are_read(kubeconfig: Path, certificates: CertificateStore) -> None:
    flags = as_client(certificates, WORKER_CLIENT_NAME)
    async with asyncio.timeout(30):
        while source(sample := await asked(kubeconfig, *flags))["state"] == "starting":
            pass  # its first sample is still to come

    assert source(sample)["state"] == "ok"
    (card,) = sample["accelerators"]
    assert (card["id"], card["memoryMiB"]) == (AURORA.card(0), 81920)
    assert 0 < card["memoryUsageMiB"] < card["memoryMiB"]
    assert sample["cpuUsageNanoCores"] > 0


async def test_a_client_that_the_device_manager_refuses_is_told_so_and_gets_the_rest(
    kubeconfig: Path, certificates: CertificateStore, tmp_path: Path
) -> None:
    other = CertificateStore(tmp_path / "other", Authority.create("another authority"))
    other.folder.mkdir()
    trusted = as_client(certificates, "somebody-else")
    untrusted = [trusted[0], *as_client(other, WORKER_CLIENT_NAME)[1:]]
    impostor = [*as_client(other, WORKER_CLIENT_NAME)[:1], *trusted[1:]]

    for flags, state, reason in (
        ([], "unauthorized", "permission"),
        (trusted, "forbidden", "permission"),
        (untrusted, "unreachable", "not_reported"),
        (impostor, "unreachable", "not_reported"),
    ):
        sample = await asked(kubeconfig, *flags)
        assert source(sample)["state"] == state
        (card,) = sample["accelerators"]
        assert set(card["absent"].values()) == {reason}
        assert sample["cpuUsageNanoCores"] > 0
