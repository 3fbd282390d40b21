"""The interface of a collector, which reads one vendor library.

A collector runs only inside the process that ``collectors.process`` starts. It may block, crash or be killed at
any moment; the process that started it handles that. It imports its vendor library inside :meth:`Collector.open`,
never at module level.
"""

from collections.abc import Iterable, Iterator
from typing import Final, Protocol, runtime_checkable

from devicemanager.errors import CollectorError
from devicemanager.model.accelerator import Card, CollectorState, Reading

ENTRY_POINT_GROUP: Final = "devicemanager.collectors"
"""Third parties register what makes a :class:`Collector`, without arguments, under this group."""

EXIT_CODES: Final = {
    CollectorState.FAILED: 1,
    CollectorState.NO_DEVICES: 70,
    CollectorState.LIBRARY_MISSING: 71,
    CollectorState.DRIVER_NOT_LOADED: 72,
    CollectorState.VERSION_MISMATCH: 73,
    CollectorState.NO_PERMISSION: 74,
}
"""How the collector process ends when the vendor library as a whole is unusable."""


class PossibleDriverError(CollectorError):
    """A card gave no figure, and the cause may be the driver or library as a whole.

    One card cannot tell. It is the driver if every card that is read answers alike and none gives a figure;
    otherwise the fault is the card's own.

    Attributes:
        reading: How the card is listed if the fault is its own.
    """

    def __init__(self, state: CollectorState, detail: str, reading: Reading) -> None:
        super().__init__(state, detail)
        self.reading = reading


@runtime_checkable
class Collector(Protocol):
    """One manufacturer's library, opened once and read every period.

    A collector may also have the attributes ``library``, which names the file or package that it found, for the
    log, ``library_fault``, which says what is unusual about that, and ``count_call``, which names the library's
    call behind :meth:`cards`, for when it does not come back; each text or None. ``versions`` has those of driver
    and library. All are read after :meth:`open`.
    """

    def open(self) -> None:
        """Load and initialise the vendor library.

        Raises:
            devicemanager.errors.CollectorError: The library as a whole is unusable.
        """
        ...

    def cards(self) -> Iterator[Card]:
        """The cards that the library counts now, in its order, as far as they are known without touching them.

        Called at the start of each sample. Must not touch a card's driver: ``Card.id`` is filled only with what an
        earlier sample of this process read.

        Raises:
            devicemanager.errors.CollectorError: The driver as a whole went away.
        """
        ...

    def read(self, card: Card) -> Reading:
        """Touch one card and read every figure, each on its own: one failing call costs one figure.

        A card that is gone gives a reading, too (``Reading.unreadable``).

        Raises:
            devicemanager.errors.CollectorError: The driver as a whole may be gone. Believed when no card of
                the sample gives a figure, in any order of the cards. Preferably a :class:`PossibleDriverError`,
                which carries the reading of the card otherwise.
        """
        ...

    def close(self) -> None:
        """Close the library. Called at most once, never after a hang."""
        ...


@runtime_checkable
class PartitionCollector(Collector, Protocol):
    """A collector whose cards may be partitioned. Each partition is announced, and read with :meth:`read`."""

    def partitions(self, card: Card) -> Iterable[Card]:
        """The partitions of a card that was just read and identified: ``id`` and ``profile`` of each.

        May touch the card, which is still announced.

        Raises:
            devicemanager.errors.CollectorError: They cannot be listed now; those known stay, without figures.
        """
        ...
