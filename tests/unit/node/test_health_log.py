"""What is logged of devices that become unhealthy, change, flap, move, are identified or vanish."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import structlog
from structlog.testing import LogCapture

from devicemanager.model.accelerator import Card, Reading, Reason
from devicemanager.node.health_log import HealthLog
from tests import devices
from tests.timing import FakeClock

CARDS = [Card(index, f"GPU-{index}") for index in range(4)]
PARTITION = Card(0, "MIG-1", parent="GPU-0", profile="1g.10gb")


class Harness:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.capture = LogCapture()
        self.health = HealthLog(self.clock, structlog.wrap_logger(None, processors=[self.capture]))

    def see(self, *readings: Reading) -> list[dict[str, Any]]:
        """What is logged of one sample, 15 s after the one before."""
        before = len(self.capture.entries)
        self.clock.advance(15.0)
        self.health.update(readings)
        return [dict(entry) for entry in self.capture.entries[before:]]

    def said(self, *readings: Reading) -> list[tuple[str, str | None, str | None]]:
        """The same in short: event, id and reason."""
        return [(line["event"], line["id"], line.get("reason")) for line in self.see(*readings)]


@pytest.fixture
def harness() -> Harness:
    return Harness()


def well(*cards: Card) -> Sequence[Reading]:
    return [devices.reading(card) for card in cards]


def lost(card: Card) -> Reading:
    return Reading.unreadable(card, Reason.LOST, "lost: code 15")


def failing(card: Card, errors: int = 3) -> Reading:
    return devices.reading(card, f"{errors} uncorrected ECC errors in device memory")


def test_a_device_that_is_well_from_the_start_is_not_mentioned(harness: Harness) -> None:
    assert harness.said(*well(*CARDS)) == []


def test_the_beginning_and_the_end_are_logged_once_each(harness: Harness) -> None:
    harness.see(*well(*CARDS))
    assert harness.see(lost(CARDS[0]), *well(*CARDS[1:])) == [
        {
            "event": "device_unhealthy",
            "log_level": "warning",
            "index": 0,
            "id": "GPU-0",
            "reason": "lost",
            "detail": "lost: code 15",
        }
    ]
    for _ in range(100):
        assert harness.see(lost(CARDS[0]), *well(*CARDS[1:])) == []
    assert harness.see(*well(*CARDS)) == [
        {"event": "device_healthy", "log_level": "info", "index": 0, "id": "GPU-0"}
    ]
    assert harness.see(*well(*CARDS)) == []


def test_a_device_unhealthy_from_the_start_is_said_to_be(harness: Harness) -> None:
    assert harness.said(failing(CARDS[0])) == [("device_unhealthy", "GPU-0", "health_check")]


def test_a_count_that_grows_is_no_news_and_another_reason_is(harness: Harness) -> None:
    assert harness.said(failing(CARDS[0])) == [("device_unhealthy", "GPU-0", "health_check")]
    assert harness.said(failing(CARDS[0], 4)) == []
    assert harness.said(lost(CARDS[0])) == [("device_unhealthy", "GPU-0", "lost")]
    assert harness.said(*well(CARDS[0])) == [("device_healthy", "GPU-0", None)]


def test_all_devices_that_fail_at_once_are_named(harness: Harness) -> None:
    many = [Card(index, f"GPU-{index}") for index in range(16)]
    assert [card_id for _, card_id, _ in harness.said(*map(lost, many))] == [card.id for card in many]


def test_a_device_that_flaps_is_logged_once_a_minute_and_ends_with_the_truth(harness: Harness) -> None:
    lines = []
    for _ in range(120):
        lines += harness.said(lost(CARDS[0]))
        lines += harness.said(*well(CARDS[0]))
    assert 50 <= len(lines) <= 4 + 60 + 1
    for _ in range(8):
        lines += harness.said(lost(CARDS[0]))
    assert lines[-1] == ("device_unhealthy", "GPU-0", "lost")
    assert harness.said(lost(CARDS[0])) == []


def test_one_that_flaps_does_not_silence_others(harness: Harness) -> None:
    for _ in range(40):
        harness.see(lost(CARDS[0]), *well(CARDS[1]))
        harness.see(*well(*CARDS[:2]))
    assert ("device_unhealthy", "GPU-1", "lost") in harness.said(*well(CARDS[0]), lost(CARDS[1]))


def test_a_device_that_moves_is_the_same_one(harness: Harness) -> None:
    harness.see(*well(CARDS[0]), failing(CARDS[1]))
    assert harness.said(failing(replace(CARDS[1], index=0))) == []
    assert harness.said(*well(replace(CARDS[1], index=0))) == [("device_healthy", "GPU-1", None)]


def test_a_device_that_had_no_id_goes_on_under_the_one_it_gets(harness: Harness) -> None:
    unknown = Reading.unreadable(Card(1, "index:1"), Reason.TIMEOUT, "no answer")
    assert harness.said(*well(CARDS[0]), unknown) == [("device_unhealthy", "index:1", "timeout")]
    assert harness.said(*well(*CARDS[:2])) == [("device_healthy", "GPU-1", None)]


def test_a_device_that_is_identified_and_still_unhealthy_is_not_said_again(harness: Harness) -> None:
    unknown = Reading.unreadable(Card(1, "pci:0000:3b:00.0"), Reason.TIMEOUT, "no answer")
    harness.see(unknown)
    assert harness.said(Reading.unreadable(CARDS[1], Reason.TIMEOUT, "no answer")) == []


def test_a_device_that_is_no_longer_listed_is_forgotten(harness: Harness) -> None:
    harness.see(lost(CARDS[0]), *well(CARDS[1]))
    assert harness.said(*well(CARDS[1])) == []
    assert harness.said(*well(CARDS[0], CARDS[1])) == []
    assert harness.said(lost(CARDS[0])) == [("device_unhealthy", "GPU-0", "lost")]


def test_a_partition_is_named_with_its_card(harness: Harness) -> None:
    (card,) = well(CARDS[0])
    hung = replace(card, partitions=(Reading.unreadable(PARTITION, Reason.TIMEOUT, "no answer"),))
    (line,) = harness.see(hung)
    assert (line["event"], line["id"], line["parent"], line["reason"]) == (
        "device_unhealthy",
        "MIG-1",
        "GPU-0",
        "timeout",
    )
    (line,) = harness.see(replace(card, partitions=(devices.partition(PARTITION),)))
    assert (line["event"], line["id"], line["parent"]) == ("device_healthy", "MIG-1", "GPU-0")


def test_a_lost_card_is_not_said_once_more_for_each_of_its_partitions(harness: Harness) -> None:
    gone = replace(lost(CARDS[0]), partitions=(Reading.unreadable(PARTITION, Reason.LOST, "lost"),))
    assert harness.said(gone) == [("device_unhealthy", "GPU-0", "lost")]
