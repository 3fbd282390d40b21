"""What a supervisor supervises, and within which deadlines and limits."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from devicemanager.model.accelerator import CollectorState
from devicemanager.node.deadlines import FIRST_TOUCH_S
from devicemanager.node.process_usage import UsageLimits

OPEN_DEADLINE_S: Final = 10.0
"""Used where no other is given; ``devicemanager serve`` passes its setting ``--open-timeout``."""


def _no_addresses() -> Sequence[str]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorOptions:
    """What to supervise, and within which deadlines.

    Attributes:
        manufacturer: The only one that the process may report.
        period_s: Seconds between samples, above 0.
        command: Starts the collector process; ``--period``, ``--fd``, ``--skip`` and ``--only`` are added.
        card_deadline_s: For reading one card; None chooses by the period (``deadlines.card_deadline_s``).
        open_deadline_s: From the start of a process to its first line.
        first_touch_s: For the first figure of a card in a process, as far as ``open_deadline_s`` reaches.
        node_name: The Kubernetes node, for the log.
        bus_addresses: Where the bus has cards of this manufacturer; called when a card is not identified. May hang.
        taken_addresses: Where the bus has cards that the library must count, because their driver has taken them
            and this program was given all; called now and then. May hang.
        exit_states: Exit code of the process -> what it means, where the process could not say it.
        usage: Above which a process is replaced.
        environment: Of the processes, in which they are marked to find what they leave behind; None passes on this
            process's own, and leaves that alone.
    """

    manufacturer: str
    period_s: float
    command: Sequence[str]
    card_deadline_s: float | None = None
    open_deadline_s: float = OPEN_DEADLINE_S
    first_touch_s: float = FIRST_TOUCH_S
    node_name: str | None = None
    bus_addresses: Callable[[], Sequence[str]] = _no_addresses
    taken_addresses: Callable[[], Sequence[str]] = _no_addresses
    exit_states: Mapping[int, CollectorState] = field(default_factory=dict)
    usage: UsageLimits = field(default_factory=UsageLimits)
    environment: Mapping[str, str] | None = None
