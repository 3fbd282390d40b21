"""What is known of one node's accelerators: readings, why a figure is absent, and the collector's state."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final

from devicemanager.model.figures import Figure as Figure
from devicemanager.model.figures import Figures
from devicemanager.model.reasons import Reason as Reason


class CollectorState(StrEnum):
    """The state of a vendor library as a whole. Closed, as :class:`Reason` is."""

    OK = "ok"
    STARTING = "starting"
    NO_DEVICES = "no_devices"
    LIBRARY_MISSING = "library_missing"
    DRIVER_NOT_LOADED = "driver_not_loaded"
    VERSION_MISMATCH = "version_mismatch"
    NO_PERMISSION = "no_permission"
    UNRESPONSIVE = "unresponsive"
    CRASHED = "crashed"
    RELEASED = "released"
    FAILED = "failed"


class RestartReason(StrEnum):
    """Why a collector process took the place of another. Closed, as :class:`Reason` is.

    The first two are one device's fault, the next five the process's, and the last three ours: the process took too
    much memory or too many descriptors, or was to read other devices.
    """

    DEVICE_TIMEOUT = "device_timeout"
    DEVICE_CRASH = "device_crash"
    UNRESPONSIVE = "unresponsive"
    CRASHED = "crashed"
    KILLED = "killed"
    UNUSABLE = "unusable"
    FAILED = "failed"
    MEMORY = "memory"
    DESCRIPTORS = "descriptors"
    SELECTION = "selection"


@dataclass(frozen=True, slots=True)
class DeviceKey:
    """What a device is addressed by: its index until it is identified, then its id; a partition by parent and id.

    As text: ``index:3``, ``GPU-…``, ``GPU-…/MIG-…``, with ``%``, ``/`` and ``:`` of an id percent-encoded.

    Attributes:
        index: Place in the library's order, only of a card whose id is not known.
        id: The vendor's id; None for a card that is not identified.
        parent: Id of the card that a partition is on; None for a card.
    """

    index: int | None = None
    id: str | None = None
    parent: str | None = None

    @property
    def text(self) -> str:
        """As it is spelled on a command line."""
        if self.id is None:
            return f"index:{self.index}"
        return "/".join(_quoted(part) for part in (self.parent, self.id) if part is not None)

    @classmethod
    def parse(cls, text: str) -> "DeviceKey":
        """The key that a text spells.

        Raises:
            ValueError: It spells none.
        """
        kind, colon, index = text.partition(":")
        if colon:
            if kind != "index" or not (index.isascii() and index.isdigit()):
                raise ValueError("must be index:<n>, <id>, or <id of the card>/<id of the partition>")
            return cls(index=int(index))
        first, slash, second = text.partition("/")
        if not first or bool(slash) != bool(second) or "/" in second:
            raise ValueError("must be index:<n>, <id>, or <id of the card>/<id of the partition>")
        if slash:
            return cls(id=_unquoted(second), parent=_unquoted(first))
        return cls(id=_unquoted(first))


_QUOTES: Final = (("%", "%25"), ("/", "%2F"), (":", "%3A"))


def _quoted(text: str) -> str:
    for plain, quoted in _QUOTES:
        text = text.replace(plain, quoted)
    return text


def _unquoted(text: str) -> str:
    for plain, quoted in reversed(_QUOTES):
        text = text.replace(quoted, plain)
    return text


@dataclass(frozen=True, slots=True)
class Card:
    """The identity of a device: a card, or a partition of one.

    Attributes:
        index: The library's enumeration order, from 0; of a partition, its card's. An order, never an identity.
        id: The vendor's UUID, exactly as the library spells it; None while it could not be read, and never for a
            partition.
        name: The product name; None while it could not be read, and for a partition.
        pci_bus_id: ``dddd:bb:dd.f`` in lower case; None where the library does not say, and for a partition.
        parent: Id of the card that a partition is on; None for a card.
        profile: How a partition was cut, in the vendor's words (``1g.10gb``); None for a card, or if not known.
        serial: Of the board, as the library spells it; None where it does not say, and for a partition.
    """

    index: int
    id: str | None = None
    name: str | None = None
    pci_bus_id: str | None = None
    parent: str | None = None
    profile: str | None = None
    serial: str | None = None

    @property
    def key(self) -> DeviceKey:
        """The key of this device, as far as it is identified."""
        return DeviceKey(index=self.index) if self.id is None else DeviceKey(id=self.id, parent=self.parent)


@dataclass(frozen=True, slots=True)
class Reading:
    """One device, read once.

    Attributes:
        card: Whose figures these are.
        figures: In the units of readings; what the collector does not read is absent ``not_reported``.
        unhealthy_reason: One line naming the check that says the card is unhealthy; None when no check says so.
        unread_checks: Health checks that could not be read: name of the check -> reason.
        notes: Figure -> what its value is, where that is not the usual; by name of the figure, a few words each.
        partitions: Of a card in a published sample: one reading for each of its partitions. Empty otherwise.
    """

    card: Card
    figures: Figures
    unhealthy_reason: str | None = None
    unread_checks: Mapping[str, Reason] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    partitions: tuple["Reading", ...] = ()

    @property
    def answered(self) -> bool:
        """Whether the card gave any figure at all."""
        return self.figures.measured

    @classmethod
    def unreadable(cls, card: Card, reason: Reason, unhealthy_reason: str) -> "Reading":
        """A card that answers nothing: listed, unhealthy, every figure absent for the same reason."""
        return cls(card, Figures(reason), unhealthy_reason)


@dataclass(frozen=True, slots=True)
class Versions:
    """Versions of what cards are read with, as the library spells them.

    Attributes:
        driver: Of the kernel driver; None where the library does not say.
        library: Of the vendor's library; None likewise.
    """

    driver: str | None = None
    library: str | None = None


@dataclass(frozen=True, slots=True)
class CollectorStatus:
    """The status of a collector.

    Attributes:
        state: One of the closed vocabulary.
        since: When this state began, aware UTC.
        detail: One line for a person; None when the state says it all.
        consecutive_failures: Samples failed since the last good one.
        restarts: Collector processes started beyond the first, by why; a reason that did not occur may be left out.
        versions: Of what the cards are read with.
    """

    state: CollectorState
    since: datetime
    detail: str | None = None
    consecutive_failures: int = 0
    restarts: Mapping[RestartReason, int] = field(default_factory=dict)
    versions: Versions = Versions()


@dataclass(frozen=True, slots=True)
class Sample:
    """One successful tick over all cards of one manufacturer.

    Attributes:
        taken_at: Wall-clock time of the moment at which the collector process began to read, aware UTC.
        started_monotonic_s: Monotonic time of that same moment; ages are counted from here.
        duration_s: From the beginning of the round to its end.
        readings: One per card, in the library's order; ids are unique and never None.
    """

    taken_at: datetime
    started_monotonic_s: float
    duration_s: float
    readings: tuple[Reading, ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the device manager knows at this moment: the last good sample, if any, and the collector's status.

    Attributes:
        manufacturer: The name users know (``nvidia``).
        period_s: Configured seconds between samples.
        sample: None before the first successful round.
        collector: Never absent.
        node_name: The Kubernetes node, where it was given.
    """

    manufacturer: str
    period_s: float
    sample: Sample | None
    collector: CollectorStatus
    node_name: str | None = None
