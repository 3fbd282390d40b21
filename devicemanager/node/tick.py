"""Assembles the lines of one tick into the readings of one sample. Pure.

A tick survives the process that began it: what was read before the process hung or crashed is kept, and the next
process completes the tick.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from devicemanager.model.accelerator import Card, DeviceKey, Reading, Reason
from devicemanager.rules import plausibility
from devicemanager.rules.device_ids import is_provisional, provisional_id
from devicemanager.rules.identity import NO_ORDER, identify, order_of
from devicemanager.rules.plausibility import CARDS_LIMIT
from devicemanager.wire.collector_lines import Read


@dataclass(slots=True)
class Tick:
    """What one tick has read so far.

    Attributes:
        started_monotonic_s: When the first process began to read, by its own report; the age counts from here.
        started_at: That same moment on the wall clock, aware UTC.
        readings: Index -> reading of a card, the latest where two processes read the same card.
        partitions: Key -> reading of a partition.
        listed: Id of a card -> the partitions that it reports.
        unanswered_s: How long devices have been waited for without an answer.
        timeouts: How many devices that were.
        renumbered: Whether indexes mean other cards than in the sample before.
        killed: Whether somebody else ended a process that was reading.
        noticed_late_s: How long after its start this program took note of it. That lies with neither cards nor
            period: the program was stopped, or had no processor.
    """

    started_monotonic_s: float
    started_at: datetime
    readings: dict[int, Reading] = field(default_factory=dict)
    partitions: dict[DeviceKey, Reading] = field(default_factory=dict)
    listed: dict[str, tuple[Card, ...]] = field(default_factory=dict)
    unanswered_s: float = 0.0
    timeouts: int = 0
    renumbered: bool = False
    killed: bool = False
    noticed_late_s: float = 0.0

    def add(self, read: Read) -> None:
        """Keep what one device gave."""
        card = read.reading.card
        if card.parent is not None:
            self.partitions[card.key] = read.reading
            return
        self.readings[card.index] = read.reading
        if card.id is not None and read.partitions is not None:
            self.listed[card.id] = read.partitions

    @property
    def devices(self) -> tuple[Reading, ...]:
        """All that was read: cards, then partitions."""
        return (*self.readings.values(), *self.partitions.values())


def earlier_beginning(wall: datetime, began_s: float, now: datetime, now_s: float) -> datetime:
    """The wall-clock time when a tick began: as reported, or ``now_s - began_s`` seconds ago if that is earlier.

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
    """Why existing cards were not read in this tick, without a fault of their own."""

    reason: Reason
    fault: str


_UNLISTED = Unreached(Reason.TRANSIENT_DRIVER_ERROR, "the card does not say which partitions it has")
LOST = Unreached(Reason.LOST, "the library no longer counts this card")
NOT_IDENTIFIED = Unreached(Reason.LOST, "no card that the library counts says that it is this one")
UNCOUNTED = Unreached(Reason.LOST, "the library does not count this card, though its driver has taken it")
NOT_READ = Unreached(Reason.TRANSIENT_DRIVER_ERROR, "the collector left this card out")


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
    quarantined: Iterable[Reading],
    *,
    count: int | None,
    known: Sequence[Card],
    bus_addresses: Collection[str],
    order: Mapping[int, str] = NO_ORDER,
    unreached: Unreached = LOST,
    taken: Collection[str] = (),
) -> Listing:
    """All readings of one sample: cards that were read, that did not answer, and that are known from before.

    Args:
        read: Index -> reading of this tick.
        quarantined: How cards that were not touched are listed.
        count: How many cards the library counts; None when the tick ended before that was said.
        known: Cards of earlier samples.
        bus_addresses: Where the bus has cards of this vendor.
        order: Index -> id as of the last sample with as many cards; empty where indexes mean other cards now.
        unreached: How known cards are listed that are not among the others.
        taken: Where the bus has cards that the library must count.
    """
    by_index = {reading.card.index: reading for reading in quarantined} | dict(read)
    if count is not None:  # a process before this one may have counted more
        by_index = {index: reading for index, reading in by_index.items() if index < count}
    for index in range(count or 0):
        if index not in by_index:
            by_index[index] = Reading.unreadable(Card(index), NOT_READ.reason, NOT_READ.fault)
    present = identify([by_index[index] for index in sorted(by_index)], known, bus_addresses, order)
    listed = {str(reading.card.id) for reading in present}
    missing = [card for card in known if card.id not in listed]
    if unreached is LOST and any(map(is_provisional, listed)):
        unreached = NOT_IDENTIFIED
    lost = [Reading.unreadable(card, unreached.reason, unreached.fault) for card in missing]
    readings = (*present, *lost)
    return Listing((*readings, *_uncounted(present, readings, taken)), order_of(present))


def _uncounted(
    present: Sequence[Reading], listed: Sequence[Reading], taken: Collection[str]
) -> tuple[Reading, ...]:
    """Cards that the library should count and does not, by their address.

    None if it is not certain that they are not among those that it does count: one does not say where it is, or is
    where the bus has none.
    """
    counted = {reading.card.pci_bus_id for reading in present}
    if not counted.issubset(taken):
        return ()
    known = {reading.card.pci_bus_id for reading in listed}
    missing = [address for address in taken if address not in known][: CARDS_LIMIT - len(listed)]
    first = max((reading.card.index for reading in listed), default=-1) + 1
    return tuple(
        Reading.unreadable(
            Card(index, provisional_id(address), pci_bus_id=address), UNCOUNTED.reason, UNCOUNTED.fault
        )
        for index, address in enumerate(missing, first)
    )


def with_partitions(
    cards: Iterable[Reading],
    tick: Tick,
    quarantined: Iterable[Reading],
    known: Mapping[str, Sequence[Card]],
    unreached: Unreached = NOT_READ,
) -> tuple[Reading, ...]:
    """The readings of cards, each with those of its partitions: all that it says it has, else all that it had.

    Args:
        cards: As :func:`assemble` lists them.
        tick: What was read.
        quarantined: How partitions that were not touched are listed.
        known: Id of a card -> its partitions in the sample before.
        unreached: Why a partition that its card has was not read, if nothing is wrong with either.
    """
    read = {reading.card.key: reading for reading in quarantined} | tick.partitions

    def completed(card: Reading) -> Reading:
        card_id = str(card.card.id)
        listed = tick.listed.get(card_id)
        partitions = known.get(card_id, ()) if listed is None else listed
        if not partitions:
            return card
        why = unreached if listed is not None else _UNLISTED
        if not card.answered and card.unhealthy_reason is not None:
            reason = next(iter(card.figures.reasons), why.reason)
            why = Unreached(reason, card.unhealthy_reason)
        return replace(
            card,
            partitions=tuple(
                replace(found, figures=plausibility.on_card(found.figures, card.figures))
                if (found := read.get(one.key))
                else Reading.unreadable(one, why.reason, why.fault)
                for one in partitions
            ),
        )

    return tuple(map(completed, cards))


def partitions_of(readings: Iterable[Reading]) -> dict[str, tuple[Card, ...]]:
    """Id of a card -> its partitions, of the cards that have any."""
    return {
        str(reading.card.id): tuple(partition.card for partition in reading.partitions)
        for reading in readings
        if reading.partitions
    }


def anonymous(read: Mapping[int, Reading], quarantined: Iterable[Reading], count: int | None) -> bool:
    """Whether a card is not identified, so that the addresses on the bus are needed."""
    readings = {reading.card.index: reading for reading in quarantined} | dict(read)
    return len(readings) < (count or 0) or any(reading.card.id is None for reading in readings.values())


def remember(readings: Iterable[Reading]) -> tuple[Card, ...]:
    """The cards known after a sample: those with a vendor's id, in order, a bounded number."""
    cards = (reading.card for reading in readings)
    return tuple(card for card in cards if card.id is not None and not is_provisional(card.id))[:CARDS_LIMIT]
