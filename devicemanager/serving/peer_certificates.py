"""What is made of the certificates that peers show: believed while their authority is, and until they end."""

import logging
import ssl

from devicemanager.serving.connection import Connection
from devicemanager.tls.identity import ServerIdentity
from devicemanager.tls.material import anchor_of, chain_end, reason_of


class PeerCertificates:
    """Says of a connection whether what its peer has shown in the handshake is still good."""

    def __init__(self, identity: ServerIdentity) -> None:
        """Args: ``identity`` knows whom we believe now, and what time it is."""
        self._identity = identity

    def believed(self, connection: Connection) -> bool:
        """Whether the peer has shown no certificate, or one that is good now; in doubt, not."""
        if not connection.certified:
            return True
        if connection.certified_until is None:
            tls = _tls_of(connection)
            connection.certified_until = None if tls is None else chain_end(tls)
        if self.ended(connection):
            return False
        if self._identity.trusts(connection.client_cas):
            return True
        tls = _tls_of(connection)
        return self._identity.trusts_anchor(None if tls is None else anchor_of(tls))

    def ended(self, connection: Connection) -> bool:
        """Whether a certificate of the peer's chain was valid at the handshake, and is no more."""
        until = connection.certified_until
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
            return logging.DEBUG, "peer left"


def _tls_of(connection: Connection) -> ssl.SSLObject | None:
    transport = connection.transport
    tls = transport.get_extra_info("ssl_object") if transport is not None else None
    return tls if isinstance(tls, ssl.SSLObject) else None
