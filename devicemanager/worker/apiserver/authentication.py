"""Who sends a request: a user named by the front proxy, the user of a bearer token, or anonymous.

An invalid credential is refused, never taken for anonymous. Identity headers on a connection without the front
proxy's certificate are no credential at all. Beside a bearer token, somebody else's certificate says nothing, as in
every Kubernetes API server.
"""

import hashlib
import hmac
import logging
import secrets
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final, TypeAlias

import structlog
from aiohttp import hdrs

from devicemanager.clock import Clock
from devicemanager.errors import DeviceManagerError, excerpt
from devicemanager.serving.log_rate import RateLimitedLog
from devicemanager.tls.validity import has_ended
from devicemanager.worker.apiserver import reviews
from devicemanager.worker.apiserver.identity import ANONYMOUS, User, authenticated
from devicemanager.worker.apiserver.request_header import (
    FrontProxyTrust,
    Headers,
    IdentityHeaderError,
    user_from_headers,
)
from devicemanager.worker.apiserver.reviews import Poster, ReviewCache
from devicemanager.worker.single_flight import OverloadedError

PeerCertificate: TypeAlias = Mapping[str, object]
"""A verified certificate, as the ssl module describes it."""

TokenReviews: TypeAlias = "ReviewCache[bytes, User | str]"
"""Token digest -> its user, or why it has none."""

_UNKNOWN: Final = "the token belongs to no user"


class UnauthorizedError(Exception):
    """The request carries a credential that is not valid. The text is for the log, never for the caller."""


class _NoFrontProxyError(UnauthorizedError):
    """The client certificate is not the front proxy's now, which leaves a bearer token its say."""


class Authenticator:
    """Authenticates requests.

    Args:
        trust: What the cluster says of its front proxy at this moment; None while that is not known, and then no
            certificate is believed.
        api: Answers TokenReviews.
        tokens: Remembers the answers.
        clock: For certificates that expire on an open connection.
    """

    def __init__(
        self, trust: Callable[[], FrontProxyTrust | None], api: Poster, tokens: TokenReviews, clock: Clock
    ) -> None:
        self._trust = trust
        self._api = api
        self._tokens = tokens
        self._clock = clock
        self._digest_key = secrets.token_bytes(32)
        self._rated = RateLimitedLog(structlog.get_logger().bind(), clock.monotonic)

    async def authenticate(self, headers: Headers, certificate: PeerCertificate | None, peer: str = "") -> User:
        """The user behind a request, anonymous without any credential.

        Args:
            headers: Of the request.
            certificate: Verified by the handshake against the front proxy's CA; None or empty without one.
            peer: The address of whoever asks.

        Raises:
            UnauthorizedError: A credential is not valid, or could not be checked.
            OverloadedError: Too many tokens are being checked, in all or of this address.
        """
        user = None
        if certificate:
            try:
                user = self._front_proxied(headers, certificate)
            except _NoFrontProxyError:
                if not headers.getall(hdrs.AUTHORIZATION, []):
                    raise
        if user is None:
            user = await self._bearer(headers, peer)
        return ANONYMOUS if user is None else authenticated(user)

    def _front_proxied(self, headers: Headers, certificate: PeerCertificate) -> User | None:
        trust = self._trust()
        if trust is None:
            raise _NoFrontProxyError("a client certificate came before the front proxy's CA is known")
        name = common_name(certificate)
        if name is None or not trust.allows(name):
            problem = f"a client certificate names {excerpt(name or '', 64)!r}, which is not allowed"
            raise _NoFrontProxyError(problem)
        if has_ended(certificate, self._clock.now()):
            raise _NoFrontProxyError("the client certificate ended while its connection lived on")
        try:
            return user_from_headers(headers, trust)
        except IdentityHeaderError as error:
            raise UnauthorizedError(str(error)) from error

    async def _bearer(self, headers: Headers, peer: str) -> User | None:
        token = bearer_token(headers)
        if token is None:
            return None
        digest = hmac.digest(self._digest_key, token.encode(), hashlib.sha256)
        try:
            user = await self._tokens.review(digest, lambda: self._review(token), peer=peer)
        except OverloadedError:
            raise
        except DeviceManagerError as error:
            self._rated.write(logging.WARNING, "token_review_failed", cause=str(error))
            raise UnauthorizedError("the token could not be checked") from error
        if isinstance(user, str):
            raise UnauthorizedError(user)
        return user

    async def _review(self, token: str) -> User | str:
        status = await reviews.ask(self._api, reviews.TOKEN_REVIEWS, reviews.token_review(token))
        return reviews.reviewed_user(status) or _UNKNOWN


def bearer_token(headers: Headers) -> str | None:
    """The token that a request carries; None without an Authorization header.

    Raises:
        UnauthorizedError: The header is repeated, of another scheme, or holds no token.
    """
    values = headers.getall(hdrs.AUTHORIZATION, [])
    if not values:
        return None
    if len(values) > 1:
        raise UnauthorizedError("header Authorization is repeated")
    scheme, _, token = values[0].partition(" ")
    token = token.strip(" ")
    if scheme.lower() != "bearer" or not token:
        raise UnauthorizedError("header Authorization holds no bearer token")
    if not token.isascii() or not token.isprintable() or " " in token:
        raise UnauthorizedError("the bearer token holds characters that no token has")
    return token


def common_name(certificate: PeerCertificate) -> str | None:
    """The one common name of a certificate's subject; None when there is none, or more than one to choose from."""
    subject = certificate.get("subject", ())
    if not isinstance(subject, tuple):
        return None
    names = [value for part in subject for key, value in part if key == "commonName"]
    return names[0] if len(names) == 1 else None


def is_front_proxy(certificate: PeerCertificate, trust: FrontProxyTrust | None, now: datetime) -> bool:
    """Whether a certificate, verified by the handshake, is the front proxy's at this moment."""
    name = common_name(certificate)
    return trust is not None and name is not None and trust.allows(name) and not has_ended(certificate, now)
