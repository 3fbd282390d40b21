"""What the tests of the stand-in cluster share: an Instance, and a client of a cluster with its node."""

from collections.abc import AsyncIterator
from typing import Final

import pytest_asyncio

from devicemanager.demo.cluster.objects import Grant, InstanceSpec
from tests.cluster.client import Client, connected
from tests.cluster.stand_in import StandInCluster

WEB: Final = InstanceSpec("team-a", "web", "node-a", [Grant("nvidia", "GPU-1")], labels={"app": "web"})
SUMMARY: Final = "/api/v1/nodes/node-a/proxy/stats/summary"
WEB_METRICS: Final = "/apis/metrics.k8s.io/v1beta1/namespaces/team-a/pods/web"


@pytest_asyncio.fixture
async def client(stand_in_cluster: StandInCluster) -> AsyncIterator[Client]:
    """A client of a cluster with one node."""
    stand_in_cluster.add_node("node-a")
    async with connected(stand_in_cluster) as client:
        yield client
