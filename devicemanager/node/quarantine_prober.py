"""Probes quarantined devices: one at a time, each in a process of its own, less and less often.

A device is not probed while a process is stuck on it: one stuck process per device is enough.
"""

import asyncio
from typing import NoReturn

from structlog.typing import FilteringBoundLogger

from devicemanager.clock import Clock
from devicemanager.errors import DocumentError
from devicemanager.model.accelerator import Card, DeviceKey, Reason
from devicemanager.node.child import Child, Exited, ProtocolError, TimedOut
from devicemanager.node.collector_protocol import CollectorProtocol
from devicemanager.node.launcher import Launcher, MemoryExceeded
from devicemanager.node.quarantine import Quarantine, QuarantinedDevice
from devicemanager.wire.collector_lines import End, Failed, Read


class QuarantineProber:
    """Puts devices into quarantine, and probes them until they answer."""

    def __init__(self, quarantine: Quarantine, launcher: Launcher, clock: Clock, log: FilteringBoundLogger) -> None:
        """Nothing runs before :meth:`run`."""
        self._quarantine = quarantine
        self._launcher = launcher
        self._clock = clock
        self._log = log
        self._stuck_on: dict[DeviceKey, Child] = {}
        self._added = asyncio.Event()
        self.readmitted = asyncio.Event()
        """Set when a device may be read with the others again."""

    def timed_out(self, child: Child, card: Card, waited_s: float) -> None:
        """A device did not answer in time."""
        self._add(child, card, Reason.TIMEOUT, f"the {_kind(card)} did not answer within {waited_s:g} s")

    def crashed(self, child: Child, card: Card, end: Exited) -> None:
        """A process crashed while it read this device."""
        # The device's user is shown the fault; what a process last wrote may be about other devices.
        fault = f"the collector crashed while reading this {_kind(card)}: {end.how}"
        self._add(child, card, Reason.TRANSIENT_DRIVER_ERROR, fault, end.stderr_tail)

    def outgrew(self, child: Child, card: Card, held: str) -> None:
        """A process held too much memory while it read this device."""
        fault = f"the collector process held {held}, while reading this {_kind(card)}"
        self._add(child, card, Reason.TRANSIENT_DRIVER_ERROR, fault)

    def _add(self, child: Child, card: Card, reason: Reason, fault: str, last_words: str = "") -> None:
        device = self._quarantine.record_failure(card, reason, fault, self._clock.monotonic())
        if device.failures == 1:
            self._log.warning(
                "device_quarantined",
                **device.log_keys,
                reason=reason.value,
                detail=": ".join(filter(None, (fault, last_words))),
            )
        self._stuck_on = {key: stuck for key, stuck in self._stuck_on.items() if not stuck.exited}
        self._stuck_on[device.card.key] = child
        self._added.set()

    async def run(self) -> NoReturn:
        """Probe one device after the other, each when its time has come."""
        while True:
            device = self._quarantine.next
            now_s = self._clock.monotonic()
            if device is None or device.retry_at_s > now_s:
                await self._wait(None if device is None else device.retry_at_s - now_s)
            elif self._is_stuck(device) or self._launcher.exhausted:
                self._quarantine.postpone(device, now_s)
            else:
                await self._probe(device)

    def _is_stuck(self, device: QuarantinedDevice) -> bool:
        child = self._stuck_on.get(device.card.key)
        return child is not None and not child.exited

    async def _wait(self, delay_s: float | None) -> None:
        """Wait, unless another device comes into quarantine before."""
        self._added.clear()
        try:
            async with asyncio.timeout(delay_s):
                await self._added.wait()
        except TimeoutError:
            return

    async def _probe(self, device: QuarantinedDevice) -> None:
        protocol = CollectorProtocol(self._launcher.manufacturer, device.alone, self._clock.monotonic())
        try:
            child = await self._launcher.start(device.alone)
        except OSError:
            self._quarantine.postpone(device, self._clock.monotonic())
            return
        try:
            await self._follow(child, protocol, device)
        finally:
            self._launcher.kill(child)

    async def _follow(self, child: Child, protocol: CollectorProtocol, device: QuarantinedDevice) -> None:
        while True:
            deadline_s = protocol.deadline_s(self._launcher.deadlines)
            event = await self._launcher.next(child, deadline_s)
            match event:
                case TimedOut() if protocol.announced is not None and not child.stopped:
                    return self.timed_out(child, device.card, deadline_s)
                case Exited() if protocol.announced is not None and not event.by_others:
                    return self.crashed(child, device.card, event)
                case MemoryExceeded(held) if protocol.announced is not None:
                    return self.outgrew(child, device.card, held)
                case TimedOut() | Exited() | ProtocolError() | MemoryExceeded() | Failed():
                    return self._quarantine.postpone(device, self._clock.monotonic())
                case _:
                    pass
            try:
                protocol.accept(event, self._clock.monotonic())
            except DocumentError:
                return self._quarantine.postpone(device, self._clock.monotonic())
            match event:
                case Read(reading) if reading.card.parent == device.card.parent:
                    return self._end(device, reading.card)
                case End():
                    return self._end(device, None)
                case _:
                    pass

    def _end(self, device: QuarantinedDevice, card: Card | None) -> None:
        """End a probe that has read this card, or None if the device is no longer counted."""
        if self._quarantine.probed(device, card):
            self._log.info("device_readmitted", **device.log_keys)
        else:
            self._log.info("device_released", **device.log_keys)
        self.readmitted.set()


def _kind(card: Card) -> str:
    return "card" if card.parent is None else "partition"
