"""Logs when a device becomes unhealthy, for which cause, and when it is healthy again: once each."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from structlog.typing import FilteringBoundLogger

from devicemanager.clock import Clock
from devicemanager.model.accelerator import DeviceKey, Reading
from devicemanager.rules import health
from devicemanager.rules.device_ids import is_provisional
from devicemanager.serving.line_allowance import LineAllowance


@dataclass(slots=True)
class _Entry:
    """A device that was unhealthy at some time, and what was logged of it last."""

    index: int
    cause: str | None
    allowance: LineAllowance


class HealthLog:
    """Compares each sample with what was logged of the ones before."""

    def __init__(self, clock: Clock, log: FilteringBoundLogger) -> None:
        """Take every device for healthy."""
        self._clock = clock
        self._log = log
        self._entries: dict[DeviceKey, _Entry] = {}

    def update(self, readings: Sequence[Reading]) -> None:
        """Log what is different in this sample.

        A device that changes all the time is logged later, if it still differs from what was logged when a line may
        be written again. One that is no longer listed is forgotten.
        """
        listed = {reading.card.key: reading for reading in _devices(readings)}
        self._forget(listed)
        for key, reading in listed.items():
            entry = self._entries.get(key)
            cause = health.cause(reading)
            if cause is None if entry is None else cause == entry.cause:
                continue
            if entry is None:
                entry = _Entry(reading.card.index, None, LineAllowance(self._clock))
                self._entries[key] = entry
            if entry.allowance.take():
                entry.cause, entry.index = cause, reading.card.index
                self._write(reading, cause)

    def _forget(self, listed: dict[DeviceKey, Reading]) -> None:
        """Drop devices that are not listed; one that had no id goes on under the one it has now."""
        at = {reading.card.index: key for key, reading in listed.items() if reading.card.parent is None}
        for key in [key for key in self._entries if key not in listed]:
            entry = self._entries.pop(key)
            identified = at.get(entry.index)
            if key.id is not None and is_provisional(key.id) and identified is not None:
                self._entries.setdefault(identified, entry)

    def _write(self, reading: Reading, cause: str | None) -> None:
        card = reading.card
        parent = {} if card.parent is None else {"parent": card.parent}
        if cause is None:
            self._log.info("device_healthy", index=card.index, id=card.id, **parent)
        else:
            self._log.warning(
                "device_unhealthy",
                index=card.index,
                id=card.id,
                **parent,
                reason=cause,
                detail=reading.unhealthy_reason,
            )


def _devices(readings: Sequence[Reading]) -> Iterator[Reading]:
    """Cards, and the partitions of those that are well: what is wrong with a card is said of the card alone."""
    for reading in readings:
        yield reading
        if reading.unhealthy_reason is None:
            yield from reading.partitions
