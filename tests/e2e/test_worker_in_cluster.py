"""The worker as in a pod: its service account and two variables are enough, and a kubeconfig needs a package."""

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest

from devicemanager.demo.cluster.stand_in import WORKER_TOKEN
from tests.cluster.stand_in import StandInCluster
from tests.e2e.test_worker import Worker, furnish, path, running
from tests.unit.test_extras import ASKS_A_PLUGIN
from tests.unit.worker.apiserver.api_server import GROUPS

pytestmark = pytest.mark.asyncio

GROUP = GROUPS[0]


@asynccontextmanager
async def started(folder: Path, environment: Mapping[str, str], *flags: str) -> AsyncIterator[Worker]:
    """A worker that cannot import the package ``kubernetes``."""
    program = ("-m", "tests.e2e.in_cluster", str(folder / "account"))
    async with running(folder, flags, program, environment, Path(__file__).parents[2]) as worker:
        yield worker


def account(cluster: StandInCluster, folder: Path, token: str = WORKER_TOKEN) -> dict[str, str]:
    """Writes what the kubelet mounts, and returns the variables that it sets."""
    (folder / "account").mkdir(exist_ok=True)
    (folder / "account" / "token").write_text(token)
    (folder / "account" / "ca.crt").write_bytes(cluster.authority.pem.certificate)
    host, _, port = cluster.url.removeprefix("https://").partition(":")
    return {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}


@asynccontextmanager
async def forwarder(address: tuple[str, int], url: str) -> AsyncIterator[None]:
    """Listens at an address and passes each connection on to a server; cuts all of them off at the end."""
    host, _, port = url.removeprefix("https://").partition(":")
    opened: list[asyncio.StreamWriter] = []

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while chunk := await reader.read(65_536):
                writer.write(chunk)
        writer.close()

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ahead = await asyncio.open_connection(host, int(port))
        opened.extend((writer, ahead[1]))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(pump(reader, ahead[1]))
            tasks.create_task(pump(ahead[0], writer))

    async with await asyncio.start_server(forward, *address):
        yield
        for writer in opened:
            writer.transport.abort()


async def test_a_service_account_is_enough_without_the_kubernetes_package(
    stand_in_cluster: StandInCluster, tmp_path: Path
) -> None:
    furnish(stand_in_cluster, GROUP)
    async with started(tmp_path, account(stand_in_cluster, tmp_path)) as worker:
        worker.port = (await worker.logged("server_listening"))["port"]
        await worker.ready()

        assert (await worker.ask(path(GROUP), "viewer")).status == 200


async def test_a_kubeconfig_without_a_plugin_is_enough_without_the_kubernetes_package(
    stand_in_cluster: StandInCluster, tmp_path: Path
) -> None:
    furnish(stand_in_cluster, GROUP)
    kubeconfig = stand_in_cluster.write_kubeconfig(tmp_path / "kubeconfig", WORKER_TOKEN)
    async with started(tmp_path, {}, f"--kubeconfig={kubeconfig}") as worker:
        worker.port = (await worker.logged("server_listening"))["port"]
        await worker.ready()


async def test_a_token_that_the_kubelet_rotated_is_taken_when_the_old_one_is_refused(
    stand_in_cluster: StandInCluster, tmp_path: Path
) -> None:
    furnish(stand_in_cluster, GROUP)
    environment = account(stand_in_cluster, tmp_path, "ended")
    async with started(tmp_path, environment) as worker:
        worker.port = (await worker.logged("server_listening"))["port"]
        await worker.logged("watch_failed")
        account(stand_in_cluster, tmp_path)

        await worker.ready()


async def test_a_kubeconfig_with_a_plugin_without_the_kubernetes_package_names_the_extra(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(ASKS_A_PLUGIN)
    async with started(tmp_path, {}, f"--kubeconfig={kubeconfig}") as worker:
        out, err = await worker.process.communicate()

        assert worker.process.returncode == 1
        assert err.decode() == (
            "devicemanager worker: the Python package kubernetes is not installed: "
            "pip install 'accelerator-device-manager[cli]'\n"
        )
        assert b"server_listening" not in out


async def test_outside_a_cluster_without_a_kubeconfig_it_says_what_is_missing(tmp_path: Path) -> None:
    async with started(tmp_path, {}) as worker:
        _, err = await worker.process.communicate()

        assert worker.process.returncode == 2
        assert "not in a cluster, and no --kubeconfig" in err.decode()


@pytest.mark.parametrize("away", ["refuses", "is silent"])
async def test_without_an_api_server_the_worker_is_live_and_becomes_ready_when_it_is_back(
    stand_in_cluster: StandInCluster, tmp_path: Path, away: str
) -> None:
    furnish(stand_in_cluster, GROUP)
    environment = account(stand_in_cluster, tmp_path)
    own = "--service=gpustack-system/devicemanager-worker"
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        address = deaf.getsockname()
        if away == "refuses":
            deaf.close()
        async with started(tmp_path, {**environment, "KUBERNETES_SERVICE_PORT": str(address[1])}, own) as worker:
            worker.port = (await worker.logged("server_listening"))["port"]

            assert [line["event"] for line in worker.lines][-2:] == ["api_service_unknown", "server_listening"]
            for path_ in ("/livez", "/healthz"):
                assert (await worker.ask(path_)).status == 200
            unready = await worker.ask("/readyz")
            assert (unready.status, b"[-]front-proxy failed" in unready.body) == (500, True)

            deaf.close()
            async with forwarder(address, stand_in_cluster.url):
                await worker.logged("front_proxy_trust_changed")
                await worker.ready()


async def test_an_api_server_that_goes_and_comes_back_is_told_once_for_each_watch(
    stand_in_cluster: StandInCluster, tmp_path: Path
) -> None:
    furnish(stand_in_cluster, GROUP)
    environment = account(stand_in_cluster, tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = free.getsockname()
    environment["KUBERNETES_SERVICE_PORT"] = str(address[1])
    there = AsyncExitStack()
    await there.enter_async_context(forwarder(address, stand_in_cluster.url))
    async with there, started(tmp_path, environment) as worker:
        worker.port = (await worker.logged("server_listening"))["port"]
        await worker.ready()
        assert (await worker.ask(path(GROUP), "viewer")).status == 200
        await there.aclose()
        gone = [await worker.logged("watch_failed") for _ in range(2)]
        assert (await worker.ask("/livez")).status == 200
        assert (await worker.ask("/readyz")).status == 200  # what it knows is still good

        async with forwarder(address, stand_in_cluster.url):
            back = [await worker.logged("watch_recovered") for _ in range(2)]
            assert (await worker.ask(path(GROUP), "viewer")).status == 200

    for lines in (gone, back):
        assert {line["collection"] for line in lines} == {"device-managers", "front-proxy"}
    after = worker.lines[worker.lines.index(gone[0]) :]
    assert [line["event"] for line in after if line["event"].startswith("watch_")] == (
        ["watch_failed"] * 2 + ["watch_recovered"] * 2
    )
