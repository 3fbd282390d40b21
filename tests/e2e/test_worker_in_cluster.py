"""The worker as in a pod: its service account and two variables are enough, and a kubeconfig needs a package."""

import asyncio
import ssl
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from devicemanager.demo.cluster.stand_in import WORKER_TOKEN
from devicemanager.tls.certificates import Authority
from tests.cluster.stand_in import StandInCluster
from tests.e2e.test_worker import Worker, furnish, path
from tests.unit.worker.apiserver.api_server import GROUPS, SERVER_NAME

pytestmark = pytest.mark.asyncio

GROUP = GROUPS[0]


@asynccontextmanager
async def started(folder: Path, environment: Mapping[str, str], *flags: str) -> AsyncIterator[Worker]:
    """A worker that cannot import the package ``kubernetes``."""
    authority = Authority.create("serving CA")
    authority.serving([SERVER_NAME]).write(folder)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.e2e.in_cluster",
        str(folder / "account"),
        "worker",
        "--bind-address=127.0.0.1",
        "--secure-port=0",
        f"--cert-dir={folder}",
        "--log-format=json",
        *flags,
        cwd=Path(__file__).parents[2],
        env={"PATH": "", **environment},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        ca = authority.pem.certificate
        yield Worker(process, ssl.create_default_context(cadata=ca.decode()), ca)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


def account(cluster: StandInCluster, folder: Path, token: str = WORKER_TOKEN) -> dict[str, str]:
    """Writes what the kubelet mounts, and returns the variables that it sets."""
    (folder / "account").mkdir(exist_ok=True)
    (folder / "account" / "token").write_text(token)
    (folder / "account" / "ca.crt").write_bytes(cluster.authority.pem.certificate)
    host, _, port = cluster.url.removeprefix("https://").partition(":")
    return {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}


async def test_a_service_account_is_enough_without_the_kubernetes_package(
    stand_in_cluster: StandInCluster, tmp_path: Path
) -> None:
    furnish(stand_in_cluster, GROUP)
    async with started(tmp_path, account(stand_in_cluster, tmp_path)) as worker:
        worker.port = (await worker.logged("server_listening"))["port"]
        await worker.ready()

        assert (await worker.ask(path(GROUP), "viewer")).status == 200


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


async def test_a_kubeconfig_without_the_kubernetes_package_names_the_extra(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text("apiVersion: v1\n")
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
