"""Why a device is unhealthy, in a word of a closed list; the sentence for people is in the reading."""

from typing import Final

from devicemanager.model.accelerator import Reading, Reason

HEALTH_CHECK: Final = "health_check"
"""The device answers, and a check of it says so."""

_GRAVEST_FIRST: Final = (
    Reason.LOST,
    Reason.TIMEOUT,
    Reason.PERMISSION,
    Reason.TRANSIENT_DRIVER_ERROR,
    Reason.INVALID_DATA,
)
"""Why a device gives no figure at all, as far as that is a fault."""

CAUSES: Final = (*(reason.value for reason in _GRAVEST_FIRST), HEALTH_CHECK)
"""All words that there are."""


def cause(reading: Reading) -> str | None:
    """Why a device is unhealthy; None if no check says that it is."""
    if reading.unhealthy_reason is None:
        return None
    reasons = () if reading.answered else reading.figures.reasons
    return next((reason.value for reason in _GRAVEST_FIRST if reason in reasons), HEALTH_CHECK)
