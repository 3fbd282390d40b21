"""Why a figure is absent."""

from enum import StrEnum
from typing import Final


class Reason(StrEnum):
    """Why a figure is absent. Closed: code, wire and documentation use exactly these words."""

    UNSUPPORTED = "unsupported"
    PERMISSION = "permission"
    TRANSIENT_DRIVER_ERROR = "transient_driver_error"
    TIMEOUT = "timeout"
    LOST = "lost"
    INVALID_DATA = "invalid_data"
    PARTITIONED = "partitioned"
    REPORTED_ON_PRIMARY = "reported_on_primary"
    TRUNCATED = "truncated"
    BOUNDED = "bounded"
    VERSION_SKEW = "version_skew"
    NOT_REPORTED = "not_reported"
    NOT_YET = "not_yet"
    STALE = "stale"


NO_FAULT: Final = frozenset({Reason.UNSUPPORTED, Reason.PARTITIONED, Reason.REPORTED_ON_PRIMARY})
"""For which a device in good health may lack a figure, or have none at all."""
