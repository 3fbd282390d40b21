"""When a certificate that the handshake has verified is good, for connections that outlive it.

The handshake checks once. A connection that is kept for days goes on with a certificate that has ended meanwhile, so
whoever believes what a peer has shown asks here, at each request.
"""

import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache


def is_current(certificate: Mapping[str, object], now: datetime) -> bool:
    """Whether ``now`` lies within a certificate's validity; not when that cannot be read.

    Args:
        certificate: As :meth:`ssl.SSLSocket.getpeercert` gives it.
        now: Aware UTC.
    """
    begin, end = (_moment(str(certificate.get(name, ""))) for name in ("notBefore", "notAfter"))
    return begin is not None and end is not None and begin <= now <= end


@lru_cache(maxsize=64)
def _moment(text: str) -> datetime | None:
    try:
        return datetime.fromtimestamp(ssl.cert_time_to_seconds(text), tz=UTC)
    except ValueError:
        return None
