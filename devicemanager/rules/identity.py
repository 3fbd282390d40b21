"""Identifies cards. An id is the vendor's, or visibly provisional; two cards never share one.

A position in the library's order is never an identity: the order changes when a card leaves the bus or comes back.
Figures are shown under a vendor's id only if the card gave that id in the same reading, or the PCI address at which
it was last read. A card without any answer has no figures; it stays listed under its last id, as long as nothing
contradicts that it is still the card at that index.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from devicemanager.model.accelerator import Card, DeviceKey, Reading
from devicemanager.rules.device_ids import is_provisional, provisional_id

NO_ORDER: Final[Mapping[int, str]] = MappingProxyType({})
"""For when the order is not known, or no longer valid."""


def identify(
    readings: Sequence[Reading],
    known: Iterable[Card],
    bus_addresses: Collection[str],
    order: Mapping[int, str] = NO_ORDER,
) -> tuple[Reading, ...]:
    """Give every reading of one sample a unique id, and the name and address last known of that card.

    Args:
        readings: One per card, in the library's order; ``Card.id`` is None where the card gave none.
        known: Cards with the vendor's ids as earlier samples read them, those counted last first.
        bus_addresses: Where the bus has cards of this vendor, ``dddd:bb:dd.f``; empty if that is not known.
        order: Index -> vendor's id, as it was when the library last counted as many cards as now.

    Returns:
        The readings in the same order. A card's id is, in this order: the one it gave; the one last read at the PCI
        address that it gave; for one without any answer, the one ``order`` has at its index, unless another card of
        this sample shows that the order has changed, or the bus that the card is gone; ``pci:<address>`` if its
        address is known, or if it is the only one unknown and exactly one address is unclaimed; ``index:<n>``.
        When two cards give the same id, the first in the library's order has it, one with figures before one
        without, and the other gets a provisional one: figures must not be shown under another card's id.
    """
    memory: dict[str, Card] = {}
    for known_card in known:
        if known_card.id is not None:
            memory.setdefault(known_card.id, known_card)
    cards = dict(_with_id(readings))
    _recall_by_address(readings, cards, memory)
    _recall_by_order(readings, cards, memory, bus_addresses, order)
    taken = {str(card.id) for card in cards.values()}
    unidentified = [position for position in range(len(readings)) if position not in cards]
    addresses = _addresses(readings, cards, unidentified, bus_addresses)
    for position in unidentified:
        card = _provisional(readings[position].card, addresses.get(position), taken)
        taken.add(str(card.id))
        cards[position] = card
    return tuple(
        reading if cards[position] is reading.card else replace(reading, card=cards[position])
        for position, reading in enumerate(readings)
    )


def order_of(readings: Iterable[Reading]) -> dict[int, str]:
    """Index -> id of those that :func:`identify` gave an id of the vendor's."""
    cards = (reading.card for reading in readings)
    return {card.index: card.id for card in cards if card.id is not None and not is_provisional(card.id)}


def _with_id(readings: Sequence[Reading]) -> Iterator[tuple[int, Card]]:
    """Cards that gave an id; those with figures first, because one without may only repeat an earlier id."""
    taken: set[str] = set()
    for with_figures in (True, False):
        for position, reading in enumerate(readings):
            card = reading.card
            if card.id is not None and card.id not in taken and reading.answered is with_figures:
                taken.add(card.id)
                yield position, card


def _recall_by_address(readings: Sequence[Reading], cards: dict[int, Card], memory: Mapping[str, Card]) -> None:
    taken = {card.id for card in cards.values()}
    at_address: dict[str | None, Card] = {}
    for known_card in memory.values():
        if known_card.pci_bus_id is not None:
            at_address.setdefault(known_card.pci_bus_id, known_card)  # of two at one address, the last
    for position, reading in enumerate(readings):
        card = at_address.get(reading.card.pci_bus_id)
        if reading.card.id is None and card is not None and card.id not in taken:
            taken.add(card.id)
            cards[position] = _recalled(card, reading.card)


def _recall_by_order(
    readings: Sequence[Reading],
    cards: dict[int, Card],
    memory: Mapping[str, Card],
    bus_addresses: Collection[str],
    order: Mapping[int, str],
) -> None:
    if not _order_is_unchanged(order, readings, cards):
        return
    taken = {card.id for card in cards.values()}
    for position, reading in enumerate(readings):
        card = memory.get(order.get(reading.card.index, ""))
        without_answer = not reading.answered and reading.unhealthy_reason is not None
        nameless = reading.card.id is None and reading.card.pci_bus_id is None
        if card is None or card.id in taken or not (without_answer and nameless):
            continue
        if not bus_addresses or card.pci_bus_id is None or card.pci_bus_id in bus_addresses:
            taken.add(card.id)
            cards[position] = _recalled(card, reading.card)


def _order_is_unchanged(order: Mapping[int, str], readings: Sequence[Reading], cards: Mapping[int, Card]) -> bool:
    """Whether indexes mean the same cards as before, as far as this sample shows."""
    index_of = {card_id: index for index, card_id in order.items()}
    for position, reading in enumerate(readings):
        index = reading.card.index
        card = cards.get(position)
        if card is not None:
            moved = index_of.get(str(card.id), index) != index or order.get(index, card.id) != card.id
        else:  # an unknown address belongs to another card than the one that was at this index
            moved = reading.card.pci_bus_id is not None and index in order
        if moved:
            return False
    return True


def _recalled(known: Card, card: Card) -> Card:
    return replace(
        known,
        index=card.index,
        name=card.name or known.name,
        pci_bus_id=card.pci_bus_id or known.pci_bus_id,
    )


def _addresses(
    readings: Sequence[Reading],
    cards: Mapping[int, Card],
    unidentified: Sequence[int],
    bus_addresses: Collection[str],
) -> dict[int, str]:
    """Addresses of the cards without an id: their own, or the only address left for the only card left."""
    own = {
        position: address
        for position in unidentified
        if (address := readings[position].card.pci_bus_id) is not None
    }
    claimed = {card.pci_bus_id for card in cards.values()} | set(own.values())
    unclaimed = set(bus_addresses) - claimed
    without_address = [position for position in unidentified if position not in own]
    # A bus without a card that was read may lack the unidentified one, too: it proves nothing.
    if len(without_address) == 1 and len(unclaimed) == 1 and claimed.issubset(bus_addresses):
        own[without_address[0]] = unclaimed.pop()
    return own


def _provisional(card: Card, address: str | None, taken: Collection[str]) -> Card:
    if address is not None and (by_address := provisional_id(address)) not in taken:
        return replace(card, id=by_address, pci_bus_id=address)
    by_index = DeviceKey(index=card.index).text
    while by_index in taken:
        by_index += "'"
    return replace(card, id=by_index)
