"""What a pod's annotation may claim, where it is known from elsewhere who holds a device.

Whoever may write pods writes the annotation. The kubelet knows which devices it gave to which pod, and where that
of a device is known, only what both say counts.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final, TypeAlias

from devicemanager.model.allocation import AllocatedCard, Allocation

Holders: TypeAlias = Mapping[tuple[str, str], Collection[str]]
"""Manufacturer and id of a card or partition -> UIDs of the pods that hold it; not known of one that is missing."""

UNKNOWN: Final[Holders] = MappingProxyType({})
"""Of no device is it known: the annotation alone counts."""


def confirmed(allocation: Allocation, pod_uid: str, holders: Holders = UNKNOWN) -> Allocation:
    """The allocation without the devices that are known to be other pods' alone; its problem says how many."""
    cards = tuple(card for card in allocation.cards if _may_be(card, pod_uid, holders))
    lost = len(allocation.cards) - len(cards)
    if not lost:
        return allocation
    problem = f"{lost} of the devices that the annotation names were not given to this pod by the kubelet"
    return replace(allocation, cards=cards, problem="; ".join(filter(None, (allocation.problem, problem))))


def _may_be(card: AllocatedCard, pod_uid: str, holders: Holders) -> bool:
    """Whether nothing is known of who holds it, or that the pod does; of a partition, itself or else its card."""
    for device in filter(None, (card.partition_id, card.id)):
        held_by = holders.get((card.manufacturer, device))
        if held_by is not None:
            return pod_uid in held_by
    return True
