"""From the lines of one tick to the readings of one sample. Pure.

A tick survives the process that began it: what was read before a card made the process hang or crash is kept, and
the process that comes after completes it.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from devicemanager.model.accelerator import Card, Reading, Reason
from devicemanager.rules.device_ids import is_provisional
from devicemanager.rules.identity import NO_ORDER, identify, order_of
from devicemanager.rules.plausibility import CARDS_LIMIT


@dataclass(slots=True)
class Tick:
    """What one tick has read so far.

    Attributes:
        started_monotonic_s: When the first process began to read, as it says itself; the age counts from here.
        started_at: That same moment on the wall clock, aware UTC.
        readings: Index -> reading, the latest where two processes read the same card.
        in_vain_s: How long first touches of cards have waited for nothing.
    """

    started_monotonic_s: float
    started_at: datetime
    readings: dict[int, Reading] = field(default_factory=dict)
    in_vain_s: float = 0.0


def earlier_beginning(wall: datetime, began_s: float, now: datetime, now_s: float) -> datetime:
    """The wall-clock time of a moment that lies ``now_s - began_s`` seconds back, by two accounts the earlier.

    A wall clock may have been set in between, and the monotonic one stands still while a machine sleeps. The
    earlier of the two never makes figures look younger than they are.

    Args:
        wall: What the process read then.
        began_s: That moment, monotonic.
        now: The wall clock now.
        now_s: The monotonic clock now.
    """
    return min(wall, now - timedelta(seconds=now_s - began_s))


@dataclass(frozen=True, slots=True)
class Unreached:
    """Why cards that exist were not read in this tick, when none of them is to blame."""

    reason: Reason
    fault: str


LOST = Unreached(Reason.LOST, "the library no longer counts this card")
UNNAMED = Unreached(Reason.LOST, "no card that the library counts says that it is this one")
UNCLAIMED = Unreached(Reason.TRANSIENT_DRIVER_ERROR, "the collector left this card out")


@dataclass(frozen=True, slots=True)
class Listing:
    """The cards of one sample.

    Attributes:
        readings: In the library's order, cards that it no longer counts last; ids are unique.
        order: Index -> vendor's id of those that it does count.
    """

    readings: tuple[Reading, ...]
    order: Mapping[int, str]


def assemble(
    read: Mapping[int, Reading],
    quarantine: Iterable[Reading],
    *,
    count: int | None,
    known: Sequence[Card],
    bus_addresses: Collection[str],
    order: Mapping[int, str] = NO_ORDER,
    unreached: Unreached = LOST,
) -> Listing:
    """All readings of one sample: those read, those that did not answer, and those known that nobody mentioned.

    Args:
        read: Index -> reading of this tick.
        quarantine: How cards that were not touched are listed.
        count: How many cards the library counts; None when the tick ended before that was said.
        known: Cards of earlier samples.
        bus_addresses: Where the bus has cards of this vendor.
        order: Index -> id as of the last sample with as many cards; empty where indexes mean other cards now.
        unreached: How known cards are listed that are not among the others.
    """
    by_index = {reading.card.index: reading for reading in quarantine} | dict(read)
    if count is not None:  # a process before this one may have counted more
        by_index = {index: reading for index, reading in by_index.items() if index < count}
    for index in range(count or 0):
        by_index.setdefault(index, Reading.unreadable(Card(index), UNCLAIMED.reason, UNCLAIMED.fault))
    present = identify([by_index[index] for index in sorted(by_index)], known, bus_addresses, order)
    listed = {str(reading.card.id) for reading in present}
    missing = [card for card in known if card.id not in listed]
    if unreached is LOST and any(map(is_provisional, listed)):
        unreached = UNNAMED
    lost = (Reading.unreadable(card, unreached.reason, unreached.fault) for card in missing)
    return Listing((*present, *lost), order_of(present))


def anonymous(read: Mapping[int, Reading], quarantine: Iterable[Reading], count: int | None) -> bool:
    """Whether the bus must be asked for addresses, because a card cannot say who it is."""
    readings = {reading.card.index: reading for reading in quarantine} | dict(read)
    return len(readings) < (count or 0) or any(reading.card.id is None for reading in readings.values())


def remember(readings: Iterable[Reading]) -> tuple[Card, ...]:
    """Who is known after a sample: the cards with an id of the vendor's, those counted first, a bounded number."""
    cards = (reading.card for reading in readings)
    return tuple(card for card in cards if card.id is not None and not is_provisional(card.id))[:CARDS_LIMIT]
