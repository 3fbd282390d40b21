"""The word for why a device is unhealthy."""

import pytest

from devicemanager.model.accelerator import Card, Reading, Reason
from devicemanager.model.figures import Figures
from devicemanager.rules import health
from tests import devices

CARD = Card(0, "GPU-0")


def without(*reasons: Reason) -> Figures:
    """Figures that are all absent, for these reasons in turn."""
    return Figures(Reason.UNSUPPORTED, **dict(zip(devices.READ, reasons, strict=False)))


@pytest.mark.parametrize(
    ("reading", "cause"),
    [
        (devices.reading(CARD), None),
        (devices.reading(CARD, temperature=Reason.TIMEOUT), None),
        (devices.reading(CARD, "3 uncorrected ECC errors in device memory"), "health_check"),
        (devices.reading(CARD, "power does not answer", power_usage=Reason.LOST), "health_check"),
        (Reading.unreadable(CARD, Reason.LOST, "lost: code 15"), "lost"),
        (Reading.unreadable(CARD, Reason.TIMEOUT, "no answer within 2 s"), "timeout"),
        (Reading.unreadable(CARD, Reason.PERMISSION, "no permission"), "permission"),
        (Reading.unreadable(CARD, Reason.TRANSIENT_DRIVER_ERROR, "crashed"), "transient_driver_error"),
        (Reading(CARD, without(Reason.TRANSIENT_DRIVER_ERROR, Reason.LOST), "no figure can be read"), "lost"),
        (Reading(CARD, without(Reason.INVALID_DATA), "no figure can be read"), "invalid_data"),
        (Reading(CARD, without(), "a check says so"), "health_check"),
        (Reading(CARD, Figures(Reason.UNSUPPORTED)), None),
    ],
)
def test_the_cause(reading: Reading, cause: str | None) -> None:
    assert health.cause(reading) == cause
    assert cause is None or cause in health.CAUSES
