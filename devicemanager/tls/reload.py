"""Files of certificates that are read again, and the warning before a certificate expires.

Files are compared by content, because a Kubernetes volume swaps a symbolic link and its times say nothing. What
cannot be used is refused with one log line, and what was in use stays.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final, Generic, TypeVar

from structlog.typing import FilteringBoundLogger

from devicemanager.clock import Clock
from devicemanager.tls.material import Pair, reason_of

EXPIRY_WARNING: Final = timedelta(days=30)
"""How long before its end a certificate is warned about, once a day."""

_Value = TypeVar("_Value")


class ReloadedFiles(Generic[_Value]):
    """One or two files, and what was made of their content.

    Attributes:
        what: The files, for a person.
        value: What was made of the last content that could be used; None before the first.
        problem: Why the last content cannot be used; None when it is in use.
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

    def reload(self) -> bool:
        """Whether there is new content that can be used. Logs each change once."""
        first = self.value is None
        try:
            content = self._read()
            if content == self._seen:
                return False
            self._seen = content
            self.value = self._parse(*content)
        except (OSError, ValueError) as error:
            if isinstance(error, OSError):
                self._seen = None
            problem = reason_of(error)
            if not first and problem != self.problem:
                self._log.warning("tls_files_refused", files=self.what, reason=problem)
            self.problem = problem
            return False
        self.problem = None
        if not first:
            self._log.info("tls_files_reloaded", files=self.what)
        return True


class ExpiryWarning:
    """Logs once a day that a certificate is about to expire, or has expired."""

    def __init__(self, use: str, clock: Clock, log: FilteringBoundLogger) -> None:
        self._use = use
        self._clock = clock
        self._log = log
        self._warned_at: datetime | None = None

    def check(self, pair: Pair) -> None:
        """Log if it is time to."""
        now = self._clock.now()
        if pair.not_after - now > EXPIRY_WARNING:
            self._warned_at = None
        elif self._warned_at is None or abs(now - self._warned_at) >= timedelta(days=1):
            self._warned_at = now
            self._log.warning(
                "certificate_expires_soon",
                use=self._use,
                not_after=pair.not_after.astimezone(UTC).isoformat(),
                remaining_s=int((pair.not_after - now).total_seconds()),
            )


def current(files: ReloadedFiles[_Value] | None) -> _Value:
    """What is in use; only after a first :meth:`ReloadedFiles.reload` that could use the content."""
    if files is None or files.value is None:
        raise AssertionError("used before it was read")
    return files.value
