"""One sample as a person reads it."""

from collectors.text import describe
from devicemanager.model.accelerator import Card, Reading, Reason

MIB = 1 << 20


def test_a_card_with_all_figures() -> None:
    reading = Reading(Card(0, "GPU-1", "A Card", "0000:3b:00.0"), 1024 * MIB, 1536 * 1024, 35, 40, 120_500)
    assert describe([reading]) == (
        "0  GPU-1  A Card  0000:3b:00.0\n"
        "   memory 2 MiB used of 1024 MiB, compute 35 %, temperature 40 °C, power 120 W\n"
        "   healthy\n"
    )


def test_what_is_absent_says_why() -> None:
    reading = Reading(
        Card(3),
        Reason.UNSUPPORTED,
        Reason.UNSUPPORTED,
        Reason.PARTITIONED,
        0,
        Reason.PERMISSION,
        "too hot",
        {"ecc": Reason.TIMEOUT},
    )
    assert describe([reading]) == (
        "3  id not read  name not read\n"
        "   memory absent (unsupported) used of absent (unsupported), compute absent (partitioned), "
        "temperature 0 °C, power absent (permission)\n"
        "   unhealthy: too hot; check not read: ecc (timeout)\n"
    )


def test_no_cards_no_text() -> None:
    assert describe([]) == ""
