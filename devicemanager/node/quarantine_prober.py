"""Tries cards that did not answer: one at a time, each alone in a process of its own, ever less often.

A card is not tried again while the process that it made hang is still there: one stuck process a card is enough.
"""

import asyncio
from typing import NoReturn

from structlog.typing import FilteringBoundLogger

from devicemanager.clock import Clock
from devicemanager.errors import DocumentError
from devicemanager.model.accelerator import Card, Reason
from devicemanager.node.child import Child, Exited, ProtocolError, TimedOut
from devicemanager.node.collector_protocol import CollectorProtocol
from devicemanager.node.launcher import Launcher
from devicemanager.node.quarantine import Quarantine, QuarantinedDevice
from devicemanager.wire.collector_lines import End, Failed, Read


class QuarantineProber:
    """Accuses cards, and tries them until they answer."""

    def __init__(self, quarantine: Quarantine, launcher: Launcher, clock: Clock, log: FilteringBoundLogger) -> None:
        """Nothing runs before :meth:`run`."""
        self._quarantine = quarantine
        self._launcher = launcher
        self._clock = clock
        self._log = log
        self._stuck_on: dict[int, Child] = {}
        self._changed = asyncio.Event()
        self.readmitted = asyncio.Event()
        """Set when a card has answered and may be read with the others again."""

    def timed_out(self, child: Child, card: Card, waited_s: float) -> None:
        """A card did not answer in time."""
        self._quarantine_device(child, card, Reason.TIMEOUT, f"the card did not answer within {waited_s:g} s")

    def crashed(self, child: Child, card: Card, end: Exited) -> None:
        """A process crashed while it read this card."""
        fault = f"the collector crashed while reading this card: {end.detail}"
        self._quarantine_device(child, card, Reason.TRANSIENT_DRIVER_ERROR, fault)

    def _quarantine_device(self, child: Child, card: Card, reason: Reason, fault: str) -> None:
        if self._quarantine.blame(card, reason, fault, self._clock.monotonic()):
            self._log.warning("device_quarantined", index=card.index, id=card.id, reason=reason.value, detail=fault)
        self._stuck_on[card.index] = child
        self._changed.set()

    async def run(self) -> NoReturn:
        """Try one card after the other, each when its time has come."""
        while True:
            device = self._quarantine.next
            now_s = self._clock.monotonic()
            if device is None or device.retry_at_s > now_s:
                await self._await_change(None if device is None else device.retry_at_s - now_s)
            elif self._is_stuck(device) or self._launcher.exhausted:
                self._quarantine.postpone(device, now_s)
            else:
                await self._try(device)

    def _is_stuck(self, device: QuarantinedDevice) -> bool:
        child = self._stuck_on.get(device.card.index)
        return child is not None and not child.exited

    async def _await_change(self, delay_s: float | None) -> None:
        self._changed.clear()
        try:
            async with asyncio.timeout(delay_s):
                await self._changed.wait()
        except TimeoutError:
            return

    async def _try(self, device: QuarantinedDevice) -> None:
        started_s = self._clock.monotonic()
        try:
            child = await self._launcher.start(only=[device.card.index])
        except OSError:
            self._quarantine.postpone(device, self._clock.monotonic())
            return
        try:
            answered = await self._follow(child, device, started_s)
        finally:
            self._launcher.kill(child)
        if answered:
            self._quarantine.readmit(device)
            self.readmitted.set()
            self._log.info("device_readmitted", index=device.card.index, id=device.card.id)

    async def _follow(self, child: Child, device: QuarantinedDevice, started_s: float) -> bool:
        """Whether the card was read. One that is no longer counted was too: the common sample tells that better."""
        protocol = CollectorProtocol(self._launcher.manufacturer, (), started_s)
        deadlines = self._launcher.deadlines
        while True:
            deadline_s = (
                deadlines.first_touch_deadline_s(0.0)
                if protocol.first_touch
                else deadlines.deadline_s(protocol.phase)
            )
            event = await child.next(deadline_s)
            match event:
                case TimedOut() if protocol.announced is not None:
                    self.timed_out(child, device.card, deadline_s)
                    return False
                case Exited() if protocol.announced is not None:
                    self.crashed(child, device.card, event)
                    return False
                case TimedOut() | Exited() | ProtocolError() | Failed():
                    self._quarantine.postpone(device, self._clock.monotonic())
                    return False
                case _:
                    pass
            try:
                protocol.accept(event, self._clock.monotonic())
            except DocumentError:
                self._quarantine.postpone(device, self._clock.monotonic())
                return False
            if isinstance(event, Read | End):
                return True
