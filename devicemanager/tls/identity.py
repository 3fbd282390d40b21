"""The certificate we show and the CAs we trust: TLS contexts that follow their files.

A context is never changed once it is used. OpenSSL keeps one certificate per key type and can add a trusted CA but
not remove one, so each pair of (own certificate, trusted CAs) gets a fresh context for new handshakes; connections
keep the context they were made with.

Sessions are not resumed: a resumed session would outlive the CA that signed its certificate. There are no tickets,
and a context that holds a TLS 1.2 session is replaced (:attr:`ServerIdentity.context`).

Used by both servers and by every outgoing TLS connection. Never imports ``cryptography``.
"""

import asyncio
import contextlib
import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final, NoReturn

from structlog.typing import FilteringBoundLogger
from typing_extensions import override

from devicemanager.clock import Clock
from devicemanager.errors import SettingsError
from devicemanager.tls.material import Pair, PairFiles, TrustedCAs, Use, client_context, reason_of, server_context
from devicemanager.tls.reload import ExpiryWarning, ReloadedFiles, current

FOLLOW_INTERVAL_S: Final = 60.0
"""A rotated file is in use after at most this long; the kubelet itself takes about as long to project it."""


class _ReloadingIdentity(ABC):
    """An identity that follows its files."""

    def __init__(
        self, use: Use, pair: PairFiles | None, cas: Path | None, *, clock: Clock, log: FilteringBoundLogger
    ) -> None:
        self._pair_files = None
        if pair is not None:
            what = f"{pair.certificate} and {pair.key}"
            self._pair_files = ReloadedFiles(what, pair.read, partial(Pair.parse, use=use), log)
        self._cas_file = None
        if cas is not None:
            self._cas_file = ReloadedFiles(str(cas), lambda: (cas.read_bytes(),), TrustedCAs.parse, log)
        self._files = [files for files in (self._pair_files, self._cas_file) if files is not None]
        problems = [f"{files.what}: {files.problem}" for files in self._files if not files.reload()]
        if problems:
            raise SettingsError(problems)
        self._expiry = ExpiryWarning("serving" if use == "server" else use, clock, log)
        self._log = log
        self._pending = False

    @abstractmethod
    def _renew(self) -> None:
        """Make a context of what is in use now."""

    @abstractmethod
    def _shown(self) -> Pair | None:
        """The pair that is shown; None for none."""

    async def refresh(self) -> None:
        """Read the files now, off the event loop, and use what changed and can be used."""
        changed = await asyncio.to_thread(self._reload)
        if changed or self._pending:
            try:
                self._renew()
                self._pending = False
            except (OSError, ValueError) as error:  # no descriptor is free, say: the next refresh tries again
                self._pending = True
                self._log.warning("tls_context_not_made", reason=reason_of(error))
        if (pair := self._shown()) is not None:
            self._expiry.check(pair)

    def _reload(self) -> bool:
        changed = [files.reload() for files in self._files]
        return any(changed)

    async def follow(self, interval_s: float = FOLLOW_INTERVAL_S) -> NoReturn:
        """Refresh for ever, at once and then every ``interval_s`` seconds."""
        while True:
            await self.refresh()
            await asyncio.sleep(interval_s)


class ServerIdentity(_ReloadingIdentity):
    """The certificate of a server and the client CAs it trusts, as the files have them now.

    Attributes:
        pair: What new handshakes show.
        client_cas: Whose client certificates new handshakes accept; None asks for none.
        now: The wall clock that certificates are held against, aware UTC.
    """

    def __init__(
        self,
        pair: Pair | PairFiles,
        client_cas: Path | None = None,
        *,
        clock: Clock,
        log: FilteringBoundLogger,
    ) -> None:
        """Read everything once.

        Args:
            pair: Files are followed; a pair in memory stays.
            client_cas: PEM bundle, followed; None leaves it to :meth:`trust`.

        Raises:
            SettingsError: A file cannot be read or used; every one that cannot is named.
        """
        files = pair if isinstance(pair, PairFiles) else None
        super().__init__("server", files, client_cas, clock=clock, log=log)
        self.pair = pair if isinstance(pair, Pair) else current(self._pair_files)
        self.client_cas = None if self._cas_file is None else current(self._cas_file)
        self.now = clock.now
        self._on_cas_removed: list[Callable[[frozenset[bytes]], None]] = []
        self._on_cas_added: list[Callable[[], None]] = []
        self._context = server_context(self.pair, self.client_cas)

    @property
    def not_after(self) -> datetime:
        """End of the shown certificate's validity, aware UTC."""
        return self.pair.not_after

    @property
    def context(self) -> ssl.SSLContext:
        """The context for the next handshake.

        OpenSSL keeps a TLS 1.2 session in its context whatever the options say, :mod:`ssl` has no switch for that,
        and up to 20,000 of them would be held. So a context that holds one is replaced: 0.6 ms per TLS 1.2 client.
        """
        if self._context.session_stats()["number"]:
            with contextlib.suppress(OSError):  # no descriptor is free: better this context than no connection
                self._context = server_context(self.pair, self.client_cas)
        return self._context

    def trusts(self, cas: TrustedCAs | None) -> bool:
        """Whether all of ``cas`` are still trusted."""
        if cas is None:
            return True
        return self.client_cas is not None and cas.members <= self.client_cas.members

    def trusts_anchor(self, anchor: bytes | None) -> bool:
        """Whether an authority, DER, is one of those trusted now; None is not."""
        return self.client_cas is not None and anchor in self.client_cas.members

    def on_cas_removed(self, callback: Callable[[frozenset[bytes]], None]) -> None:
        """Have ``callback`` called, on the event loop, with the DER of the CAs that were removed."""
        self._on_cas_removed.append(callback)

    def on_cas_added(self, callback: Callable[[], None]) -> None:
        """Have ``callback`` called, on the event loop, when there are client CAs after a time without any."""
        self._on_cas_added.append(callback)

    def trust(self, client_cas: TrustedCAs | None) -> None:
        """Trust these CAs from now on, for new handshakes; for a server whose CAs do not come from a file.

        Raises:
            OSError: No descriptor is free to make a context with. Everything stays as it was.
        """
        self._use(self.pair, client_cas)

    def _use(self, pair: Pair, client_cas: TrustedCAs | None) -> None:
        context = server_context(pair, client_cas)
        self.pair, self._context = pair, context
        before, self.client_cas = self.client_cas, client_cas
        left = frozenset() if before is None else before.members
        if client_cas is not None:
            left -= client_cas.members
        if left:
            for callback in self._on_cas_removed:
                callback(left)
        if before is None and client_cas is not None:
            for added in self._on_cas_added:
                added()

    @override
    def _renew(self) -> None:
        pair = self.pair if self._pair_files is None else current(self._pair_files)
        self._use(pair, self.client_cas if self._cas_file is None else current(self._cas_file))

    @override
    def _shown(self) -> Pair:
        return self.pair


class ClientIdentity(_ReloadingIdentity):
    """The certificate we show to servers and the CAs we trust, as the files have them now."""

    def __init__(
        self,
        cas: TrustedCAs | Path | None,
        pair: PairFiles | None = None,
        *,
        verify: bool = True,
        clock: Clock,
        log: FilteringBoundLogger,
    ) -> None:
        """Read everything once.

        Args:
            cas: A file is followed; None takes the system's own.
            pair: Followed; None shows nothing.
            verify: As in :func:`client_context`.

        Raises:
            SettingsError: A file cannot be read or used; every one that cannot is named.
        """
        super().__init__("client", pair, cas if isinstance(cas, Path) else None, clock=clock, log=log)
        self._cas = cas if isinstance(cas, TrustedCAs) else None
        self._verify = verify
        self._renew()

    @property
    def not_after(self) -> datetime | None:
        """End of the shown certificate's validity, aware UTC; None when none is shown."""
        shown = self._shown()
        return None if shown is None else shown.not_after

    @property
    def cas(self) -> TrustedCAs | None:
        """Whose certificates a server may show; None for those of the system."""
        return self._cas if self._cas_file is None else current(self._cas_file)

    @override
    def _renew(self) -> None:
        self.context = client_context(self.cas, self._shown(), verify=self._verify)

    @override
    def _shown(self) -> Pair | None:
        return None if self._pair_files is None else current(self._pair_files)
