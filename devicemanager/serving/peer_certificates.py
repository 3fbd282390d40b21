"""Checks of peers' client certificates after the handshake: still trusted, not expired."""

import logging
import ssl

from devicemanager.serving.connection import Connection
from devicemanager.tls.identity import ServerIdentity
from devicemanager.tls.material import anchor_of, chain_end, reason_of


class PeerCertificates:
    """Says of a connection whether the certificate from its handshake is still good."""

    def __init__(self, identity: ServerIdentity) -> None:
        """Args: ``identity`` has the client CAs trusted now, and the wall clock."""
        self._identity = identity

    def trusted(self, connection: Connection) -> bool:
        """Whether the peer has shown no certificate, or one that is trusted now; False in doubt."""
        if not connection.has_certificate:
            return True
        if connection.certificate_expires_at is None:
            tls = _tls_of(connection)
            connection.certificate_expires_at = None if tls is None else chain_end(tls)
        if self.expired(connection):
            return False
        if self._identity.trusts(connection.client_cas):
            return True
        tls = _tls_of(connection)
        return self._identity.trusts_anchor(None if tls is None else anchor_of(tls))

    def expired(self, connection: Connection) -> bool:
        """Whether a certificate of the peer's chain has expired since the handshake."""
        until = connection.certificate_expires_at
        return until is not None and self._identity.now() >= until


def handshake_refusal(error: OSError) -> tuple[int, str]:
    """Level and reason of the log line for a handshake that failed."""
    match error:
        case ssl.SSLCertVerificationError():
            return logging.WARNING, f"client certificate refused: {error.verify_message}"
        case ssl.SSLError():
            return logging.WARNING, reason_of(error)
        case ConnectionAbortedError() | TimeoutError():
            return logging.WARNING, "handshake took too long"
        case _:
            # Load balancers and port scanners come and go like this all day.
            return logging.DEBUG, "peer disconnected"


def _tls_of(connection: Connection) -> ssl.SSLObject | None:
    transport = connection.transport
    tls = transport.get_extra_info("ssl_object") if transport is not None else None
    return tls if isinstance(tls, ssl.SSLObject) else None
