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

FIRST_TOUCH_S: Final = 10.0
"""For the first figure of a card in a process. Where nothing keeps the driver loaded, that touch loads it and wakes
the card up, once per process; 2.5 s a card was seen."""

IN_VAIN_FIRST_TOUCHES: Final = 2
"""So many first touches of a tick may end in nothing after their whole time; the others get a card's usual time."""


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
        first_touch_s: For one card of which the process has no figure yet; at most ``open_s``, at least ``card_s``.
    """

    open_s: float
    card_s: float
    period_s: float
    first_touch_s: float = FIRST_TOUCH_S

    def deadline_s(self, phase: Phase) -> float:
        """How long the next line may take."""
        match phase:
            case Phase.OPENING:
                return self.open_s
            case Phase.RESTING:
                return self.period_s + max(self.card_s, LONGEST_CARD_DEADLINE_S)
            case Phase.COUNTING | Phase.READING:
                return self.card_s

    def first_touch_deadline_s(self, in_vain_s: float) -> float:
        """How long the first figure of a card may take in a process.

        Time that ends in a figure is not limited in sum: a driver may wake every card slowly. Time that ends in
        nothing is, or sixteen cards that never answer would hold up the first sample for minutes.

        Args:
            in_vain_s: How long first touches of this tick have waited for nothing so far.
        """
        longest_s = min(self.first_touch_s, self.open_s)
        return max(self.card_s, min(longest_s, IN_VAIN_FIRST_TOUCHES * longest_s - in_vain_s))


class Conversation:
    """What one process has said so far."""

    def __init__(self, manufacturer: str, skipped: Collection[int], started_s: float) -> None:
        """Expect a ``hello``.

        Args:
            manufacturer: The only one that the process may speak for.
            skipped: Indexes of cards that it was told not to touch.
            started_s: Monotonic time before which the process cannot have said or read anything.
        """
        self._manufacturer = manufacturer
        self.skipped = frozenset(skipped)
        self.phase = Phase.OPENING
        self.announced: Card | None = None
        self._greeted = False
        self._touched: set[int] = set()
        self._opened: set[int] = set()
        self._began_s = started_s

    @property
    def first_touch(self) -> bool:
        """Whether a card is being read of which this process has no figure yet."""
        return self.announced is not None and self.announced.index not in self._opened

    def accept(self, line: Line, now_s: float) -> None:
        """Take the next line.

        Args:
            line: As it came.
            now_s: Monotonic time, which all processes of the machine share.

        Raises:
            DocumentError: It is out of order, or not about what it should be about.
        """
        match line:
            case Hello(manufacturer=manufacturer) if not self._greeted:
                if manufacturer != self._manufacturer:
                    raise DocumentError(f"the collector speaks for {manufacturer}, not for {self._manufacturer}")
                self._greeted = True
            case Begin(began_s) if self._greeted and self.phase in (Phase.OPENING, Phase.RESTING):
                self._begin(began_s, now_s)
                self._touched.clear()
                self.phase = Phase.COUNTING
            case Announced(card) if self.phase is Phase.COUNTING:
                self._touch(card)
            case Read(reading) if self.announced is not None and reading.card.index == self.announced.index:
                self.announced = None
                self.phase = Phase.COUNTING
                if reading.answered:
                    self._opened.add(reading.card.index)
            case End() if self.phase is Phase.COUNTING:
                self.phase = Phase.RESTING
            case Failed():
                pass
            case _:
                raise DocumentError(f"the collector says {type(line).__name__.lower()} while {self.phase}")

    def _begin(self, began_s: float, now_s: float) -> None:
        """A moment that cannot be would make figures younger than they are, or older than their process."""
        if not self._began_s <= began_s <= now_s:
            raise DocumentError("the collector says that a sample began before its process, or is still to begin")
        self._began_s = began_s

    def _touch(self, card: Card) -> None:
        if card.index in self.skipped or card.index in self._touched:
            raise DocumentError(f"the collector reads card {card.index}, which it should not touch")
        self._touched.add(card.index)
        self.announced = card
        self.phase = Phase.READING
