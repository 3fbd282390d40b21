"""From what one tick read to the readings of one sample."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest

from devicemanager.model.accelerator import Card, Reading, Reason
from devicemanager.model.figures import Figures
from devicemanager.node.tick import (
    LOST,
    Tick,
    Unreached,
    anonymous,
    assemble,
    earlier_beginning,
    remember,
    with_partitions,
)
from devicemanager.rules.identity import NO_ORDER
from devicemanager.wire.collector_lines import Read
from tests import devices


def read(index: int, card_id: str | None = None) -> Reading:
    return devices.reading(Card(index, card_id or f"GPU-{index}"), compute_utilization=5)


def hung(index: int) -> Reading:
    return Reading.unreadable(Card(index), Reason.TIMEOUT, "did not answer")


def known(*indexes: int) -> list[Card]:
    return [Card(index, f"GPU-{index}", "H100", None) for index in indexes]


def sample(
    read_: Sequence[Reading],
    quarantined: Sequence[Reading] = (),
    *,
    count: int | None,
    known_: Sequence[Card] = (),
    unreached: Unreached = LOST,
    order: Mapping[int, str] = NO_ORDER,
) -> list[tuple[str | None, Reason | int]]:
    readings = assemble(
        {reading.card.index: reading for reading in read_},
        quarantined,
        count=count,
        known=known_,
        bus_addresses=(),
        order=order,
        unreached=unreached,
    ).readings
    return [(reading.card.id, reading.figures.number("compute_utilization")) for reading in readings]


def test_the_librarys_order_is_kept_whatever_order_they_came_in() -> None:
    assert sample([read(2), read(0)], [hung(1)], count=3) == [
        ("GPU-0", 5),
        ("index:1", Reason.TIMEOUT),
        ("GPU-2", 5),
    ]


def test_a_quarantined_card_that_was_read_after_all_is_read() -> None:
    assert sample([read(0), read(1)], [hung(1)], count=2) == [("GPU-0", 5), ("GPU-1", 5)]


def test_a_quarantined_card_that_is_no_longer_counted_is_lost_under_its_id() -> None:
    assert sample([read(0)], [hung(1)], count=1, known_=known(0, 1)) == [("GPU-0", 5), ("GPU-1", Reason.LOST)]


def test_a_counted_card_that_was_not_read_is_listed() -> None:
    assert sample([read(0)], count=2) == [("GPU-0", 5), ("index:1", Reason.TRANSIENT_DRIVER_ERROR)]


def test_cards_that_an_earlier_process_read_and_that_are_no_longer_counted_are_lost() -> None:
    """Two processes read one tick, and in between the library found other cards behind the same indexes."""
    rows = sample([read(0, "GPU-1"), read(1, "GPU-2"), read(2, "GPU-2")], count=2, known_=known(0, 1, 2))
    assert rows == [("GPU-1", 5), ("GPU-2", 5), ("GPU-0", Reason.LOST)]


def test_known_cards_that_left_come_last() -> None:
    rows = sample([read(0, "GPU-9")], count=1, known_=known(0, 1))
    assert rows == [("GPU-9", 5), ("GPU-0", Reason.LOST), ("GPU-1", Reason.LOST)]


def test_an_unfinished_tick_lists_what_it_did_not_come_to() -> None:
    crashed = Unreached(Reason.TRANSIENT_DRIVER_ERROR, "the collector crashed")
    rows = sample([read(0)], count=None, known_=known(0, 1), unreached=crashed)
    assert rows == [("GPU-0", 5), ("GPU-1", Reason.TRANSIENT_DRIVER_ERROR)]


def test_a_card_without_figures_keeps_its_id_while_the_order_holds() -> None:
    order = {0: "GPU-0", 1: "GPU-1"}
    assert sample([read(0)], [hung(1)], count=2, known_=known(0, 1), order=order)[1] == ("GPU-1", Reason.TIMEOUT)
    assert sample([read(0)], [hung(1)], count=2, known_=known(0, 1)) == [
        ("GPU-0", 5),
        ("index:1", Reason.TIMEOUT),
        ("GPU-1", Reason.LOST),
    ]


def test_beside_a_card_without_a_name_none_is_said_to_be_no_longer_counted() -> None:
    """It may be the very card that is missing."""
    nameless = devices.reading(Card(0))
    listing = assemble({0: nameless}, [], count=1, known=known(0), bus_addresses=())
    assert [reading.unhealthy_reason for reading in listing.readings] == [
        None,
        "no card that the library counts says that it is this one",
    ]
    assert listing.order == {}


NOW = datetime(2026, 8, 12, 9, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("wall", "expected"),
    [
        pytest.param(NOW - timedelta(seconds=90), NOW - timedelta(seconds=90), id="both agree"),
        pytest.param(NOW + timedelta(hours=1), NOW - timedelta(seconds=90), id="the clock was put back since"),
        pytest.param(NOW - timedelta(hours=1), NOW - timedelta(hours=1), id="the machine slept, or it was put on"),
    ],
)
def test_a_beginning_is_the_earlier_by_both_clocks(wall: datetime, expected: datetime) -> None:
    """Timestamps serve readers that know no Age, and must not make figures younger."""
    assert earlier_beginning(wall, 10.0, NOW, 100.0) == expected


def test_the_bus_is_read_only_for_unidentified_cards() -> None:
    assert not anonymous({0: read(0)}, [], 1)
    assert anonymous({0: read(0)}, [hung(1)], 2)
    assert anonymous({0: read(0)}, [], 2)
    assert not anonymous({0: read(0)}, [], None)


AT: Final = [f"0000:{bus:02x}:00.0" for bus in range(0x1B, 0x1F)]


def counted(*addresses: str | None) -> dict[int, Reading]:
    return {
        index: devices.reading(Card(index, f"GPU-{index}", None, address))
        for index, address in enumerate(addresses)
    }


@pytest.mark.parametrize(
    ("addresses", "known_", "taken", "expected"),
    [
        pytest.param(AT[:2], [], AT[:3], [AT[2]], id="one is missing"),
        pytest.param(AT[:2], [], AT[:4], AT[2:4], id="two are"),
        pytest.param([AT[0], AT[2]], [], AT[:3], [AT[1]], id="one in the middle"),
        pytest.param(AT[:2], [], AT[:2], [], id="none is"),
        pytest.param(AT[:2], [], [], [], id="not known which must be counted"),
        pytest.param([AT[0], None], [], AT[:3], [], id="one does not say where it is"),
        pytest.param([AT[0], "0000:99:00.0"], [], AT[:3], [], id="one is where the bus has none"),
        pytest.param(AT[:2], [Card(2, "GPU-2", None, AT[2])], AT[:3], [], id="one that is known is listed as lost"),
    ],
)
def test_a_card_that_its_driver_has_taken_and_the_library_does_not_count_is_listed_by_its_address(
    addresses: list[str | None], known_: list[Card], taken: list[str], expected: list[str]
) -> None:
    listing = assemble(
        counted(*addresses), (), count=2, known=known_, bus_addresses=(), unreached=LOST, taken=taken
    )
    added = [reading for reading in listing.readings if (reading.card.id or "").startswith("pci:")]
    assert [reading.card.pci_bus_id for reading in added] == expected
    assert [reading.card.id for reading in added] == [f"pci:{address}" for address in expected]
    assert len({reading.card.index for reading in listing.readings}) == len(listing.readings)
    for reading in added:
        assert reading.figures == Figures(Reason.LOST)
        assert reading.unhealthy_reason == "the library does not count this card, though its driver has taken it"
    assert set(listing.order) == {0, 1}
    assert all(reading.answered for reading in listing.readings[:2])


def test_a_partition_that_says_that_it_is_larger_than_its_card_is_not_believed() -> None:
    """The others, and its card, are."""
    small, large = (Card(0, name, parent="GPU-0", profile="1g.10gb") for name in ("MIG-1", "MIG-2"))
    tick = Tick(0.0, datetime(2026, 1, 1, tzinfo=UTC))
    card = devices.reading(Card(0, "GPU-0"))
    tick.add(Read(card, (small, large)))
    tick.add(Read(devices.partition(small, memory_total=10 << 30, memory_used=5 << 30)))
    tick.add(Read(devices.partition(large, memory_total=81 << 30, memory_used=5 << 30)))
    (listed,) = with_partitions([card], tick, (), {})
    assert listed.figures == card.figures
    found = [
        (one.figures["memory_total"], one.figures["memory_used"], one.figures["compute_utilization"])
        for one in listed.partitions
    ]
    assert found == [(10 << 30, 5 << 30, 40), (Reason.INVALID_DATA, Reason.INVALID_DATA, 40)]


def test_only_the_vendors_ids_are_remembered() -> None:
    cards = [Card(0, "GPU-0"), Card(1, "index:1"), Card(2, "pci:0000:01:00.0"), Card(3, None)]
    assert remember(Reading.unreadable(card, Reason.LOST, "x") for card in cards) == (Card(0, "GPU-0"),)
