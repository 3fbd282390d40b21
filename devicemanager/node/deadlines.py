"""How long each line of a collector process may take. Pure."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

SHORTEST_CARD_DEADLINE_S: Final = 0.5
LONGEST_CARD_DEADLINE_S: Final = 2.0

FIRST_TOUCH_S: Final = 10.0
"""For the first figure of a card in a process. Where nothing keeps the driver loaded, that touch loads it and wakes
the card up, once per process; 2.5 s a card was seen."""

UNANSWERED_FIRST_TOUCHES: Final = 2
"""First touches of a tick that may time out after their whole time; further ones get what any card then gets."""


def card_deadline_s(period_s: float) -> float:
    """The default deadline for reading one card: half the period, 0.5 s to 2 s.

    Healthy drivers answer in milliseconds, degraded ones were seen to take 1.9 s. Half a period is left for a new
    process to read the other cards in the same tick. Below half a second, load on the machine alone would time out.
    """
    return min(LONGEST_CARD_DEADLINE_S, max(SHORTEST_CARD_DEADLINE_S, period_s / 2))


class Phase(StrEnum):
    """What a process is doing, as messages say it."""

    OPENING = "opening the library"
    RESTING = "resting between samples"
    COUNTING = "counting cards"
    READING = "reading a card"


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Deadlines in seconds for one line each.

    Attributes:
        open_s: From the start of the process to its ``hello``, and on to its first ``begin``.
        card_s: For one card.
        period_s: Between two samples.
        first_touch_s: For one card of which the process has no figure yet; at most ``open_s``, at least ``card_s``.
    """

    open_s: float
    card_s: float
    period_s: float
    first_touch_s: float = FIRST_TOUCH_S

    def deadline_s(self, phase: Phase, unanswered_s: float = 0.0) -> float:
        """How long the next line may take.

        Args:
            phase: What the process is doing.
            unanswered_s: How long devices of this tick have been waited for without an answer so far.
        """
        match phase:
            case Phase.OPENING:
                return self.open_s
            case Phase.RESTING:
                return self.period_s + max(self.card_s, LONGEST_CARD_DEADLINE_S)
            case Phase.COUNTING:
                return max(self.card_s, LONGEST_CARD_DEADLINE_S)
            case Phase.READING:
                return self._card_s(unanswered_s)

    def first_touch_deadline_s(self, unanswered_s: float) -> float:
        """How long the first figure of a card may take in a process; ``unanswered_s`` as above."""
        longest_s = min(self.first_touch_s, self.open_s)
        return max(self._card_s(unanswered_s), min(longest_s, UNANSWERED_FIRST_TOUCHES * longest_s - unanswered_s))

    def _card_s(self, unanswered_s: float) -> float:
        """How long a card may take: its usual time, until others were waited for in vain for a whole period.

        Only time that ends without an answer is limited in sum. A driver may answer slowly for every card, but
        sixteen that never answer must not hold up the figures of the others for a minute. One that was given up too
        early is probed alone, with all its time.
        """
        left_s = max(self.period_s, 2 * self.card_s) - unanswered_s
        return max(min(SHORTEST_CARD_DEADLINE_S, self.card_s), min(self.card_s, left_s))
