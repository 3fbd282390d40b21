"""Cards that did not answer: left out of the common sample and tried alone, ever less often. Pure.

A card that answers alone is let back on trial, because some hang only beside others. Until it has held out for a
few samples, a relapse counts on from the last one.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from devicemanager.model.accelerator import Card, Reading, Reason
from devicemanager.rules import backoff
from devicemanager.rules.plausibility import CARDS_LIMIT

PROBATION_SAMPLES: Final = 3


@dataclass(slots=True)
class QuarantinedDevice:
    """One card under suspicion.

    Attributes:
        card: What was known of it when it was announced.
        reason: ``timeout``, or ``transient_driver_error`` after a crash.
        fault: One line for a person.
        failures: How often it did not answer since it was last trusted.
        blamed_at_s: When it last did not answer, monotonic.
        retry_at_s: When to try it alone, monotonic.
        on_probation: It answered alone and is read with the others again.
        probation_samples: How often it did answer with the others since.
    """

    card: Card
    reason: Reason
    fault: str
    failures: int
    blamed_at_s: float
    retry_at_s: float
    on_probation: bool = False
    probation_samples: int = 0

    @property
    def reading(self) -> Reading:
        """The card as it is listed meanwhile."""
        return Reading.unreadable(self.card, self.reason, self.fault)


class Quarantine:
    """The cards under suspicion, by index."""

    def __init__(self, period_s: float) -> None:
        self._period_s = period_s
        self._by_index: dict[int, QuarantinedDevice] = {}

    def __bool__(self) -> bool:
        return bool(self._by_index)

    def blame(self, card: Card, reason: Reason, fault: str, now_s: float) -> bool:
        """A card did not answer; says whether that is news."""
        known = self._by_index.get(card.index)
        failures = 1 if known is None else known.failures + 1
        retry_at_s = now_s + backoff.delay_s(failures, self._period_s, readable=False)
        self._by_index[card.index] = QuarantinedDevice(card, reason, fault, failures, now_s, retry_at_s)
        return known is None

    def postpone(self, device: QuarantinedDevice, now_s: float) -> None:
        """It could not be tried, which says nothing about the card."""
        delay_s = backoff.delay_s(device.failures, self._period_s, readable=False)
        device.retry_at_s = now_s + max(delay_s, min(self._period_s, backoff.LONGEST_S))

    def readmit(self, device: QuarantinedDevice) -> None:
        """It answered alone."""
        device.on_probation = True
        device.probation_samples = 0

    def answered(self, indexes: Iterable[int]) -> tuple[QuarantinedDevice, ...]:
        """These cards were read with the others; returns those that are trusted again by that."""
        trusted = []
        for index in indexes:
            device = self._by_index.get(index)
            if device is not None and device.on_probation:
                device.probation_samples += 1
                if device.probation_samples >= PROBATION_SAMPLES:
                    trusted.append(self._by_index.pop(index))
        return tuple(trusted)

    def clear(self, before_s: float = math.inf) -> None:
        """Indexes mean other cards now: what was blamed before that is read with the others again."""
        self._by_index = {i: device for i, device in self._by_index.items() if device.blamed_at_s >= before_s}

    @property
    def readings(self) -> tuple[Reading, ...]:
        """How they are all listed in a sample in which they were not read, by index.

        One that has just answered alone is among them: the process that still skips it goes on for another sample.
        """
        return tuple(self._by_index[index].reading for index in sorted(self._by_index))

    @property
    def skipped(self) -> tuple[QuarantinedDevice, ...]:
        """Those that are not to be touched by the common sample, by index."""
        return tuple(self._by_index[i] for i in sorted(self._by_index) if not self._by_index[i].on_probation)

    def may_rejoin(self, indexes: Iterable[int]) -> bool:
        """Whether one of these, skipped so far, has answered alone or is no longer suspected."""
        return any(index not in self._by_index or self._by_index[index].on_probation for index in indexes)

    @property
    def next(self) -> QuarantinedDevice | None:
        """The one to be tried first."""
        return min(self.skipped, key=lambda device: device.retry_at_s, default=None)

    @property
    def full(self) -> bool:
        """Whether no more can be accused: more than any node has."""
        return len(self._by_index) >= CARDS_LIMIT
