"""Credentials that are read again."""

import pytest
from structlog.testing import capture_logs
from typing_extensions import override
from yarl import URL

from devicemanager.errors import SettingsError
from devicemanager.worker.credentials import Credentials, CredentialsSource
from devicemanager.worker.reloaded_credentials import FORCED_RELOAD_PAUSE_S, ReloadedCredentials
from tests.timing import FakeClock


class Source(CredentialsSource):
    """Gives one token after the other; None cannot be read."""

    def __init__(self, *tokens: str | None) -> None:
        self.left = list(tokens)

    @override
    def load(self) -> Credentials:
        token = self.left.pop(0)
        if token is None:
            raise SettingsError(["no token"])
        return Credentials(URL("https://api.example"), f"Bearer {token}", None)


async def shown(credentials: ReloadedCredentials, clock: FakeClock) -> list[str | None]:
    """What is shown when each of three requests is refused, a second apart."""
    found = []
    for _ in range(3):
        found.append((await credentials.renewed(credentials.current)).authorization)
        clock.advance(FORCED_RELOAD_PAUSE_S)
    return found


@pytest.mark.asyncio
async def test_refused_ones_are_read_again_once_a_second() -> None:
    clock, source = FakeClock(), Source("first", "second", "third")
    credentials = ReloadedCredentials(source, clock)
    await credentials.read()

    refused = credentials.current
    assert (await credentials.renewed(refused)).authorization == "Bearer second"
    assert (await credentials.renewed(refused)).authorization == "Bearer second", "read meanwhile by another"
    assert (await credentials.renewed(credentials.current)).authorization == "Bearer second", "too soon"
    clock.advance(FORCED_RELOAD_PAUSE_S)
    assert (await credentials.renewed(credentials.current)).authorization == "Bearer third"


@pytest.mark.asyncio
async def test_what_cannot_be_read_leaves_the_last_good_ones_and_is_logged_once() -> None:
    clock = FakeClock()
    credentials = ReloadedCredentials(Source("first", None, None, "second"), clock)
    await credentials.read()
    with capture_logs() as logs:
        assert await shown(credentials, clock) == ["Bearer first", "Bearer first", "Bearer second"]

    assert [line["event"] for line in logs] == [
        "cluster_credentials_unreadable",
        "cluster_credentials_readable_again",
    ]


@pytest.mark.asyncio
async def test_the_first_ones_must_be_readable() -> None:
    with pytest.raises(SettingsError, match="no token"):
        await ReloadedCredentials(Source(None), FakeClock()).read()
