"""The room, for tests that need no other."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.unit.apiserver.room import GROUPS, Room, open_room


@pytest_asyncio.fixture(params=GROUPS)
async def room(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Room]:
    """A server under each API group, its front proxy trusted."""
    async with open_room(tmp_path, str(request.param)) as opened:
        yield opened
