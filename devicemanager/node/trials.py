"""Tries cards that did not answer: one at a time, each alone in a process of its own, ever less often.

A card is not tried again while the process that it made hang is still there: one stuck process a card is enough.
"""

import asyncio
from typing import NoReturn

from structlog.typing import FilteringBoundLogger

from devicemanager.clock import Clock
from devicemanager.errors import DocumentError
from devicemanager.model.accelerator import Card, Reason
from devicemanager.node.child import Child, Ended, Garbled, Silent
from devicemanager.node.conversation import Conversation
from devicemanager.node.launcher import Launcher
from devicemanager.node.suspects import Suspect, Suspects
from devicemanager.wire.collector_lines import End, Failed, Read


class Trials:
    """Accuses cards, and tries them until they answer."""

    def __init__(self, suspects: Suspects, launcher: Launcher, clock: Clock, log: FilteringBoundLogger) -> None:
        """Nothing runs before :meth:`run`."""
        self._suspects = suspects
        self._launcher = launcher
        self._clock = clock
        self._log = log
        self._stuck_on: dict[int, Child] = {}
        self._accused = asyncio.Event()
        self.acquitted = asyncio.Event()
        """Set when a card has answered and may be read with the others again."""

    def overran(self, child: Child, card: Card, waited_s: float) -> None:
        """A card did not answer in time."""
        self._accuse(child, card, Reason.TIMEOUT, f"the card did not answer within {waited_s:g} s")

    def crashed(self, child: Child, card: Card, end: Ended) -> None:
        """A process crashed while it read this card."""
        fault = f"the collector crashed while reading this card: {end.detail}"
        self._accuse(child, card, Reason.TRANSIENT_DRIVER_ERROR, fault)

    def _accuse(self, child: Child, card: Card, reason: Reason, fault: str) -> None:
        if self._suspects.blame(card, reason, fault, self._clock.monotonic()):
            self._log.warning("card_left_out", index=card.index, id=card.id, reason=reason.value, detail=fault)
        self._stuck_on[card.index] = child
        self._accused.set()

    async def run(self) -> NoReturn:
        """Try one card after the other, each when its time has come."""
        while True:
            suspect = self._suspects.next
            now_s = self._clock.monotonic()
            if suspect is None or suspect.retry_at_s > now_s:
                await self._await_accusation(None if suspect is None else suspect.retry_at_s - now_s)
            elif self._is_stuck(suspect) or self._launcher.exhausted:
                self._suspects.postpone(suspect, now_s)
            else:
                await self._try(suspect)

    def _is_stuck(self, suspect: Suspect) -> bool:
        child = self._stuck_on.get(suspect.card.index)
        return child is not None and not child.exited

    async def _await_accusation(self, delay_s: float | None) -> None:
        self._accused.clear()
        try:
            async with asyncio.timeout(delay_s):
                await self._accused.wait()
        except TimeoutError:
            return

    async def _try(self, suspect: Suspect) -> None:
        started_s = self._clock.monotonic()
        try:
            child = await self._launcher.start(only=[suspect.card.index])
        except OSError:
            self._suspects.postpone(suspect, self._clock.monotonic())
            return
        try:
            answered = await self._follow(child, suspect, started_s)
        finally:
            self._launcher.kill(child)
        if answered:
            self._suspects.let_back(suspect)
            self.acquitted.set()
            self._log.info("card_answers_again", index=suspect.card.index, id=suspect.card.id)

    async def _follow(self, child: Child, suspect: Suspect, started_s: float) -> bool:
        """Whether the card was read. One that is no longer counted was too: the common sample tells that better."""
        talk = Conversation(self._launcher.manufacturer, (), started_s)
        patience = self._launcher.patience
        while True:
            deadline_s = (
                patience.first_touch_deadline_s(0.0) if talk.first_touch else patience.deadline_s(talk.phase)
            )
            event = await child.next(deadline_s)
            match event:
                case Silent() if talk.announced is not None:
                    self.overran(child, suspect.card, deadline_s)
                    return False
                case Ended() if talk.announced is not None:
                    self.crashed(child, suspect.card, event)
                    return False
                case Silent() | Ended() | Garbled() | Failed():
                    self._suspects.postpone(suspect, self._clock.monotonic())
                    return False
                case _:
                    pass
            try:
                talk.accept(event, self._clock.monotonic())
            except DocumentError:
                self._suspects.postpone(suspect, self._clock.monotonic())
                return False
            if isinstance(event, Read | End):
                return True
