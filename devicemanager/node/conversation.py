"""The order in which a collector process speaks, and how long each word may take. Pure.

``hello``, then for ever: ``begin``, then for each card ``card`` and ``reading``, then ``end``.
"""

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from devicemanager.errors import DocumentError
from devicemanager.model.accelerator import Card
from devicemanager.wire.collector_lines import Announced, Begin, End, Failed, Hello, Line, Read

SHORTEST_CARD_DEADLINE_S: Final = 0.5
LONGEST_CARD_DEADLINE_S: Final = 2.0


def card_deadline_s(period_s: float) -> float:
    """How long one card may take to be read, unless someone says otherwise: half the period, 0.5 s to 2 s.

    Healthy drivers answer in milliseconds, degraded ones were seen to take 1.9 s, and stuck ones take for ever; a
    card that is given up within half a period leaves the other half for starting anew and reading the others in the
    same tick. Below half a second a busy machine alone would make cards look stuck.
    """
    return min(LONGEST_CARD_DEADLINE_S, max(SHORTEST_CARD_DEADLINE_S, period_s / 2))


class Phase(StrEnum):
    """What a process is doing, named as a person would say it."""

    OPENING = "opening the library"
    RESTING = "resting between samples"
    COUNTING = "counting cards"
    READING = "reading a card"


@dataclass(frozen=True, slots=True)
class Patience:
    """Deadlines in seconds for one line each.

    Attributes:
        open_s: From the start of the process to its ``hello``, and on to its first ``begin``.
        card_s: For one card, and for anything else within a sample.
        period_s: Between two samples.
    """

    open_s: float
    card_s: float
    period_s: float

    def deadline_s(self, phase: Phase) -> float:
        """How long the next line may take."""
        match phase:
            case Phase.OPENING:
                return self.open_s
            case Phase.RESTING:
                return self.period_s + max(self.card_s, LONGEST_CARD_DEADLINE_S)
            case Phase.COUNTING | Phase.READING:
                return self.card_s


class Conversation:
    """What one process has said so far."""

    def __init__(self, manufacturer: str, skipped: Collection[int]) -> None:
        """Expect a ``hello``.

        Args:
            manufacturer: The only one that the process may speak for.
            skipped: Indexes of cards that it was told not to touch.
        """
        self._manufacturer = manufacturer
        self.skipped = frozenset(skipped)
        self.phase = Phase.OPENING
        self.announced: Card | None = None
        self._greeted = False
        self._touched: set[int] = set()

    def accept(self, line: Line) -> None:
        """Take the next line.

        Raises:
            DocumentError: It is out of order, or not about what it should be about.
        """
        match line:
            case Hello(manufacturer=manufacturer) if not self._greeted:
                if manufacturer != self._manufacturer:
                    raise DocumentError(f"the collector speaks for {manufacturer}, not for {self._manufacturer}")
                self._greeted = True
            case Begin() if self._greeted and self.phase in (Phase.OPENING, Phase.RESTING):
                self._touched.clear()
                self.phase = Phase.COUNTING
            case Announced(card) if self.phase is Phase.COUNTING:
                self._touch(card)
            case Read(reading) if self.announced is not None and reading.card.index == self.announced.index:
                self.announced = None
                self.phase = Phase.COUNTING
            case End() if self.phase is Phase.COUNTING:
                self.phase = Phase.RESTING
            case Failed():
                pass
            case _:
                raise DocumentError(f"the collector says {type(line).__name__.lower()} while {self.phase}")

    def _touch(self, card: Card) -> None:
        if card.index in self.skipped or card.index in self._touched:
            raise DocumentError(f"the collector reads card {card.index}, which it should not touch")
        self._touched.add(card.index)
        self.announced = card
        self.phase = Phase.READING
