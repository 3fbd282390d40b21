"""The order of the lines of a collector process. Pure.

``hello``, then for ever: ``begin``, then for each card ``card`` and ``reading``, then ``end``.
"""

from collections.abc import Collection

from devicemanager.errors import DocumentError
from devicemanager.model.accelerator import Card
from devicemanager.node.deadlines import Phase
from devicemanager.wire.collector_lines import Announced, Begin, End, Failed, Hello, Line, Read


class CollectorProtocol:
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
