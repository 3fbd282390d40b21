"""Devices that did not answer: skipped by the common sample and probed alone, less and less often. Pure.

A device that answers a probe is readmitted on probation, because some hang only when others are read, too. Until it
has answered for a few common samples, a further failure adds to those before.

An entry is for a device, not for an index. A card is known by its index alone only until it is identified. If an
index comes to mean another card, that card is not skipped.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from devicemanager.model.accelerator import Card, DeviceKey, Reading, Reason
from devicemanager.rules import backoff
from devicemanager.rules.plausibility import CARDS_LIMIT
from devicemanager.rules.selection import Selection

PROBATION_SAMPLES: Final = 3


@dataclass(slots=True)
class QuarantinedDevice:
    """One device in quarantine.

    Attributes:
        card: What is known of it.
        reason: ``timeout``, or ``transient_driver_error`` after a crash.
        fault: One line for a person.
        failures: How often it did not answer since it last recovered.
        failed_at_s: When it last did not answer, monotonic.
        retry_at_s: When to probe it, monotonic.
        located: Whether ``card.index`` still means this card, or the card of this partition.
        on_probation: It answered alone and is read with the others again.
        probation_samples: How often it has answered with the others since.
    """

    card: Card
    reason: Reason
    fault: str
    failures: int
    failed_at_s: float
    retry_at_s: float
    located: bool = True
    on_probation: bool = False
    probation_samples: int = 0

    @property
    def reading(self) -> Reading:
        """The device as it is listed meanwhile."""
        return Reading.unreadable(self.card, self.reason, self.fault)

    @property
    def log_keys(self) -> dict[str, object]:
        """Keys that name it in the log."""
        parent = {} if self.card.parent is None else {"parent": self.card.parent}
        return {"index": self.card.index, "id": self.card.id, **parent}

    @property
    def assumed(self) -> dict[int, str]:
        """Index -> id to assume, to find this device before its card was read."""
        card_id = self.card.parent or self.card.id
        return {self.card.index: card_id} if self.located and card_id is not None else {}

    @property
    def alone(self) -> Selection:
        """This device and no other."""
        return Selection(only=frozenset((self.card.key,)), assumed=self.assumed)


class Quarantine:
    """The devices in quarantine, by key."""

    def __init__(self, period_s: float) -> None:
        self._period_s = period_s
        self._devices: dict[DeviceKey, QuarantinedDevice] = {}

    def __bool__(self) -> bool:
        return bool(self._devices)

    def record_failure(self, card: Card, reason: Reason, fault: str, now_s: float) -> QuarantinedDevice:
        """Record that a device did not answer. Returns its entry; ``failures`` is 1 for a new one."""
        known = self._find(card)
        failures = 1
        if known is not None:
            failures = known.failures + 1
            del self._devices[known.card.key]
            card = card if card.id is not None else known.card
        elif card.parent is None:
            self._check_index(card, now_s)
        retry_at_s = now_s + backoff.delay_s(failures, self._period_s, readable=False)
        device = QuarantinedDevice(card, reason, fault, failures, now_s, retry_at_s)
        self._put(device)
        return device

    def postpone(self, device: QuarantinedDevice, now_s: float) -> None:
        """Put off a probe that could not be made; it does not count as a failure."""
        delay_s = backoff.delay_s(device.failures, self._period_s, readable=False)
        device.retry_at_s = now_s + max(delay_s, min(self._period_s, backoff.LONGEST_S))

    def probed(self, device: QuarantinedDevice, card: Card | None) -> bool:
        """Record the end of a probe. Returns whether the device answered.

        Args:
            device: What was to be read.
            card: What was read; None for nothing, because no such device is counted any more.
        """
        if self._devices.get(device.card.key) is not device:
            return False  # released meanwhile
        if card is None:
            del self._devices[device.card.key]
            return False
        if device.card.id is not None and card.id is not None and card.key != device.card.key:
            self._displace(device)
            return False
        self._identify(device, card)
        device.on_probation = True
        device.probation_samples = 0
        return True

    def answered(self, cards: Iterable[Card]) -> tuple[QuarantinedDevice, ...]:
        """Record devices read by the common sample. Returns those that have recovered."""
        recovered = []
        for card in cards if self._devices else ():
            device = self._find(card)
            if card.parent is None and card.id is not None:
                self._locate_partitions(card)
            if device is None:
                continue
            if not device.on_probation and card.id is not None and not self._is_at(device, card.index):
                device.on_probation = True  # skipped where it was, and read where it is now
                device.probation_samples = 0
            if device.on_probation:
                self._identify(device, card)
                device.probation_samples += 1
                if device.probation_samples >= PROBATION_SAMPLES:
                    recovered.append(self._devices.pop(device.card.key))
        return tuple(recovered)

    def renumbered(self, before_s: float = math.inf) -> None:
        """Indexes mean other cards than before this moment.

        A card known by its index alone is released; where the others are is not known.
        """
        for device in tuple(self._devices.values()):
            if device.failed_at_s < before_s:
                self._displace(device)

    def clear(self) -> None:
        """Release all."""
        self._devices.clear()

    @property
    def readings(self) -> tuple[Reading, ...]:
        """How they are listed in a sample that does not read them: located cards, and partitions.

        This includes one that has just answered a probe: the running process skips it for another sample.
        """
        return tuple(device.reading for device in self._ordered if device.located or device.card.parent is not None)

    @property
    def skipped(self) -> tuple[QuarantinedDevice, ...]:
        """Those that are not to be touched by the common sample."""
        return tuple(device for device in self._ordered if not device.on_probation)

    @property
    def selection(self) -> Selection:
        """What the common sample touches."""
        assumed: dict[int, str] = {}
        for device in self.skipped:
            if device.card.parent is None:
                assumed |= device.assumed
        return Selection(skip=frozenset(device.card.key for device in self.skipped), assumed=assumed)

    @property
    def next(self) -> QuarantinedDevice | None:
        """The one to be probed first; no partition of a card that does not answer itself."""
        cards = {device.card.id for device in self.skipped if device.card.parent is None}
        ready = (d for d in self.skipped if d.card.parent is None or d.card.parent not in cards)
        return min(ready, key=lambda device: device.retry_at_s, default=None)

    @property
    def full(self) -> bool:
        """Whether it holds more than any node has."""
        return len(self._devices) >= CARDS_LIMIT

    @property
    def _ordered(self) -> list[QuarantinedDevice]:
        """By index, a card before its partitions."""
        return sorted(
            self._devices.values(),
            key=lambda device: (device.card.index, device.card.parent or "", device.card.id or ""),
        )

    def _find(self, card: Card) -> QuarantinedDevice | None:
        """The entry of a device; if either is not identified, that of the same index."""
        found = self._devices.get(card.key)
        if found is None and card.parent is None:
            there = self._at(card.index)
            if there is not None and (card.id is None or there.card.id is None):
                return there
        return found

    def _at(self, index: int) -> QuarantinedDevice | None:
        """The card last seen at an index."""
        return next((d for d in self._devices.values() if d.card.parent is None and self._is_at(d, index)), None)

    @staticmethod
    def _is_at(device: QuarantinedDevice, index: int) -> bool:
        return device.located and device.card.index == index

    def _check_index(self, card: Card, now_s: float) -> None:
        """A new failing card may be one of those in quarantine at another index."""
        there = self._at(card.index)
        if there is not None:
            self._displace(there)
        if card.id is None:
            for device in self._devices.values():
                if device.card.id is not None and device.card.parent is None:
                    device.retry_at_s = min(device.retry_at_s, now_s)  # a probe shows which card is at its index

    def _displace(self, device: QuarantinedDevice) -> None:
        if device.card.id is None:
            del self._devices[device.card.key]
        device.located = False

    def _identify(self, device: QuarantinedDevice, card: Card) -> None:
        """Its key is its id, once that is known."""
        if card.id is not None:
            del self._devices[device.card.key]
            device.card, device.located = card, True
            self._put(device)

    def _put(self, device: QuarantinedDevice) -> None:
        if device.card.parent is None:  # an unidentified entry at this index is this card
            self._devices.pop(DeviceKey(index=device.card.index), None)
        self._devices[device.card.key] = device

    def _locate_partitions(self, card: Card) -> None:
        for device in self._devices.values():
            if device.card.parent == card.id and not self._is_at(device, card.index):
                device.card, device.located = replace(device.card, index=card.index), True
