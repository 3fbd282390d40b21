"""A client of the stand-in cluster that reads documents."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from devicemanager.demo.cluster.stand_in import ADMIN_TOKEN
from tests.cluster.stand_in import StandInCluster


class Client:
    """One user of the cluster."""

    def __init__(self, cluster: StandInCluster, session: aiohttp.ClientSession) -> None:
        self.cluster = cluster
        self.session = session

    def get(self, path: str, token: str | None = ADMIN_TOKEN, **headers: str) -> Any:
        """A GET request, to be entered."""
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        return self.session.get(f"{self.cluster.url}{path}", headers=headers)

    async def read(self, path: str, token: str | None = ADMIN_TOKEN) -> tuple[int, dict[str, Any]]:
        """Status and document of a GET."""
        async with self.get(path, token) as answer:
            return answer.status, await answer.json()

    async def post(
        self, path: str, document: dict[str, Any], token: str = ADMIN_TOKEN
    ) -> tuple[int, dict[str, Any]]:
        """Status and document of a POST."""
        headers = {"Authorization": f"Bearer {token}"}
        async with self.session.post(f"{self.cluster.url}{path}", json=document, headers=headers) as answer:
            return answer.status, await answer.json()


@asynccontextmanager
async def connected(cluster: StandInCluster) -> AsyncIterator[Client]:
    """A client that verifies the cluster's certificate."""
    context = ssl.create_default_context(cafile=str(cluster.ca_file))
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session:
        yield Client(cluster, session)
