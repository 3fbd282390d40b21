"""Whether a client certificate has expired since the handshake, asked at each request of a kept connection.

The handshake checks once. The beginning of the validity is not checked again: a certificate that was valid becomes
invalid by its end only, and not by a clock that is set back.
"""

import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache


def has_ended(certificate: Mapping[str, object], now: datetime) -> bool:
    """Whether a certificate, as :mod:`ssl` gives it, is over, or cannot be read until when it is valid."""
    end = _moment(str(certificate.get("notAfter", "")))
    return end is None or now >= end


@lru_cache(maxsize=64)
def _moment(text: str) -> datetime | None:
    try:
        return datetime.fromtimestamp(ssl.cert_time_to_seconds(text), tz=UTC)
    except ValueError:
        return None
