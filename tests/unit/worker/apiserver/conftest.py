"""A running API server, for tests that need no other."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.unit.worker.apiserver.api_server import GROUPS, Server, running_server


@pytest_asyncio.fixture(params=GROUPS)
async def server(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Server]:
    """A server under each API group, its front proxy trusted."""
    async with running_server(tmp_path, str(request.param)) as opened:
        yield opened
