"""NVIDIA cards through NVML and its own Python binding, ``nvidia-ml-py``.

Every figure is read on its own and is a value or a reason. Handles are looked up once and kept, because a lookup
opens the card; a handle is dropped with the card that it led to, and looked up again at the next tick, so that a
card comes back by itself. Codes are explained by :mod:`collectors.nvml_codes`.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

from collectors import nvidia_binding, nvidia_figures, nvidia_health, nvml_codes
from collectors.contract import DriverSuspectedError
from collectors.nvidia_card import CardFaultError, NvidiaCard
from devicemanager.errors import CollectorError
from devicemanager.model.accelerator import Card, CollectorState, Reading, Reason
from devicemanager.rules import plausibility

UNKNOWN_STRIKES: Final = 3
"""Ticks in a row for which a card must answer nothing but UNKNOWN (999) before it counts as lost."""

_NO_FAULT: Final = frozenset({Reason.UNSUPPORTED, Reason.PARTITIONED, Reason.REPORTED_ON_PRIMARY})
"""Reasons for which a card in good health may have no figure at all."""


class NvidiaCollector:
    """All cards that one NVML session counts.

    Attributes:
        library: Which Python binding was found, once it is opened.
        library_fault: What is unusual about it, if anything.

    Args:
        monotonic_s: Seconds that never go back.
    """

    def __init__(self, *, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self.library: str | None = None
        self.library_fault: str | None = None
        self._monotonic_s = monotonic_s
        self._nvml: Any = None
        self._cards: list[NvidiaCard] = []
        self._count = 0
        self._tick = 0

    def open(self) -> None:
        binding = nvidia_binding.load()
        self.library, self.library_fault = binding.name, binding.fault
        self._nvml = binding.module
        self._of_the_library("nvmlInit", self._nvml.nvmlInit)

    def cards(self) -> Iterator[Card]:
        self._tick += 1
        count = self._of_the_library("nvmlDeviceGetCount", self._nvml.nvmlDeviceGetCount)
        if count > plausibility.CARDS_LIMIT:
            raise CollectorError(CollectorState.FAILED, f"nvmlDeviceGetCount answered {count} cards")
        if count != self._count:
            self._renumber(count)
        return iter([card.identity for card in self._cards[:count]])

    def read(self, card: Card) -> Reading:
        known = self._cards[card.index]
        known.begin(self._tick)
        try:
            if known.handle is None and (refused := self._look_up(known)) is not None:
                return refused
            identity = known.identify()
            figures = nvidia_figures.read(known, self._monotonic_s)
            health = nvidia_health.read(known, figures)
        except CardFaultError as fault:
            reading = Reading.unreadable(known.identity, fault.reason, fault.what)
            known.drop_handle()
            return reading
        reading = Reading(identity, figures, health.reason, health.unread)
        if not reading.answered:
            return self._without_figures(known, reading)
        known.strikes = 0
        return reading

    def close(self) -> None:
        with contextlib.suppress(self._nvml.NVMLError):  # what was read stays true, and the process ends anyway
            self._nvml.nvmlShutdown()

    def _of_the_library(self, name: str, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except self._nvml.NVMLError as error:
            raise nvml_codes.verdict(error.value, name) from None  # never printed, so never stringified

    def _renumber(self, count: int) -> None:
        """Another count may mean other cards behind the same indices: nothing known of them holds any more."""
        for known in self._cards:
            known.drop_handle()
            known.strikes = 0
        self._cards.extend(NvidiaCard(index, self._nvml) for index in range(len(self._cards), count))
        self._count = count

    def _look_up(self, known: NvidiaCard) -> Reading | None:
        """Find the card behind an index; its reading if it cannot be had.

        Raises:
            DriverSuspectedError: Perhaps none can.
        """
        call = "nvmlDeviceGetHandleByIndex"
        try:
            known.handle = self._nvml.nvmlDeviceGetHandleByIndex(known.index)
        except self._nvml.NVMLError as error:
            code = error.value
        else:
            return None
        if code == nvml_codes.UNKNOWN:
            return self._strike(known, known.identity)
        reason = nvml_codes.reason(code)
        if reason is Reason.UNSUPPORTED:  # of a handle, INVALID_ARGUMENT says that the index went out of range
            reason = Reason.TRANSIENT_DRIVER_ERROR
        what = "lost" if reason is Reason.LOST else "cannot be opened"
        reading = Reading.unreadable(known.identity, reason, f"{what}: {nvml_codes.named(code)}")
        if nvml_codes.blames_driver(code):
            verdict = nvml_codes.verdict(code, call)
            raise DriverSuspectedError(verdict.state, verdict.detail, reading)
        return reading

    def _without_figures(self, known: NvidiaCard, reading: Reading) -> Reading:
        """A card that was asked for everything and gave no figure: because it has none, or by some fault.

        Raises:
            DriverSuspectedError: By the driver's, as far as this card can tell.
        """
        for call, code in known.codes.items():
            if nvml_codes.blames_driver(code):
                verdict = nvml_codes.verdict(code, f"card {known.index}: {call}")
                raise DriverSuspectedError(verdict.state, verdict.detail, reading)
        faults = set(reading.figures.reasons) - _NO_FAULT
        if nvml_codes.UNKNOWN in known.codes.values() and faults == {Reason.TRANSIENT_DRIVER_ERROR}:
            return self._strike(known, reading.card)
        anonymous = reading.card == Card(known.index)
        if not faults and not anonymous:
            return reading
        codes = sorted(known.codes.values(), key=lambda code: nvml_codes.reason(code) is Reason.UNSUPPORTED)
        why = f": {nvml_codes.named(codes[0])}" if codes else ""
        if anonymous:  # whatever this handle led to, it leads to no card now
            known.drop_handle()
        return replace(reading, unhealthy_reason=f"no figure can be read{why}")

    def _strike(self, known: NvidiaCard, card: Card) -> Reading:
        """A card that gives nothing but UNKNOWN, whether or not it says who it is: soon lost.

        Raises:
            DriverSuspectedError: If all cards do so, it is the driver.
        """
        known.strikes += 1
        known.drop_handle()
        lost = known.strikes >= UNKNOWN_STRIKES
        reason = Reason.LOST if lost else Reason.TRANSIENT_DRIVER_ERROR
        said = nvml_codes.named(nvml_codes.UNKNOWN)
        reading = Reading.unreadable(card, reason, f"{'lost: ' if lost else ''}answers {said}")
        if self._count > 1:
            raise DriverSuspectedError(CollectorState.FAILED, f"every card answers {said}", reading)
        return reading
