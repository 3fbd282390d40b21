"""The figures in a snapshot that belong to one pod's cards, and to no other pod.

A card given whole or shared shows the card's figures. A share or a partition does not, because those include other
tenants: it shows its own figures, or none. An unknown mode is treated as a share. Other figures, and health, are
the board's (``Scope``).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from devicemanager.model.allocation import UNITS_PER_CARD, AllocatedCard, Allocation, Mode
from devicemanager.model.figures import FIGURES, DeviceFigure, Figure, Figures, Scope
from devicemanager.model.reasons import Reason
from devicemanager.model.usage import AcceleratorUsage, PeerSnapshot, SliceUsage, SnapshotCard
from devicemanager.rules import plausibility
from devicemanager.rules.snapshot_view import NOTHING, Grant, View
from devicemanager.rules.units import percent_used

_SHARES: Final = tuple(spec.name for spec in FIGURES if spec.scope is Scope.SHARE)
"""The figures that depend on how a card was given."""


def entries(
    manufacturer: str, pod_uid: str, allocation: Allocation, snapshot: PeerSnapshot | Reason
) -> tuple[AcceleratorUsage, ...]:
    """One entry for each card and each partition that a pod was given of one manufacturer.

    None is left out: one that the snapshot does not carry has every figure absent ``not_reported``.

    Args:
        manufacturer: Only this one's cards of the allocation and of the snapshot count.
        pod_uid: Whose slices count.
        allocation: The pod's cards, all manufacturers'.
        snapshot: A fresh one; or why there is none, and every figure of every card is absent.
    """
    given = [card for card in allocation.measured if card.manufacturer == manufacturer]
    if isinstance(snapshot, Reason):
        return tuple(_absent(manufacturer, grant, snapshot) for grant in _grants(given, NOTHING))
    view = View.of(manufacturer, pod_uid, snapshot)
    return tuple(_entry(manufacturer, grant, view) for grant in _grants(given, view))


def _absent(manufacturer: str, grant: Grant, reason: Reason) -> AcceleratorUsage:
    return AcceleratorUsage(
        id=grant.id,
        manufacturer=manufacturer,
        index=grant.index,
        name=None,
        mode=grant.mode.label,
        figures=Figures(reason),
        unhealthy=reason,
        profile=grant.profile,
        memory_granted_mib=reason,
    )


def _grants(given: Iterable[AllocatedCard], view: View) -> Sequence[Grant]:
    grants: dict[str, Grant] = {}
    canonical: dict[tuple[str, str | None], str] = {}  # each is looked for once, however often it is given
    for card in given:
        partition_id = card.partition_id if card.mode is Mode.PARTITIONED else None
        named = card.id, partition_id
        card_id = canonical.get(named) or canonical.setdefault(named, view.canonical_id(*named))
        grant = Grant(card_id, partition_id, card.mode, card.index, {card.container: card.units}, card.profile)
        known = grants.get(grant.id)
        grants[grant.id] = grant if known is None else _joined(known, grant)
    return tuple(grants.values())


def _joined(one: Grant, other: Grant) -> Grant:
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
        units={**one.units, **other.units, **{name: None for name in one.units if _differ(one, other, name)}},
        profile=one.profile if one.profile == other.profile else None,
    )


def _differ(one: Grant, other: Grant, container: str) -> bool:
    """Whether a container is said to have been given two different amounts."""
    return container in other.units and one.units[container] != other.units[container]


def _entry(manufacturer: str, grant: Grant, view: View) -> AcceleratorUsage:
    card = view.cards.get(grant.card_id)
    board = card or SnapshotCard(grant.card_id)
    partition = view.partition(grant) if grant.mode is Mode.PARTITIONED else None
    figures = Figures(**{**board.figures, **_share(grant, card, partition, view)})
    return AcceleratorUsage(
        id=grant.id,
        manufacturer=manufacturer,
        index=grant.index,
        name=board.name,
        mode=grant.mode.label,
        figures=figures,
        unhealthy=board.unhealthy,
        unhealthy_reason=board.unhealthy_reason,
        profile=grant.profile or (partition.profile if partition is not None else None),
        memory_granted_mib=_granted(grant, figures.number("memory_total")),
    )


def _granted(grant: Grant, total: Figure) -> Figure:
    """What was given of the memory, in MiB: the capacity, but of a share its part, of which any is at least 1."""
    if grant.mode is not Mode.SLICED or isinstance(total, Reason):
        return total
    units = [amount for amount in grant.units.values() if amount is not None]
    if len(units) < len(grant.units):
        return Reason.NOT_REPORTED
    return max(min(sum(units), UNITS_PER_CARD) * total // UNITS_PER_CARD, 1)


def _share(
    grant: Grant, card: SnapshotCard | None, partition: SliceUsage | None, view: View
) -> Mapping[str, DeviceFigure]:
    """The figures that depend on how a card was given."""
    if grant.mode is Mode.PARTITIONED:
        if partition is None:
            return dict.fromkeys(_SHARES, Reason.PARTITIONED)
        return _of_share(partition.memory_total_mib, partition.memory_used_mib, partition.utilization_percent, card)
    if card is None:
        return {}
    if grant.mode is Mode.UNKNOWN:
        return dict.fromkeys(_SHARES, Reason.VERSION_SKEW)
    if grant.mode is Mode.SLICED:
        return _of_share(card.figures.number("memory_total"), *view.slices(grant), card)
    return {}


def _of_share(
    total: Figure, used: Figure, utilization: Figure, card: SnapshotCard | None
) -> Mapping[str, DeviceFigure]:
    """A share's figures, as far as its card can hold them; others are not measured of shares.

    The percentage is of the two published numbers.
    """
    own = plausibility.published(
        dict.fromkeys(_SHARES, Reason.UNSUPPORTED)
        | {
            "memory_total": total,
            "memory_used": used,
            "memory_utilization": percent_used(used, total),
            "compute_utilization": utilization,
        }
    )
    figures = own if card is None else plausibility.on_card(own, card.figures)
    return {name: figures[name] for name in _SHARES}
