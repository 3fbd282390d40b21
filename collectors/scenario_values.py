"""The values of simulated cards as functions of time. Pure.

Time is the machine's wall clock, so that a scenario goes on where it was when the collector process is started
anew, and so that several nodes with the same file move together.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from devicemanager.model.accelerator import CollectorState, Reason

SAYS_SO: Final = "the scenario says so"


@dataclass(frozen=True, slots=True)
class Window:
    """When something is the case: ``length_s`` seconds from ``at_s`` on, in every ``every_s`` seconds of the clock.

    Without ``every_s`` it is always the case.
    """

    every_s: float = 0.0
    at_s: float = 0.0
    length_s: float = 0.0

    def covers(self, now_s: float) -> bool:
        """Whether it is the case at this time, in seconds since 1970."""
        if not self.every_s:
            return True
        return (now_s - self.at_s) % self.every_s < self.length_s


@dataclass(frozen=True, slots=True)
class Load:
    """The utilization of a card over time, in percent.

    Attributes:
        shape: ``constant`` (always ``high``), ``sine``, ``square``, ``sawtooth``.
        low: Least percent, 0..100.
        high: Greatest percent, 0..100.
        period_s: Length of one cycle.
    """

    shape: str = "sine"
    low: float = 5.0
    high: float = 95.0
    period_s: float = 300.0

    def at(self, now_s: float, phase: float) -> float:
        """Utilization in percent at this time; ``phase`` (0..1) keeps cards from moving in step."""
        turn = (now_s / self.period_s + phase) % 1.0
        match self.shape:
            case "constant":
                part = 1.0
            case "square":
                part = 1.0 if turn < 0.5 else 0.0
            case "sawtooth":
                part = turn
            case _:
                ripple = 0.1 * math.sin(2 * math.pi * (now_s / (self.period_s / 7.3) + phase))
                part = 0.5 + 0.4 * math.sin(2 * math.pi * turn) + ripple
        return self.low + (self.high - self.low) * part


@dataclass(frozen=True, slots=True)
class Span:
    """A figure without load, and under full load."""

    idle: float
    full: float

    def at(self, load_percent: float) -> float:
        """The value at this load."""
        return self.idle + (self.full - self.idle) * load_percent / 100


SPANS: Final[Mapping[str, tuple[str, Span]]] = {
    "temperature": ("temperature_celsius", Span(32, 74)),
    "power_usage": ("power_watts", Span(65, 640)),
    "power_limit": ("power_limit_watts", Span(700, 700)),
}
"""Figure that follows the load -> its key in the file, and between what it lies; in the unit of the snapshot."""


@dataclass(frozen=True, slots=True)
class SimulatedCard:
    """One card of a scenario, or one partition of a card, which has ``profile`` and no temperature or power.

    Units are in the names; faults and windows are as the file gives them.

    Attributes:
        spans: By name of the figure, in the unit of the snapshot.
        absent: Name of the figure -> reason.
        clock_reduction_reasons: Why the clocks are lower while ``clock_reduction`` covers the time.
    """

    id: str
    name: str = "Simulated Accelerator 80GB"
    memory_mib: int = 81_920
    memory_used_percent: Span = Span(2, 90)
    spans: Mapping[str, Span] = field(default_factory=lambda: {name: span for name, (_, span) in SPANS.items()})
    load: Load = Load()
    absent: Mapping[str, Reason] = field(default_factory=dict)
    lost: Window | None = None
    hang: Window | None = None
    unhealthy: Window | None = None
    unhealthy_reason: str = SAYS_SO
    clock_reduction: Window | None = None
    clock_reduction_reasons: tuple[str, ...] = ()
    profile: str | None = None
    partitions: tuple["SimulatedCard", ...] = ()


@dataclass(frozen=True, slots=True)
class Scenario:
    """All that simulated cards of one manufacturer do.

    Attributes:
        cards: In index order; may be empty.
        failure: The state of the library as a whole while ``failing`` covers the time.
    """

    cards: tuple[SimulatedCard, ...]
    failure: CollectorState | None = None
    failure_detail: str = SAYS_SO
    failing: Window = Window()
