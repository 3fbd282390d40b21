"""Which accelerators a pod was given."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final


class Mode(IntEnum):
    """How a card was given. The annotation carries the number, answers carry the name."""

    NONE = 0
    EXCLUSIVE = 1
    SHARED = 2
    SLICED = 3
    PARTITIONED = 4
    VISIBILITY = 5
    UNKNOWN = 255
    """Any other number: a mode that the allocator learnt after this was written. Not on the wire."""

    @property
    def label(self) -> str:
        """The name as answers spell it: ``Exclusive``."""
        return self.name.capitalize()


UNITS_PER_CARD: Final = 1_600_000
"""Into how many units the allocator divides a card."""


@dataclass(frozen=True, slots=True)
class AllocatedCard:
    """One card given to one container.

    Attributes:
        manufacturer: As the allocator spells it (``nvidia``).
        id: The card's vendor UUID; for a partition, the parent card's.
        index: The allocator's ordinal, for display only; None where it gives none.
        mode: ``UNKNOWN`` for a number that is none of ours: whether others hold the card too is then in doubt.
        container: Name of the container that holds it.
        partition_id: UUID of the partition when ``mode`` is ``PARTITIONED`` and the allocator recorded it.
        profile: Of the partition (``1g.10gb``), where the allocator recorded it.
        units: How much of the card was given, of ``UNITS_PER_CARD``; None where the allocator gives none.
    """

    manufacturer: str
    id: str
    index: int | None
    mode: Mode
    container: str
    partition_id: str | None = None
    profile: str | None = None
    units: int | None = None


@dataclass(frozen=True, slots=True)
class Allocation:
    """All cards of one pod.

    Attributes:
        cards: In container order, then in the allocator's order. Not de-duplicated.
        problem: One line when the annotation, or a part of it, could not be understood; what was understood stays.
    """

    cards: tuple[AllocatedCard, ...] = ()
    problem: str | None = None

    @property
    def measured(self) -> tuple[AllocatedCard, ...]:
        """The cards that an answer lists: those held, not those merely made visible."""
        return tuple(card for card in self.cards if card.mode is not Mode.VISIBILITY)

    @property
    def manufacturers(self) -> tuple[str, ...]:
        """Whose device managers to ask, each once, in order of first appearance."""
        return tuple(dict.fromkeys(card.manufacturer for card in self.measured))
