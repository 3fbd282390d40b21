from datetime import timedelta

import pytest

from devicemanager.tls.identity import ServerIdentity
from tests.timing import FakeClock
from tests.tls_peers import SERVER_NAMES, Logged, authority, parsed


class TestExpiry:
    def identity(self, days: float, clock: FakeClock, logged: Logged) -> ServerIdentity:
        end = clock.now() + timedelta(days=days)
        pair = parsed(authority().serving(SERVER_NAMES, now=end, days=0))
        return ServerIdentity(pair, clock=clock, log=logged.log)

    @pytest.mark.asyncio
    async def test_a_certificate_is_warned_about_from_30_days_before_its_end_once_a_day(self) -> None:
        clock, logged = FakeClock(), Logged()
        identity = self.identity(30.5, clock, logged)
        await identity.refresh()
        assert logged.events("certificate_expires_soon") == []
        clock.wall += timedelta(days=1)
        for _ in range(3):
            await identity.refresh()
        clock.wall += timedelta(days=1)
        await identity.refresh()

        assert [line["remaining_s"] for line in logged.events("certificate_expires_soon")] == [
            int(29.5 * 86400),
            int(28.5 * 86400),
        ]

    @pytest.mark.asyncio
    async def test_one_that_has_ended_is_warned_about_too(self) -> None:
        clock, logged = FakeClock(), Logged()
        await self.identity(-2, clock, logged).refresh()

        assert [line["remaining_s"] for line in logged.events("certificate_expires_soon")] == [-2 * 86400]
