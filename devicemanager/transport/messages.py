"""A request to a peer, and its answer."""

import ssl
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from yarl import URL

from devicemanager.clock import Clock
from devicemanager.rules import retries


@dataclass(frozen=True, slots=True)
class Request:
    """A request.

    Attributes:
        url: Complete and already quoted.
        limit_bytes: Of the decoded body of a good answer.
        tls: The context to verify with; None for plain HTTP.
        server_hostname: The name to verify, where it is not the host of the URL.
        connect_s: For the connection and its handshake; None for as long as the whole may take.
        proxy: To go through; the environment is never asked here.
        backend: Who answers, of several behind one address: their failures are counted apart.
        retryable: Statuses after which the same request may get another answer in a moment.
    """

    method: str
    url: URL
    limit_bytes: int
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes | None = field(default=None, repr=False)
    tls: ssl.SSLContext | None = None
    server_hostname: str | None = None
    proxy: URL | None = None
    connect_s: float | None = None
    backend: str = ""
    retryable: Collection[int] = retries.STATUSES


@dataclass(frozen=True, slots=True)
class Received:
    """A complete answer.

    Attributes:
        body: Decoded, within the limit; empty once it was read and only the times still matter.
        length: Of the body in bytes, also once that is empty.
        received_monotonic_s: Our monotonic clock when the headers were in.
        age_s: The ``Age`` header; None where it is missing or no whole number of seconds.
        date: The sender's clock, from the ``Date`` header; None where it is missing or malformed.
        retry_after_s: The ``Retry-After`` header; None where it is missing or malformed.
    """

    status: int
    body: bytes
    received_monotonic_s: float
    age_s: int | None = None
    date: datetime | None = None
    retry_after_s: int | None = None
    length: int = 0

    def answered_at(self, clock: Clock) -> datetime:
        """The sender's wall clock when it answered; our own where it does not say."""
        held = timedelta(seconds=clock.monotonic() - self.received_monotonic_s)
        return self.date or clock.now() - held

    def without_body(self) -> "Received":
        """The same without its body, for keeping."""
        return replace(self, body=b"", length=len(self.body))
