"""Which card is which. An id is the vendor's, or visibly none; two cards never share one.

A card that does not answer cannot say who it is, but it must stay listed under the id that its users know. What is
known then: what earlier samples read, which ids and bus addresses the others of this sample have claimed, and which
addresses the bus lists.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from devicemanager.model.accelerator import Card, Reading

_BY_ADDRESS: Final = "pci:"
_BY_INDEX: Final = "index:"


def index_key(index: int) -> str:
    """The key of a card that is known by nothing but its place in the library's order: ``index:3``."""
    return f"{_BY_INDEX}{index}"


def identify(
    readings: Sequence[Reading], known: Iterable[Card], bus_addresses: Collection[str]
) -> tuple[Reading, ...]:
    """Give every reading of one sample a unique id, and the name and address last known of that card.

    Args:
        readings: One per card, in the library's order; ``Card.id`` is None where the card could not say.
        known: Cards with the vendor's ids as earlier samples read them, those counted last first.
        bus_addresses: Where the bus has cards of this vendor, ``dddd:bb:dd.f``.

    Returns:
        The readings in the same order. A card's id is, in this order: what it said; what was last known at its
        address, or at its index; ``pci:<address>`` if it is the only one unknown and exactly one address is
        unclaimed, or if its own address is known; ``index:<n>``. When two cards say the same id, the first in the
        library's order has it and the other has none, for the figures of neither may be shown as the other's.
    """
    taken: set[str] = set()
    cards: dict[int, Card] = {}
    for place, reading in enumerate(readings):
        if reading.card.id is not None and reading.card.id not in taken:
            taken.add(reading.card.id)
            cards[place] = reading.card
    remembered = _Memory(known, taken)
    for place, reading in enumerate(readings):
        if reading.card.id is None and (card := remembered.recall(reading.card)) is not None:
            taken.add(str(card.id))
            cards[place] = card
    strangers = [place for place in range(len(readings)) if place not in cards]
    addresses = _addresses(readings, cards, strangers, bus_addresses)
    for place in strangers:
        card = _stranger(readings[place].card, addresses.get(place), taken)
        taken.add(str(card.id))
        cards[place] = card
    return tuple(replace(reading, card=cards[place]) for place, reading in enumerate(readings))


class _Memory:
    """Cards of earlier samples whose ids nobody has claimed in this one."""

    def __init__(self, known: Iterable[Card], taken: Collection[str]) -> None:
        self._cards: list[Card] = []
        claimed = set(taken)
        for card in known:
            if card.id is not None and card.id not in claimed:
                claimed.add(card.id)
                self._cards.append(card)

    def recall(self, card: Card) -> Card | None:
        """The known card that this one must be; each is recalled once."""
        for candidate in self._cards:
            if _same(candidate, card):
                self._cards.remove(candidate)
                return replace(
                    candidate,
                    index=card.index,
                    name=card.name or candidate.name,
                    pci_bus_id=card.pci_bus_id or candidate.pci_bus_id,
                )
        return None


def _same(known: Card, card: Card) -> bool:
    """By address where both have one: an index is an order, and changes when a card leaves the bus."""
    if known.pci_bus_id is not None and card.pci_bus_id is not None:
        return known.pci_bus_id == card.pci_bus_id
    return known.index == card.index


def _addresses(
    readings: Sequence[Reading], cards: Mapping[int, Card], strangers: Sequence[int], bus_addresses: Collection[str]
) -> dict[int, str]:
    """Addresses of the cards that are still nobody: their own, or the only one left for the only one without."""
    own = {place: address for place in strangers if (address := readings[place].card.pci_bus_id) is not None}
    claimed = {card.pci_bus_id for card in cards.values()} | set(own.values())
    unclaimed = set(bus_addresses) - claimed
    placeless = [place for place in strangers if place not in own]
    if len(placeless) == 1 and len(unclaimed) == 1:
        own[placeless[0]] = unclaimed.pop()
    return own


def _stranger(card: Card, address: str | None, taken: Collection[str]) -> Card:
    if address is not None and (by_address := _BY_ADDRESS + address) not in taken:
        return replace(card, id=by_address, pci_bus_id=address)
    by_index = index_key(card.index)
    while by_index in taken:
        by_index += "'"
    return replace(card, id=by_index)
