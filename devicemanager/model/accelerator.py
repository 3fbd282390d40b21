"""What is known of one node's accelerators: readings, why a figure is absent, and the collector's verdict."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from devicemanager.model.figures import Figure as Figure
from devicemanager.model.figures import Figures
from devicemanager.model.reasons import Reason as Reason


class CollectorState(StrEnum):
    """What can be said of a vendor library as a whole. Closed, as :class:`Reason` is."""

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


@dataclass(frozen=True, slots=True)
class Card:
    """Who a card is.

    Attributes:
        index: The library's enumeration order, from 0. An order, never an identity.
        id: The vendor's UUID, exactly as the library spells it; None while it could not be read.
        name: The product name; None while it could not be read.
        pci_bus_id: ``dddd:bb:dd.f`` in lower case; None where the library does not say.
    """

    index: int
    id: str | None = None
    name: str | None = None
    pci_bus_id: str | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """One card, read once.

    Attributes:
        card: Whose figures these are.
        figures: In the units of readings; what the collector does not read is absent ``not_reported``.
        unhealthy_reason: One line naming the check that says the card is unhealthy; None when no check says so.
        unread_checks: Health checks that could not be read: name of the check -> reason.
    """

    card: Card
    figures: Figures
    unhealthy_reason: str | None = None
    unread_checks: Mapping[str, Reason] = field(default_factory=dict)

    @property
    def answered(self) -> bool:
        """Whether the card gave any figure at all."""
        return self.figures.measured

    @classmethod
    def unreadable(cls, card: Card, reason: Reason, unhealthy_reason: str) -> "Reading":
        """A card that answers nothing: listed, unhealthy, every figure absent for the same reason."""
        return cls(card, Figures(reason), unhealthy_reason)


@dataclass(frozen=True, slots=True)
class CollectorStatus:
    """The verdict on a collector.

    Attributes:
        state: One of the closed vocabulary.
        since: When this state began, aware UTC.
        detail: One line for a person; None when the state says it all.
        consecutive_failures: Samples failed since the last good one.
        restarts: Collector processes started beyond the first.
    """

    state: CollectorState
    since: datetime
    detail: str | None = None
    consecutive_failures: int = 0
    restarts: int = 0


@dataclass(frozen=True, slots=True)
class Sample:
    """One successful round over all cards of one manufacturer.

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
    """What the device manager knows at this moment: the last good sample, if any, and the verdict.

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
