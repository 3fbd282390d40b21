"""One sample as a person reads it."""

from collectors.text import describe
from devicemanager.model.accelerator import Card, Reading, Reason
from devicemanager.model.figures import Figures

MIB = 1 << 20


def test_a_card_with_all_figures() -> None:
    reading = Reading(
        Card(0, "GPU-1", "A Card", "0000:3b:00.0"),
        Figures(
            memory_total=1024 * MIB,
            memory_used=1536 * 1024,
            compute_utilization=35,
            temperature=40,
            power_usage=120_500,
            power_limit=300_000,
            clock_reduction_reasons=("sw_power_cap", "hw_slowdown"),
        ),
    )
    assert describe([reading]) == (
        "0  GPU-1  A Card  0000:3b:00.0\n"
        "   memory 2 MiB used of 1024 MiB, compute utilization 35 %, temperature 40 °C, power usage 120 W, "
        "power limit 300 W, clock reduction reasons sw_power_cap hw_slowdown\n"
        "   healthy\n"
    )


def test_a_value_that_is_not_the_usual_one_says_so() -> None:
    reading = Reading(Card(0, "GPU-1"), Figures(Reason.UNSUPPORTED), notes={"power_usage": "of the instant"})
    assert describe([reading]).endswith("   healthy\n   power usage: of the instant\n")


def test_what_is_absent_says_why() -> None:
    reading = Reading(
        Card(3),
        Figures(
            Reason.UNSUPPORTED,
            compute_utilization=Reason.PARTITIONED,
            temperature=0,
            power_usage=Reason.PERMISSION,
            clock_reduction_reasons=(),
        ),
        "too hot",
        {"ecc": Reason.TIMEOUT},
    )
    assert describe([reading]) == (
        "3  id not read  name not read\n"
        "   memory absent (unsupported) used of absent (unsupported), compute utilization absent (partitioned), "
        "temperature 0 °C, power usage absent (permission), power limit absent (unsupported), "
        "clock reduction reasons none\n"
        "   unhealthy: too hot; check not read: ecc (timeout)\n"
    )


def test_no_cards_no_text() -> None:
    assert describe([]) == ""
