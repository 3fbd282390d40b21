"""Who a card is when it cannot say so, and that no two cards are ever the same one."""

from dataclasses import replace

import pytest

from devicemanager.model.accelerator import Card, Reading, Reason
from devicemanager.model.figures import Figures
from devicemanager.rules.identity import identify, order_of
from tests import devices

ORDER = {0: "GPU-0", 1: "GPU-1", 2: "GPU-2"}


def unread(index: int, pci: str | None = None) -> Reading:
    return Reading.unreadable(Card(index, pci_bus_id=pci), Reason.TIMEOUT, "did not answer")


def read(index: int, card_id: str, pci: str | None = None) -> Reading:
    return devices.reading(Card(index, card_id, "H100", pci or f"0000:0{index}:00.0"))


def known(index: int) -> Card:
    return Card(index, f"GPU-{index}", "H100", f"0000:0{index}:00.0")


def ids(readings: tuple[Reading, ...]) -> list[str | None]:
    return [reading.card.id for reading in readings]


def test_what_a_card_says_is_its_id() -> None:
    readings = (read(0, "GPU-0"), read(1, "GPU-1"))
    assert identify(readings, [known(1), known(0)], ["0000:07:00.0"]) == readings


def test_a_card_that_does_not_answer_keeps_the_id_of_its_index() -> None:
    result = identify([read(0, "GPU-0"), unread(1)], [known(0), known(1)], [], ORDER)
    assert result[1].card == known(1)
    assert result[1].figures["temperature"] is Reason.TIMEOUT


def nameless(index: int, pci: str | None = None) -> Reading:
    """Figures of a card that cannot say who it is."""
    return devices.reading(Card(index, None, "H100", pci))


@pytest.mark.parametrize(
    ("readings", "bus", "order", "expected"),
    [
        pytest.param([read(0, "GPU-0"), nameless(1)], [], ORDER, "index:1", id="figures"),
        pytest.param([nameless(1)], ["0000:01:00.0"], ORDER, "pci:0000:01:00.0", id="figures, one address left"),
        pytest.param([read(0, "GPU-0"), nameless(1, "0000:01:00.0")], [], {}, "GPU-1", id="figures, own address"),
        pytest.param([nameless(0), unread(1)], [], ORDER, "GPU-1", id="unread beside one without a name"),
        pytest.param([read(0, "GPU-0"), unread(1)], [], {}, "index:1", id="the order means nothing any more"),
        pytest.param(
            [read(0, "GPU-9", "0000:09:00.0"), unread(1)], [], ORDER, "index:1", id="a new card before it"
        ),
        pytest.param([nameless(0, "0000:09:00.0"), unread(1)], [], ORDER, "index:1", id="a new address before it"),
        pytest.param([nameless(0, "0000:02:00.0"), unread(1)], [], ORDER, "index:1", id="another card moved"),
        pytest.param([unread(1)], ["0000:00:00.0", "0000:02:00.0"], ORDER, "index:1", id="gone from the bus"),
        pytest.param([unread(1)], ["0000:00:00.0", "0000:01:00.0"], ORDER, "GPU-1", id="still on the bus"),
    ],
)
def test_an_index_is_never_the_identity_of_figures(
    readings: list[Reading], bus: list[str], order: dict[int, str], expected: str
) -> None:
    """An id of the vendor's needs the id or the address itself; a card without figures may keep its last."""
    assert ids(identify(readings, [known(0), known(1), known(2)], bus, order))[-1] == expected


def test_an_unidentified_card_without_an_error_takes_no_id_by_its_index() -> None:
    """That a card is well is a statement about that card, as a figure is."""
    well = Reading(Card(1), Figures(Reason.UNSUPPORTED))
    assert ids(identify([read(0, "GPU-0"), well], [known(0), known(1)], [], ORDER))[1] == "index:1"


def test_of_two_cards_with_one_id_the_one_with_figures_has_it() -> None:
    """What a card that hangs was before must not take the id from the card that now says it."""
    remembered = replace(unread(0), card=known(1))
    assert ids(identify([remembered, read(1, "GPU-1")], [known(1)], [])) == ["pci:0000:01:00.0", "GPU-1"]


def test_of_two_cards_known_at_one_address_the_one_counted_last_is_recalled() -> None:
    former = Card(0, "GPU-7", "H100", "0000:01:00.0")
    assert ids(identify([nameless(0, "0000:01:00.0")], [known(1), former], [])) == ["GPU-1"]


def test_the_order_of_a_sample_is_that_of_the_vendors_ids() -> None:
    assert order_of([read(0, "GPU-0"), read(1, "index:1"), unread(2), read(3, "GPU-3")]) == {0: "GPU-0", 3: "GPU-3"}


def test_an_address_says_more_than_an_index() -> None:
    result = identify([unread(0, "0000:01:00.0"), unread(1, "0000:00:00.0")], [known(0), known(1)], [])
    assert ids(result) == ["GPU-1", "GPU-0"]
    assert [reading.card.index for reading in result] == [0, 1]


def test_a_card_that_moved_up_is_not_taken_for_the_one_that_left() -> None:
    result = identify([read(0, "GPU-1", "0000:01:00.0"), unread(1)], [known(0), known(1)], [], ORDER)
    assert ids(result) == ["GPU-1", "index:1"]


@pytest.mark.parametrize(
    ("readings", "bus", "expected"),
    [
        pytest.param(
            [read(0, "GPU-0"), unread(1)], ["0000:00:00.0", "0000:01:00.0"], "pci:0000:01:00.0", id="one left"
        ),
        pytest.param([read(0, "GPU-0"), unread(1)], ["0000:00:00.0"], "index:1", id="none left"),
        pytest.param([read(0, "GPU-0"), unread(1)], ["0000:08:00.0", "0000:01:00.0"], "index:1", id="two left"),
        pytest.param([unread(0), unread(1)], ["0000:01:00.0"], "index:1", id="one left for two"),
        pytest.param(
            [read(0, "GPU-0"), unread(1)], ["0000:08:00.0"], "index:1", id="one left that may be another's"
        ),
        pytest.param([unread(0), unread(1, "0000:05:00.0")], [], "pci:0000:05:00.0", id="its own address"),
    ],
)
def test_a_card_never_read(readings: list[Reading], bus: list[str], expected: str) -> None:
    assert ids(identify(readings, [], bus))[1] == expected


def test_the_only_address_left_becomes_the_cards() -> None:
    result = identify([unread(0)], [], ["0000:01:00.0"])
    assert result[0].card.pci_bus_id == "0000:01:00.0"


def test_of_two_cards_with_one_id_the_first_has_it_and_none_is_lost() -> None:
    result = identify([read(0, "GPU-0"), read(1, "GPU-0"), read(2, "GPU-0", "0000:01:00.0")], [], [])
    assert ids(result) == ["GPU-0", "pci:0000:01:00.0", "index:2"]
    assert len(result) == 3


def test_two_cards_with_one_id_stay_apart_in_any_sample() -> None:
    twins = [read(0, "GPU-0"), read(1, "GPU-0")]
    first = identify(twins, [], [])
    assert identify(twins, [reading.card for reading in first], []) == first


def test_a_vendor_that_uses_our_form_of_id_takes_nothing_from_another_card() -> None:
    result = identify([read(0, "index:1"), unread(1)], [], [])
    assert len(set(ids(result))) == 2


def test_a_known_card_is_recalled_once() -> None:
    twins = [unread(0), replace(unread(0), card=Card(0))]
    assert len(set(ids(identify(twins, [known(0)], [], ORDER)))) == 2


def test_an_id_that_is_remembered_twice_is_recalled_once() -> None:
    twice = [known(0), replace(known(0), pci_bus_id="0000:01:00.0")]
    assert ids(identify([unread(0), unread(1, "0000:01:00.0")], twice, [], {0: "GPU-0"})) == [
        "GPU-0",
        "pci:0000:01:00.0",
    ]
