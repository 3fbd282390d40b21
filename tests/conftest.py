"""Fixtures shared by every room."""

from collections.abc import AsyncIterator

import pytest_asyncio

from devicemanager.demo.cluster import StandInCluster


@pytest_asyncio.fixture
async def stand_in_cluster() -> AsyncIterator[StandInCluster]:
    """A running stand-in for a cluster: namespaces and the authentication ConfigMap, no nodes yet."""
    async with StandInCluster() as cluster:
        yield cluster
