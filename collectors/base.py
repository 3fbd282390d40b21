"""The collector for all vendors, on top of a :class:`collectors.vendor_library.VendorLibrary`.

Every figure is read on its own and is a value or a reason. Handles are looked up once and kept, because a lookup
opens the device. A handle is dropped with the device that it led to and looked up again at the next tick, so that
devices come back by themselves.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final, TypeVar

from collectors.codes import Fault
from collectors.contract import PossibleDriverError
from collectors.device import Device, DeviceLostError
from collectors.vendor_library import VendorLibrary
from devicemanager.errors import CollectorError
from devicemanager.model.accelerator import Card, CollectorState, Reading, Versions
from devicemanager.model.figures import Figures
from devicemanager.model.reasons import NO_FAULT, Reason
from devicemanager.rules import plausibility

AMBIGUOUS_STRIKES: Final = 3
"""Ticks in a row for which a device must answer nothing but ambiguous codes before it counts as lost."""


T = TypeVar("T")


class LibraryCollector:
    """All devices that one vendor library counts: a :class:`collectors.contract.Collector`.

    Args:
        library: The vendor's calls, units and codes; not opened yet.
        monotonic_s: Seconds that never go back.
    """

    def __init__(self, library: VendorLibrary, *, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._library = library
        self._codes = library.codes
        self._devices: list[Device] = []
        self._count = 0
        self._gave_figures: set[str] = set()  # ids of devices
        self._tick = 0
        self._monotonic_s = monotonic_s
        self._began_s = 0.0

    @property
    def library(self) -> str | None:
        """Which file or package was found, once it is opened."""
        return self._library.found

    @property
    def library_fault(self) -> str | None:
        """What is unusual about it, if anything."""
        return self._library.found_fault

    @property
    def count_call(self) -> str:
        """The call that counts the devices."""
        return self._library.call_names.count

    @property
    def versions(self) -> Versions:
        """Of driver and library, as far as the library says them, once it is opened."""
        return self._library.versions

    def open(self) -> None:
        self._of_the_library(self._library.call_names.open, self._library.open)

    def cards(self) -> Iterator[Card]:
        self._tick += 1
        self._began_s = self._monotonic_s()
        name = self._library.call_names.count
        count = self._of_the_library(name, self._library.count)
        if count > plausibility.CARDS_LIMIT:
            raise CollectorError(CollectorState.FAILED, f"{name} answered {count} cards")
        if count != self._count:
            self._renumber(count)
        return iter([device.identity for device in self._devices[:count]])

    def read(self, card: Card) -> Reading:
        device = self._devices[card.index]
        device.begin(self._tick, self._began_s)
        if device.handle is None and (refused := self._look_up(device)) is not None:
            return refused
        try:
            reading = self._read(device)
        except DeviceLostError as lost:
            reading = Reading.unreadable(device.identity, Reason.LOST, f"lost: {self._codes.named(lost.code)}")
            device.drop_handle()
            return reading
        if not reading.answered:
            return self._without_figures(device, reading)
        device.strikes = 0
        if reading.card.id is not None and reading.card.id not in self._gave_figures:
            self._note_figures(reading.card.id)
        return reading

    def close(self) -> None:
        for device in self._devices:
            device.drop_handle()
        try:
            self._library.close()
        except Exception as error:  # what was read stays true, and the process ends anyway
            if self._library.code_of(error) is None:
                raise

    def _of_the_library(self, name: str, call: Callable[[], T]) -> T:
        try:
            return call()
        except CollectorError:
            raise
        except Exception as error:
            code = self._library.code_of(error)
            if code is None:
                raise
        raise self._codes.failure(code, name)  # without its cause: to print that may call the library again

    def _renumber(self, count: int) -> None:
        """Another count may mean other devices behind the same indices: nothing known of them holds any more."""
        for device in self._devices:
            device.drop_handle()
            device.strikes = 0
        self._devices.extend(Device(index, self._library) for index in range(len(self._devices), count))
        self._count = count

    def _look_up(self, device: Device) -> Reading | None:
        """Find the device behind an index; its reading if it cannot be had.

        Raises:
            PossibleDriverError: Perhaps no device can be had.
        """
        try:
            device.handle = self._library.handle(device.index)
        except Exception as error:
            code = self._library.code_of(error)
            if code is None:
                raise
        else:
            return None
        fault = self._codes.fault(code)
        if fault is Fault.AMBIGUOUS:
            return self._strike(device, device.identity, code)
        reason = self._codes.reason(code)
        if reason is Reason.UNSUPPORTED:  # said of a lookup, it means that the index went out of range
            reason = Reason.TRANSIENT_DRIVER_ERROR
        what = "lost" if fault is Fault.LOST else "cannot be opened"
        reading = Reading.unreadable(device.identity, reason, f"{what}: {self._codes.named(code)}")
        if fault is Fault.DRIVER:
            raise self._possible_driver_error(code, self._library.call_names.handle, reading)
        return reading

    def _read(self, device: Device) -> Reading:
        identity = device.identify()
        figures = plausibility.reading(self._library.figures(device), missing=Reason.UNSUPPORTED)
        health = device.health()
        reasons = [*health.faults, *device.failures.faults()]
        return Reading(identity, figures, "; ".join(reasons) or None, health.unread, device.notes)

    def _without_figures(self, device: Device, reading: Reading) -> Reading:
        """A device without any figure: it has none, or there is a fault.

        Raises:
            PossibleDriverError: It may be the driver's.
        """
        ambiguous = None
        for asked, code in device.codes:
            fault = self._codes.fault(code)
            if fault is Fault.DRIVER:
                raise self._possible_driver_error(code, f"card {device.index}: {asked}", reading)
            if fault is Fault.AMBIGUOUS:
                ambiguous = code
        faults = set(reading.figures.reasons) - NO_FAULT
        if ambiguous is not None and faults == {Reason.TRANSIENT_DRIVER_ERROR}:
            return self._strike(device, reading.card, ambiguous)
        anonymous = reading.card == Card(device.index)
        dead = set(reading.figures.reasons) == {Reason.UNSUPPORTED} and reading.card.id in self._gave_figures
        if not faults and not anonymous and not dead:
            return reading
        codes = sorted(
            (code for _, code in device.codes), key=lambda code: self._codes.fault(code) is Fault.UNSUPPORTED
        )
        why = f": {self._codes.named(codes[0])}" if codes else ""
        if anonymous or dead:  # whatever this handle led to, it leads to no device now
            device.drop_handle()
        if not faults:  # "not supported" is what a library says of a handle that leads nowhere, too
            reading = replace(reading, figures=Figures(Reason.TRANSIENT_DRIVER_ERROR))
        return replace(reading, unhealthy_reason=f"no figure can be read{why}")

    def _note_figures(self, card_id: str) -> None:
        if len(self._gave_figures) >= plausibility.CARDS_LIMIT:
            self._gave_figures.clear()
        self._gave_figures.add(card_id)

    def _strike(self, device: Device, card: Card, code: int) -> Reading:
        """A device that answers with ambiguous codes only, identified or not. It is lost after several ticks.

        Raises:
            PossibleDriverError: If all devices do so, it is the driver's fault.
        """
        device.strikes += 1
        device.drop_handle()
        lost = device.strikes >= AMBIGUOUS_STRIKES
        reason = Reason.LOST if lost else Reason.TRANSIENT_DRIVER_ERROR
        said = self._codes.named(code)
        reading = Reading.unreadable(card, reason, f"{'lost: ' if lost else ''}answers {said}")
        if self._count > 1:
            raise PossibleDriverError(CollectorState.FAILED, f"every card answers {said}", reading)
        return reading

    def _possible_driver_error(self, code: int, call: str, reading: Reading) -> PossibleDriverError:
        failure = self._codes.failure(code, call)
        return PossibleDriverError(failure.state, failure.detail, reading)
