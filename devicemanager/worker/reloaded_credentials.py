"""Credentials that are read again: now and then, and after a server has refused them."""

import asyncio
from typing import Final, NoReturn

import structlog
from structlog.typing import FilteringBoundLogger

from devicemanager.clock import Clock
from devicemanager.errors import SettingsError
from devicemanager.worker.credentials import Credentials, CredentialsSource

RELOAD_INTERVAL_S: Final = 60.0
"""The kubelet rotates tokens long before they end; a minute is what client-go uses."""

FORCED_RELOAD_PAUSE_S: Final = 1.0
"""Between two readings forced by a 401, so that a server that refuses us causes no tight loop of them."""

_log: FilteringBoundLogger = structlog.get_logger()


class ReloadedCredentials:
    """The newest credentials of a source that could be read.

    Args:
        source: Where they come from.
        clock: Only its monotonic side is used.

    Attributes:
        current: What to show now; there is none before :meth:`read`.
    """

    current: Credentials

    def __init__(self, source: CredentialsSource, clock: Clock) -> None:
        self._source = source
        self._clock = clock
        self._reading = asyncio.Lock()
        self._forced_at_s = float("-inf")
        self._problem: str | None = None

    async def read(self) -> None:
        """Read them for the first time. Raises SettingsError where they cannot be read."""
        self.current = await asyncio.to_thread(self._source.load)

    async def follow(self) -> NoReturn:
        """Read them again each minute; what cannot be read leaves the last good ones in use."""
        while True:
            await asyncio.sleep(RELOAD_INTERVAL_S)
            async with self._reading:
                await self._read_again()

    async def renewed(self, refused: Credentials) -> Credentials:
        """What to show after a server has refused these; the same object if nothing has changed."""
        async with self._reading:
            now_s = self._clock.monotonic()
            if self.current is refused and now_s - self._forced_at_s >= FORCED_RELOAD_PAUSE_S:
                self._forced_at_s = now_s
                await self._read_again()
            return self.current

    async def _read_again(self) -> None:
        try:
            await self.read()
        except SettingsError as error:
            if str(error) != self._problem:
                self._problem = str(error)
                _log.warning("cluster_credentials_unreadable", error=str(error))
        else:
            if self._problem is not None:
                self._problem = None
                _log.info("cluster_credentials_readable_again")
