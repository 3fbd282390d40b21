"""The order of the lines of a collector process. Pure.

``hello``, then for ever: ``begin``, then for each card ``card`` and ``reading``, followed by the same two lines for
each of its partitions, then ``end``.
"""

from typing import Final

from devicemanager.errors import DocumentError
from devicemanager.model.accelerator import Card, DeviceKey
from devicemanager.node.deadlines import Deadlines, Phase
from devicemanager.rules.plausibility import CARDS_LIMIT, PARTITIONS_LIMIT
from devicemanager.rules.selection import Selection
from devicemanager.wire.collector_lines import Announced, Begin, End, Failed, Hello, Line, Read

_OPENED_LIMIT: Final = 2 * (CARDS_LIMIT + PARTITIONS_LIMIT)
"""Keys of devices that have given a figure: each card by its index and by its id."""


class CollectorProtocol:
    """The state of the protocol with one process."""

    def __init__(self, manufacturer: str, selection: Selection, started_s: float) -> None:
        """Expect a ``hello``.

        Args:
            manufacturer: The only one that the process may report.
            selection: Which devices it may touch.
            started_s: Monotonic time before which the process cannot have read anything.
        """
        self._manufacturer = manufacturer
        self.selection = selection
        self.phase = Phase.OPENING
        self.announced: Card | None = None
        self.first_touch = False
        """Whether a device is being read of which this process has no figure yet."""
        self._greeted = False
        self._count_call: str | None = None
        self._touched: set[DeviceKey] = set()
        self._opened: set[DeviceKey] = set()
        self._partitions: tuple[Card, ...] = ()
        self._partitions_listed = 0
        self._began_s = started_s

    @property
    def doing(self) -> str:
        """What the process is doing, with the library's call where it is known."""
        if self.phase is Phase.COUNTING and self._count_call is not None:
            return f"{self.phase} ({self._count_call})"
        return self.phase

    def deadline_s(self, deadlines: Deadlines, unanswered_s: float = 0.0) -> float:
        """How long the next line may take; ``unanswered_s`` as of :meth:`Deadlines.deadline_s`."""
        if self.first_touch:
            return deadlines.first_touch_deadline_s(unanswered_s)
        return deadlines.deadline_s(self.phase, unanswered_s)

    def accept(self, line: Line, now_s: float) -> None:
        """Take the next line.

        Args:
            line: As it came.
            now_s: Monotonic time, which all processes of the machine share.

        Raises:
            DocumentError: It is out of order, or about another device than announced.
        """
        match line:
            case Hello(manufacturer=manufacturer, count_call=count_call) if not self._greeted:
                if manufacturer != self._manufacturer:
                    raise DocumentError(f"the collector speaks for {manufacturer}, not for {self._manufacturer}")
                self._greeted = True
                self._count_call = count_call
            case Begin(began_s) if self._greeted and self.phase in (Phase.OPENING, Phase.RESTING):
                self._begin(began_s, now_s)
            case Announced(card) if self.phase is Phase.COUNTING:
                self._touch(card)
            case Read(reading) if self.announced is not None and _is_same(reading.card, self.announced):
                self._read(line, self.announced)
            case End() if self.phase is Phase.COUNTING:
                self.phase = Phase.RESTING
            case Failed():
                pass
            case _:
                raise DocumentError(f"the collector says {type(line).__name__.lower()} while {self.phase}")

    def _begin(self, began_s: float, now_s: float) -> None:
        """Begin a sample. A time before the process or in the future would make the age of its figures wrong."""
        if not self._began_s <= began_s <= now_s:
            raise DocumentError("the collector says that a sample began before its process, or is still to begin")
        self._began_s = began_s
        self._touched.clear()
        self._partitions, self._partitions_listed = (), 0
        self.phase = Phase.COUNTING

    def _touch(self, card: Card) -> None:
        key = card.key if card.parent is not None else DeviceKey(index=card.index)
        listed = card.parent is None or card in self._partitions
        if card not in self.selection or key in self._touched or not listed:
            what = f"card {card.index}" if card.parent is None else f"partition {card.id}"
            raise DocumentError(f"the collector reads {what}, which it should not touch")
        self._touched.add(key)
        self.announced = card
        self.first_touch = card.key not in self._opened
        self.phase = Phase.READING

    def _read(self, line: Read, announced: Card) -> None:
        self.announced = None
        self.phase = Phase.COUNTING
        if line.reading.answered and (self.first_touch or line.reading.card != announced):
            if len(self._opened) > _OPENED_LIMIT:
                self._opened.clear()  # ids that are others at every sample
            self._opened |= {announced.key, line.reading.card.key}  # the id may become known only now
        self.first_touch = False
        if announced.parent is None:
            self._partitions = line.partitions or ()
            self._partitions_listed += len(self._partitions)
            if self._partitions_listed > PARTITIONS_LIMIT:
                raise DocumentError(f"the collector counts more than {PARTITIONS_LIMIT} partitions")


def _is_same(read: Card, announced: Card) -> bool:
    """Whether the device read is the one announced. A card may be announced by its index alone."""
    if announced.parent is not None:
        return read.key == announced.key
    return read.parent is None and read.index == announced.index
