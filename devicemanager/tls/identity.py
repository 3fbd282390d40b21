"""Who we are on the wire and whom we believe: TLS contexts that follow their files.

A context is never changed once it serves. OpenSSL keeps one certificate per key type and can add a trusted CA but
not remove one, so each pair of (own certificate, trusted CAs) gets a fresh context, which is used for new
handshakes; connections keep the context they were made with. Files are compared by content, because a Kubernetes
volume swaps a symbolic link and its times say nothing. Whatever cannot be used is refused with one log line, and
what was in use stays.

Sessions are not resumed: a resumed session would outlive the CA that had vouched for it. There are no tickets,
and a context that holds a TLS 1.2 session is given up (:attr:`ServerIdentity.context`).

Used by both servers and by every outgoing TLS connection. This module never imports ``cryptography``; a self-signed
pair is made by a short-lived process, ``python -m devicemanager.tls.certificates``.
"""

import asyncio
import contextlib
import ssl
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Generic, NoReturn, TypeAlias, TypeVar

from structlog.typing import FilteringBoundLogger
from typing_extensions import override

from devicemanager.clock import Clock
from devicemanager.errors import SettingsError, excerpt
from devicemanager.tls.material import Pair, PairFiles, TrustedCAs, client_context, reason_of, server_context

FOLLOW_INTERVAL_S: Final = 60.0
"""A rotated file is in use after at most this long; the kubelet itself takes about as long to project it."""

EXPIRY_WARNING: Final = timedelta(days=30)
"""How long before its end a certificate is warned about, once a day."""

_SELF_SIGNED_DEADLINE_S: Final = 20.0

_Value = TypeVar("_Value")
_Dropped: TypeAlias = Callable[[frozenset[bytes]], None]


class _FollowedIdentity(ABC):
    """An identity whose files are looked at again and again."""

    @abstractmethod
    async def refresh(self) -> None:
        """Look at the files now, off the event loop, and use what changed and can be used."""

    async def follow(self, interval_s: float = FOLLOW_INTERVAL_S) -> NoReturn:
        """Refresh for ever, at once and then every ``interval_s`` seconds."""
        while True:
            await self.refresh()
            await asyncio.sleep(interval_s)


class ServerIdentity(_FollowedIdentity):
    """What a server shows, and whose clients it believes, kept in step with the files.

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
            clock: For the warning before the end.
            log: Where changes and refusals are said.

        Raises:
            SettingsError: A file cannot be read or used; every one that cannot is named.
        """
        self._followed_pair = _followed_pair(pair, log) if isinstance(pair, PairFiles) else None
        self._followed_cas = _followed_cas(client_cas, log) if client_cas is not None else None
        _read_first(self._followed_pair, self._followed_cas)
        self.pair = pair if isinstance(pair, Pair) else _value(self._followed_pair)
        self.client_cas = None if self._followed_cas is None else _value(self._followed_cas)
        self.now = clock.now
        self._expiry = _ExpiryWarning("serving", clock, log)
        self._log = log
        self._behind = False
        self._dropped: list[_Dropped] = []
        self._first: list[Callable[[], None]] = []
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
        """Whether everyone whom ``cas`` vouched for is believed still: none of them has left."""
        if cas is None:
            return True
        return self.client_cas is not None and cas.members <= self.client_cas.members

    def trusts_anchor(self, anchor: bytes | None) -> bool:
        """Whether an authority, DER, is one of those believed now; None is not."""
        return self.client_cas is not None and anchor in self.client_cas.members

    def on_cas_removed(self, callback: _Dropped) -> None:
        """Have ``callback`` called, on the event loop, with the DER of each CA that has left."""
        self._dropped.append(callback)

    def on_cas_added(self, callback: Callable[[], None]) -> None:
        """Have ``callback`` called, on the event loop, when client CAs are believed after a time without any."""
        self._first.append(callback)

    def trust(self, client_cas: TrustedCAs | None) -> None:
        """Believe these CAs from now on, for new handshakes; for a server whose CAs do not come from a file.

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
            for callback in self._dropped:
                callback(left)
        if before is None and client_cas is not None:
            for first in self._first:
                first()

    @override
    async def refresh(self) -> None:
        changed = await asyncio.to_thread(_look, self._followed_pair, self._followed_cas)
        if changed or self._behind:
            pair = self.pair if self._followed_pair is None else _value(self._followed_pair)
            cas = self.client_cas if self._followed_cas is None else _value(self._followed_cas)
            self._behind = not _made(lambda: self._use(pair, cas), self._log)
        self._expiry.check(self.pair)


class ClientIdentity(_FollowedIdentity):
    """What we show to servers, and which servers we believe, kept in step with the files."""

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
            clock: For the warning before the end.
            log: Where changes and refusals are said.

        Raises:
            SettingsError: A file cannot be read or used; every one that cannot is named.
        """
        self._followed_pair = None if pair is None else _followed_pair(pair, log)
        self._followed_cas = _followed_cas(cas, log) if isinstance(cas, Path) else None
        _read_first(self._followed_cas, self._followed_pair)
        self._cas = cas if isinstance(cas, TrustedCAs) else None
        self._verify = verify
        self._expiry = _ExpiryWarning("client", clock, log)
        self._log = log
        self._behind = False
        self.context = self._fresh()

    @property
    def not_after(self) -> datetime | None:
        """End of the shown certificate's validity, aware UTC; None when none is shown."""
        return None if self._followed_pair is None else _value(self._followed_pair).not_after

    @override
    async def refresh(self) -> None:
        changed = await asyncio.to_thread(_look, self._followed_pair, self._followed_cas)
        if changed or self._behind:
            self._behind = not _made(self._renew, self._log)
        if self._followed_pair is not None:
            self._expiry.check(_value(self._followed_pair))

    def _renew(self) -> None:
        self.context = self._fresh()

    def _fresh(self) -> ssl.SSLContext:
        cas = self._cas if self._followed_cas is None else _value(self._followed_cas)
        pair = None if self._followed_pair is None else _value(self._followed_pair)
        return client_context(cas, pair, verify=self._verify)


async def self_signed_pair(names: Sequence[str] = ()) -> Pair:
    """Have a short-lived process make a pair that nobody vouches for.

    Args:
        names: DNS names and IP addresses beside this host's name, ``localhost`` and the loopback addresses.

    Raises:
        SettingsError: The process failed, with what it said, or did not end in time.
    """
    arguments = [argument for name in names for argument in ("--san", name)]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",  # what lies in the directory that we happen to be started in is not our code
        "-m",
        "devicemanager.tls.certificates",
        "self-signed",
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(_SELF_SIGNED_DEADLINE_S):
            output, errors = await process.communicate()
    except TimeoutError as error:
        process.kill()
        await process.wait()
        raise SettingsError(["making a self-signed certificate took too long; give --cert-dir"]) from error
    if process.returncode != 0:
        last_line = excerpt(errors.decode("utf-8", "replace").strip().rpartition("\n")[2])
        raise SettingsError([f"making a self-signed certificate failed: {last_line}"])
    return Pair.parse(output, output)


class _Followed(Generic[_Value]):
    """One thing made of files: what is in use, and what was last looked at.

    Attributes:
        what: For a person.
        value: The last content that could be used; None before the first.
        problem: Why the last content looked at cannot be used; None when it is in use.
    """

    def __init__(
        self,
        what: str,
        read: Callable[[], tuple[bytes, ...]],
        parse: Callable[..., _Value],
        log: FilteringBoundLogger,
    ) -> None:
        self.what = what
        self.value: _Value | None = None
        self.problem: str | None = None
        self._seen: tuple[bytes, ...] | None = None
        self._read = read
        self._parse = parse
        self._log = log

    def look(self) -> bool:
        """Whether there is new content that can be used. Says each change once."""
        first = self.value is None
        try:
            content = self._read()
            if content == self._seen:
                return False
            self._seen = content
            self.value = self._parse(*content)
        except OSError as error:
            self._seen = None
            self._refuse(reason_of(error))
            return False
        except ValueError as error:
            self._refuse(reason_of(error))
            return False
        self.problem = None
        if not first:
            self._log.info("tls_files_reloaded", files=self.what)
        return True

    def _refuse(self, problem: str) -> None:
        if self.value is not None and problem != self.problem:
            self._log.warning("tls_files_refused", files=self.what, reason=problem)
        self.problem = problem


class _ExpiryWarning:
    """Says once a day that a certificate is about to end, or has ended."""

    def __init__(self, use: str, clock: Clock, log: FilteringBoundLogger) -> None:
        self._use = use
        self._clock = clock
        self._log = log
        self._said: datetime | None = None

    def check(self, pair: Pair) -> None:
        now = self._clock.now()
        if pair.not_after - now > EXPIRY_WARNING:
            self._said = None
        elif self._said is None or abs(now - self._said) >= timedelta(days=1):
            self._said = now
            self._log.warning(
                "certificate_expires_soon",
                use=self._use,
                not_after=pair.not_after.astimezone(UTC).isoformat(),
                remaining_s=int((pair.not_after - now).total_seconds()),
            )


def _made(make: Callable[[], None], log: FilteringBoundLogger) -> bool:
    """Whether a context could be made; where no descriptor is free, the next look tries again."""
    try:
        make()
    except (OSError, ValueError) as error:
        log.warning("tls_context_not_made", reason=reason_of(error))
        return False
    return True


def _value(followed: _Followed[_Value] | None) -> _Value:
    if followed is None or followed.value is None:
        raise AssertionError("read before the first look succeeded")
    return followed.value


def _read_first(*followed: _Followed[Pair] | _Followed[TrustedCAs] | None) -> None:
    present = [one for one in followed if one is not None]
    problems = [f"{one.what}: {one.problem}" for one in present if not one.look()]
    if problems:
        raise SettingsError(problems)


def _look(*followed: _Followed[Pair] | _Followed[TrustedCAs] | None) -> bool:
    looked = [one.look() for one in followed if one is not None]
    return any(looked)


def _followed_pair(files: PairFiles, log: FilteringBoundLogger) -> _Followed[Pair]:
    return _Followed(f"{files.certificate} and {files.key}", files.read, Pair.parse, log)


def _followed_cas(path: Path, log: FilteringBoundLogger) -> _Followed[TrustedCAs]:
    return _Followed(str(path), lambda: (path.read_bytes(),), TrustedCAs.parse, log)
