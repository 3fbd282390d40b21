"""What one pod may see of a snapshot: its own shares and partitions, and the cards that were given to it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from devicemanager.model.allocation import Mode
from devicemanager.model.figures import BY_NAME, Figure, Figures
from devicemanager.model.reasons import Reason
from devicemanager.model.usage import PeerSnapshot, SliceDevice, SliceUsage, SnapshotCard
from devicemanager.rules import device_ids


@dataclass(frozen=True, slots=True)
class Grant:
    """One card, or one partition of it, however many of the pod's containers hold it.

    Attributes:
        card_id: The card's id; an id no snapshot knows stays as the allocation spells it.
        units: Name of each container that holds it -> how much of the card it was given; None where unknown.
        profile: Of the partition, as the allocation names it.
    """

    card_id: str
    partition_id: str | None
    mode: Mode
    index: int | None
    units: Mapping[str, int | None]
    profile: str | None

    @property
    def id(self) -> str:
        """Under which it is listed: the partition's own, else the card's."""
        return self.partition_id or self.card_id


def agreed(one: SnapshotCard, other: SnapshotCard) -> SnapshotCard:
    """The figures on which two cards with the same id agree; a figure in which they differ is ``invalid_data``.

    Which of the two a pod was given is unknown, so a figure that differs is not shown.
    """

    figures = {
        name: one.figures[name] if one.figures[name] == other.figures[name] else Reason.INVALID_DATA
        for name in BY_NAME
    }
    return SnapshotCard(
        id=one.id,
        index=one.index if one.index == other.index else None,
        name=one.name if one.name == other.name else None,
        figures=Figures(**figures),
        unhealthy=one.unhealthy if one.unhealthy is other.unhealthy else Reason.INVALID_DATA,
        unhealthy_reason=one.unhealthy_reason if one.unhealthy_reason == other.unhealthy_reason else None,
        pci_bus_id=one.pci_bus_id if one.pci_bus_id == other.pci_bus_id else None,
    )


@dataclass(frozen=True, slots=True)
class View:
    """One manufacturer's part of a snapshot, as one pod may see it.

    Attributes:
        cards: By id, what all of one id agree on; those with a made-up id, or an address for one, left out.
        shares: (container, card id) -> the pod's own records on cards; None where shares were not measured.
        partitions: Partition id -> the records the pod may see.
        answered: Card id -> the reasons (memory, compute) for which a share without a record is unknown.
        unanswered: The reason for both on cards that ``answered`` does not name.
    """

    cards: Mapping[str, SnapshotCard]
    shares: Mapping[tuple[str, str], Sequence[SliceUsage]] | None
    partitions: Mapping[str, Sequence[SliceUsage]]
    answered: Mapping[str, tuple[Reason | None, Reason | None]]
    unanswered: Reason

    @classmethod
    def of(cls, manufacturer: str, pod_uid: str, snapshot: PeerSnapshot) -> "View":
        cards: dict[str, SnapshotCard] = {}
        for card in snapshot.cards.get(manufacturer, ()):
            if not device_ids.is_provisional(card.id) and device_ids.pci_address(card.id) is None:
                cards[card.id] = agreed(cards[card.id], card) if card.id in cards else card
        shares: dict[tuple[str, str], list[SliceUsage]] = {}
        partitions: dict[str, list[SliceUsage]] = {}
        records = (snapshot.slices or {}).get(manufacturer, ())
        for record in (*records, *snapshot.partitions.get(manufacturer, ())):
            if record.partition_id is not None and record.pod_uid in ("", pod_uid):
                # A device manager that reads partitions but knows no pods leaves the UID out.
                partitions.setdefault(record.partition_id, []).append(record)
            elif record.partition_id is None and record.pod_uid == pod_uid:
                shares.setdefault((record.container, record.card_id), []).append(record)
        return cls(
            cards=cards,
            shares=None if snapshot.slices is None else shares,
            partitions=partitions,
            answered=_answered(snapshot.slice_devices.get(manufacturer, ())),
            unanswered=snapshot.slices_reason or Reason.UNSUPPORTED,
        )

    def canonical_id(self, card_id: str, partition_id: str | None) -> str:
        """The id under which the snapshot lists the card that the allocation means; else the allocation's own.

        Only a vendor's id names a card. A PCI address does not: the allocation is written on a pod, its tenant may
        be able to write there, and the addresses of all cards of a machine are guessed in a few hundred tries.
        """
        if card_id in self.cards or partition_id != card_id:
            return card_id
        parents = {record.card_id for record in self.partitions.get(card_id, ())}
        return parents.pop() if len(parents) == 1 else card_id

    def partition(self, grant: Grant) -> SliceUsage | None:
        """The one record of this partition on its card; None where there is none, or more than one."""
        records = self.partitions.get(grant.partition_id or "", ())
        own = [
            record
            for record in records
            if record.card_id == grant.card_id and (not record.container or record.container in grant.units)
        ]
        different = {replace(record, pod_uid="", container="", profile=None) for record in own}
        if len(different) != 1:
            return None
        profiles = {record.profile for record in own if record.profile is not None}
        return replace(different.pop(), profile=profiles.pop() if len(profiles) == 1 else None)

    def slices(self, grant: Grant) -> tuple[Figure, Figure]:
        """Memory in MiB and compute in percent of the card, summed over the pod's containers that share it."""
        shares = [self._slice(container, grant.card_id) for container in sorted(grant.units)]
        return _sum(memory for memory, _ in shares), _sum(utilization for _, utilization in shares)

    def _slice(self, container: str, card_id: str) -> tuple[Figure, Figure]:
        records = () if self.shares is None else self.shares.get((container, card_id), ())
        if len(records) > 1:
            return Reason.INVALID_DATA, Reason.INVALID_DATA
        memory_reason, utilization_reason = self.answered.get(card_id, (None, None))
        if records:
            memory, utilization = records[0].memory_used_mib, records[0].utilization_percent
            return _explained(memory, memory_reason), _explained(utilization, utilization_reason)
        if card_id not in self.answered:
            return self.unanswered, self.unanswered
        return memory_reason or 0, utilization_reason or 0


NOTHING: Final = View({}, None, {}, {}, Reason.NOT_REPORTED)
"""What a pod sees without a snapshot."""


def _answered(devices: Iterable[SliceDevice]) -> dict[str, tuple[Reason | None, Reason | None]]:
    """Why shares of each card are unknown. For a card listed twice, one reason is enough."""
    answered: dict[str, tuple[Reason | None, Reason | None]] = {}
    for device in devices:
        memory, utilization = answered.get(device.card_id, (None, None))
        answered[device.card_id] = (
            _first_by_name(memory, device.memory_reason),
            _first_by_name(utilization, device.utilization_reason),
        )
    return answered


def _first_by_name(*reasons: Reason | None) -> Reason | None:
    return min((reason for reason in reasons if reason is not None), default=None)


def _explained(figure: Figure, reason: Reason | None) -> Figure:
    """The figure; if its record leaves it out, the card's reason, if it has one."""
    return reason if figure is Reason.NOT_REPORTED and reason is not None else figure


def _sum(figures: Iterable[Figure]) -> Figure:
    """The sum; absent when one of them is, for the first reason by name where they differ."""
    figures = tuple(figures)
    reasons = sorted({figure for figure in figures if isinstance(figure, Reason)})
    return reasons[0] if reasons else sum(figure for figure in figures if not isinstance(figure, Reason))
