"""Which figures of a fresh snapshot belong to one pod's cards, and nobody else's.

A card given whole or shared shows the card's figures. A share or a partition never does, because those hold other
tenants' too: it shows what was measured of itself, or nothing. A mode that is not known may be such a share.
Temperature, power and health are the board's.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from devicemanager.model.accelerator import Figure, Reason
from devicemanager.model.allocation import AllocatedCard, Allocation, Mode
from devicemanager.model.usage import AcceleratorUsage, PeerSnapshot, SliceUsage, SnapshotCard
from devicemanager.rules import device_ids
from devicemanager.rules.units import percent_used


@dataclass(frozen=True, slots=True)
class _Grant:
    """One card, or one partition of it, however many of the pod's containers hold it.

    Attributes:
        card_id: The card's id; an id no snapshot knows stays as the allocation spells it.
        containers: The names of the containers that hold it.
    """

    card_id: str
    partition_id: str | None
    mode: Mode
    index: int | None
    containers: frozenset[str]

    @property
    def id(self) -> str:
        return self.partition_id or self.card_id


@dataclass(frozen=True, slots=True)
class _Share:
    """The four figures that depend on how a card was given."""

    memory_mib: Figure
    memory_usage_mib: Figure
    memory_utilization_percent: Figure
    cores_utilization_percent: Figure


_UNKNOWN_PARTITION: Final = _Share(*(Reason.PARTITIONED,) * 4)
_UNKNOWN_MODE: Final = _Share(*(Reason.VERSION_SKEW,) * 4)


def entries(
    manufacturer: str, pod_uid: str, allocation: Allocation, snapshot: PeerSnapshot
) -> tuple[AcceleratorUsage, ...]:
    """One entry for each card and each partition that a pod was given of one manufacturer.

    None is left out: one that the snapshot does not carry has every figure absent ``not_reported``.

    Args:
        manufacturer: Only this one's cards of the allocation and of the snapshot count.
        pod_uid: Whose slices count.
        allocation: The pod's cards, all manufacturers'.
        snapshot: A fresh one.
    """
    view = _View.of(manufacturer, pod_uid, snapshot)
    given = (card for card in allocation.measured if card.manufacturer == manufacturer)
    return tuple(_entry(manufacturer, grant, view) for grant in _grants(given, view))


def _grants(given: Iterable[AllocatedCard], view: "_View") -> Sequence[_Grant]:
    grants: dict[str, _Grant] = {}
    for card in given:
        partition_id = card.partition_id if card.mode is Mode.PARTITIONED else None
        card_id = view.canonical_id(card.id, partition_id)
        grant = _Grant(card_id, partition_id, card.mode, card.index, frozenset((card.container,)))
        known = grants.get(grant.id)
        grants[grant.id] = grant if known is None else _joined(known, grant)
    return tuple(grants.values())


def _joined(one: _Grant, other: _Grant) -> _Grant:
    """Two grants of one id, which is listed once.

    Where their modes differ the narrower one counts, which shows the least. A partition that is said to be on two
    cards is on neither.
    """
    indexes = [index for index in (one.index, other.index) if index is not None]
    return replace(
        one,
        card_id=one.card_id if one.card_id == other.card_id else one.id,
        mode=max(one.mode, other.mode),
        index=min(indexes, default=None),
        containers=one.containers | other.containers,
    )


def _entry(manufacturer: str, grant: _Grant, view: "_View") -> AcceleratorUsage:
    card = view.cards.get(grant.card_id)
    board = card or _not_reported(grant.card_id)
    share = _share(grant, card, view)
    return AcceleratorUsage(
        id=grant.id,
        manufacturer=manufacturer,
        index=grant.index,
        name=board.name,
        mode=grant.mode.label,
        memory_mib=share.memory_mib,
        memory_usage_mib=share.memory_usage_mib,
        memory_utilization_percent=share.memory_utilization_percent,
        cores_utilization_percent=share.cores_utilization_percent,
        temperature_celsius=board.temperature_celsius,
        power_usage_watts=board.power_usage_watts,
        unhealthy=board.unhealthy,
    )


def _not_reported(card_id: str) -> SnapshotCard:
    return SnapshotCard(card_id, None, None, *(Reason.NOT_REPORTED,) * 7)


def _share(grant: _Grant, card: SnapshotCard | None, view: "_View") -> _Share:
    if grant.mode is Mode.PARTITIONED:
        record = view.partition(grant)
        if record is None:
            return _UNKNOWN_PARTITION
        return _of_share(record.memory_total_mib, record.memory_used_mib, record.cores_percent)
    if card is None:
        return _Share(*(Reason.NOT_REPORTED,) * 4)
    if grant.mode is Mode.UNKNOWN:
        return _UNKNOWN_MODE
    if grant.mode is Mode.SLICED:
        return _of_share(card.memory_mib, *view.slices(grant))
    return _Share(
        card.memory_mib, card.memory_usage_mib, card.memory_utilization_percent, card.cores_utilization_percent
    )


def _of_share(total: Figure, used: Figure, cores: Figure) -> _Share:
    """A share's figures, with the percentage of the two published numbers."""
    return _Share(total, used, percent_used(used, total), cores)


@dataclass(frozen=True, slots=True)
class _View:
    """One manufacturer's part of a snapshot, as one pod may see it.

    Attributes:
        cards: By id, the first of equal ids; those with a made-up id left out.
        pci_ids: PCI address -> id, where one card alone claims the address.
        shares: (container, card id) -> the pod's own records on cards; None where shares were not measured.
        partitions: Partition id -> the records the pod may see.
        answered: Card id -> the reasons (memory, compute) for which a share without a record is unknown.
        unanswered: The reason for both on cards that ``answered`` does not name.
    """

    cards: Mapping[str, SnapshotCard]
    pci_ids: Mapping[str, str]
    shares: Mapping[tuple[str, str], Sequence[SliceUsage]] | None
    partitions: Mapping[str, Sequence[SliceUsage]]
    answered: Mapping[str, tuple[Reason | None, Reason | None]]
    unanswered: Reason

    @classmethod
    def of(cls, manufacturer: str, pod_uid: str, snapshot: PeerSnapshot) -> "_View":
        cards: dict[str, SnapshotCard] = {}
        for card in snapshot.cards.get(manufacturer, ()):
            if not device_ids.is_provisional(card.id):
                cards.setdefault(card.id, card)
        shares: dict[tuple[str, str], list[SliceUsage]] = {}
        partitions: dict[str, list[SliceUsage]] = {}
        for record in (snapshot.slices or {}).get(manufacturer, ()):
            if record.partition_id is not None and record.pod_uid in ("", pod_uid):
                # A device manager that reads partitions but knows no pods leaves the UID out.
                partitions.setdefault(record.partition_id, []).append(record)
            elif record.partition_id is None and record.pod_uid == pod_uid:
                shares.setdefault((record.container, record.card_id), []).append(record)
        return cls(
            cards=cards,
            pci_ids=_unique_pci_ids(cards.values()),
            shares=None if snapshot.slices is None else shares,
            partitions=partitions,
            answered={
                device.card_id: (device.memory_reason, device.cores_reason)
                for device in snapshot.slice_devices.get(manufacturer, ())
            },
            unanswered=snapshot.slices_reason or Reason.UNSUPPORTED,
        )

    def canonical_id(self, card_id: str, partition_id: str | None) -> str:
        """The id under which the snapshot lists the card that the allocation means; else the allocation's own."""
        if card_id in self.cards:
            return card_id
        if partition_id == card_id:
            parents = {record.card_id for record in self.partitions.get(card_id, ())}
            return parents.pop() if len(parents) == 1 else card_id
        address = device_ids.pci_address(card_id)
        return card_id if address is None else self.pci_ids.get(address, card_id)

    def partition(self, grant: _Grant) -> SliceUsage | None:
        """The one record of this partition on its card; None where there is none, or more than one."""
        records = self.partitions.get(grant.partition_id or "", ())
        own = {
            replace(record, pod_uid="", container="")
            for record in records
            if record.card_id == grant.card_id and (not record.container or record.container in grant.containers)
        }
        return own.pop() if len(own) == 1 else None

    def slices(self, grant: _Grant) -> tuple[Figure, Figure]:
        """Memory in MiB and compute in percent of the card, summed over the pod's containers that share it."""
        shares = [self._slice(container, grant.card_id) for container in sorted(grant.containers)]
        return _sum(memory for memory, _ in shares), _sum(cores for _, cores in shares)

    def _slice(self, container: str, card_id: str) -> tuple[Figure, Figure]:
        records = () if self.shares is None else self.shares.get((container, card_id), ())
        if len(records) > 1:
            return Reason.INVALID_DATA, Reason.INVALID_DATA
        memory_reason, cores_reason = self.answered.get(card_id, (None, None))
        if records:
            memory, cores = records[0].memory_used_mib, records[0].cores_percent
            return _explained(memory, memory_reason), _explained(cores, cores_reason)
        if card_id not in self.answered:
            return self.unanswered, self.unanswered
        return memory_reason or 0, cores_reason or 0


def _unique_pci_ids(cards: Iterable[SnapshotCard]) -> dict[str, str]:
    ids: dict[str, list[str]] = {}
    for card in cards:
        address = device_ids.pci_address(card.pci_bus_id)
        if address is not None:
            ids.setdefault(address, []).append(card.id)
    return {address: found[0] for address, found in ids.items() if len(found) == 1}


def _explained(figure: Figure, reason: Reason | None) -> Figure:
    """The figure; one that its record leaves out is absent for the card's reason, where the card has one."""
    return reason if figure is Reason.NOT_REPORTED and reason is not None else figure


def _sum(figures: Iterable[Figure]) -> Figure:
    """The sum; absent when one of them is, for the first reason by name where they differ."""
    figures = tuple(figures)
    reasons = sorted({figure for figure in figures if isinstance(figure, Reason)})
    return reasons[0] if reasons else sum(figure for figure in figures if not isinstance(figure, Reason))
