"""When a tick is a sample, and what it means when it is none."""

import pytest

from devicemanager.model.accelerator import Card, CollectorState, Figure, Reading, Reason
from devicemanager.model.figures import FIGURES, Figures
from devicemanager.rules.sample import succeeded, why_not

NAMED = Card(0, "GPU-0")


def reading(*figures: Figure, card: Card = NAMED, fault: str | None = None) -> Reading:
    """The figures named, and the last of them for all others."""
    names = [spec.name for spec in FIGURES if spec.share_of is None]
    rest = figures[-1:] * len(names)
    return Reading(card, Figures(**dict(zip(names, (*figures, *rest), strict=False))), fault)


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (reading(0), True),
        (reading(Reason.LOST, Reason.LOST, 0, Reason.LOST), True),
        (reading(5, Reason.TIMEOUT, card=Card(0)), True),
        (reading(Reason.UNSUPPORTED), True),
        (reading(Reason.PARTITIONED, Reason.UNSUPPORTED, Reason.REPORTED_ON_PRIMARY), True),
        (reading(Reason.UNSUPPORTED, card=Card(0)), False),
        (reading(Reason.UNSUPPORTED, Reason.PERMISSION), False),
        (reading(Reason.UNSUPPORTED, Reason.TRANSIENT_DRIVER_ERROR), False),
        (reading(Reason.LOST), False),
        (reading(Reason.TIMEOUT), False),
        (reading(Reason.INVALID_DATA), False),
    ],
)
def test_a_figure_or_a_card_that_has_none(one: Reading, expected: bool) -> None:
    assert succeeded([one]) is expected
    assert succeeded([reading(Reason.LOST), one]) is expected


def test_nothing_read_is_none() -> None:
    assert not succeeded([])


@pytest.mark.parametrize(
    ("readings", "state", "why"),
    [
        ([reading(Reason.PERMISSION)] * 2, CollectorState.NO_PERMISSION, "2 permission"),
        (
            [reading(Reason.UNSUPPORTED, Reason.PERMISSION), reading(Reason.PERMISSION)],
            CollectorState.NO_PERMISSION,
            "2 permission",
        ),
        ([reading(Reason.TIMEOUT)], CollectorState.UNRESPONSIVE, "1 timeout"),
        ([reading(Reason.TIMEOUT), reading(Reason.LOST)], CollectorState.FAILED, "1 timeout, 1 lost"),
        ([reading(Reason.UNSUPPORTED, card=Card(0))], CollectorState.FAILED, "1 unsupported"),
        (
            [reading(Reason.LOST, card=Card(4)), reading(Reason.LOST, card=Card(5), fault="lost: code 15")],
            CollectorState.FAILED,
            "2 lost; card 5 lost: code 15",
        ),
    ],
)
def test_why_it_is_none(readings: list[Reading], state: CollectorState, why: str) -> None:
    assert why_not(readings) == (state, why)
