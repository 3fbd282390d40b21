"""``devicemanager worker`` as a process that reads kubelets at their own addresses."""

import json
from pathlib import Path

import pytest

from devicemanager.demo.cluster.access import DISCOVERY, Rule, worker_rules
from devicemanager.demo.cluster.objects import SYSTEM_NAMESPACE
from devicemanager.demo.cluster.stand_in import WORKER_USER
from devicemanager.tls.certificates import self_signed
from tests.cluster.stand_in import StandInCluster
from tests.e2e.test_worker import furnish, path, started
from tests.unit.worker.apiserver.api_server import GROUPS

pytestmark = pytest.mark.asyncio

DIRECT = "--kubelet-mode=direct"


@pytest.fixture(autouse=True)
def furnished(stand_in_cluster: StandInCluster) -> None:
    furnish(stand_in_cluster, GROUPS[0])
    stand_in_cluster.remove_metrics_api()
    stand_in_cluster.access.rules[:] = [
        *DISCOVERY,
        *worker_rules(WORKER_USER, SYSTEM_NAMESPACE, direct_kubelets=True),
        Rule("viewer", ("get",), (GROUPS[0],), ("instances/metrics",), namespace="default"),
    ]


async def test_a_kubelet_whose_certificate_the_authority_signed_is_read(
    stand_in_cluster: StandInCluster, tmp_path: Path
) -> None:
    flags = [DIRECT, f"--kubelet-certificate-authority={stand_in_cluster.ca_file}"]
    async with (
        stand_in_cluster.kubelet("node-a", "::1"),
        started(stand_in_cluster, tmp_path, GROUPS[0], flags) as worker,
    ):
        worker.port = (await worker.logged("server_listening"))["port"]
        await worker.ready()

        answer = await worker.ask(path(GROUPS[0]), "viewer")

    assert answer.status == 200
    assert json.loads(answer.body)["sample"]["sources"][0] | {"ageSeconds": 0} == {
        "name": "kubelet",
        "state": "ok",
        "ageSeconds": 0,
    }
    assert len(stand_in_cluster.requests.matching("nodes/stats")) == 1
    assert "kubelets_not_verified" not in {line["event"] for line in worker.lines}


async def test_a_self_signed_kubelet_is_refused_with_the_reason_unless_verification_is_off(
    stand_in_cluster: StandInCluster, tmp_path: Path
) -> None:
    signed = f"--kubelet-certificate-authority={stand_in_cluster.ca_file}"
    async with stand_in_cluster.kubelet("node-a", pair=self_signed(["node-a", "127.0.0.1"])):
        async with started(stand_in_cluster, tmp_path, GROUPS[0], [DIRECT, signed]) as worker:
            worker.port = (await worker.logged("server_listening"))["port"]
            await worker.ready()
            refused = await worker.ask(path(GROUPS[0]), "viewer")
            line = await worker.logged("source_failed")
        assert refused.status == 503
        assert "certificate not accepted: self-signed certificate" in refused.body.decode()
        assert (line["node"], line["state"]) == ("node-a", "unreachable")
        assert "self-signed certificate" in line["error"]
        assert stand_in_cluster.requests.matching("nodes/stats") == []

        loud = [DIRECT, "--kubelet-insecure-skip-verify"]
        async with started(stand_in_cluster, tmp_path, GROUPS[0], loud) as worker:
            assert (await worker.logged("kubelets_not_verified"))["level"] == "warning"
            worker.port = (await worker.logged("server_listening"))["port"]
            await worker.ready()
            assert (await worker.ask(path(GROUPS[0]), "viewer")).status == 200
