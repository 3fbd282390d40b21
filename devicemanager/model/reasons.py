"""Why a figure is absent."""

from enum import StrEnum


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
