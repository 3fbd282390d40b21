"""NVIDIA cards through NVML and its own Python binding, ``nvidia-ml-py``.

Every figure is read on its own and is a value or a reason. Handles are looked up once and kept, because a lookup
opens the card; a handle is dropped with the card that it led to, and looked up again at the next tick, so that a
card comes back by itself. Codes are explained by :mod:`collectors.nvml_codes`.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, NoReturn

from collectors import nvml_codes
from collectors.nvidia_gpm import GpmUtilization
from collectors.pci_address import normalise
from devicemanager.errors import CollectorError
from devicemanager.model.accelerator import Card, CollectorState, Figure, Reading, Reason
from devicemanager.rules import plausibility

UNKNOWN_STRIKES: Final = 3
"""Ticks in a row for which a card must answer nothing but UNKNOWN (999) before it counts as lost."""

UNSUPPORTED_TICKS: Final = 20
"""Ticks for which a figure that is not supported is not asked for again: 5 minutes at the default period. Not for
ever, because a driver also says "not supported" while partitioning is on, or of a handle that became invalid."""

_ECC: Final = "ecc"
_UNCORRECTED, _VOLATILE, _DRAM = 1, 0, 2
_ECC_COUNT_LIMIT: Final = 1 << 32
_GPU_SENSOR: Final = 0


class _CardFaultError(Exception):
    """A card answers nothing worth asking for any more, this tick."""

    def __init__(self, reason: Reason, what: str) -> None:
        super().__init__(what)
        self.reason = reason
        self.what = what


class _Known:
    """What is remembered of the card at one index of the library's order.

    Attributes:
        card: Last known identity.
        handle: The library's; None until looked up, and again after a loss.
        refused: Figure -> why, and until which tick it is not asked for again.
        memory_version: Of the memory call that this card answers; None until one did.
        gpm: None until the card was asked whether it supports it, False if it does not.
        strikes: Ticks in a row with nothing but UNKNOWN.
        heard: Whether a call of this tick ended in anything but UNKNOWN.
        code: What the last call that failed returned.
        inforom_corrupted: Whether a call of this tick said so.
    """

    __slots__ = (
        "card",
        "code",
        "gpm",
        "handle",
        "heard",
        "inforom_corrupted",
        "memory_version",
        "refused",
        "strikes",
    )

    def __init__(self, index: int) -> None:
        self.card = Card(index)
        self.gpm: GpmUtilization | bool | None = None
        self.handle: Any = None
        self.strikes = 0
        self.forget_handle()

    def forget_handle(self) -> None:
        """The next tick looks the card up again and believes nothing of what it did not support."""
        self.handle = None
        self.refused: dict[str, tuple[Reason, int]] = {}
        self.memory_version: int | None = None
        self.code = 0
        self.heard = False
        self.inforom_corrupted = False
        if isinstance(self.gpm, GpmUtilization):
            self.gpm.forget()
        else:
            self.gpm = None


class NvidiaCollector:
    """All cards that one NVML session counts.

    Args:
        monotonic_s: Seconds that never go back.
    """

    def __init__(self, *, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._monotonic_s = monotonic_s
        self._nvml: Any = None
        self._known: list[_Known] = []
        self._count = 0
        self._tick = 0
        self._unknown_cards = 0

    def open(self) -> None:
        try:
            import pynvml
        except ImportError:
            what = "the Python package nvidia-ml-py is not installed"
            raise CollectorError(CollectorState.LIBRARY_MISSING, what) from None
        self._nvml = pynvml
        self._of_the_library("nvmlInit", pynvml.nvmlInit)

    def cards(self) -> Iterator[Card]:
        self._tick += 1
        self._unknown_cards = 0
        count = self._of_the_library("nvmlDeviceGetCount", self._nvml.nvmlDeviceGetCount)
        if count > plausibility.CARDS_LIMIT:
            raise CollectorError(CollectorState.FAILED, f"nvmlDeviceGetCount answered {count} cards")
        if count != self._count:
            self._renumber(count)
        return iter([known.card for known in self._known[:count]])

    def read(self, card: Card) -> Reading:
        known = self._known[card.index]
        known.code = 0
        known.heard = known.inforom_corrupted = False
        try:
            identity = known.card
            if known.handle is None:
                self._look_up(known)
                identity = Card(card.index)
            if identity.id is None or identity.name is None or identity.pci_bus_id is None:
                identity = self._identity(known, identity)
            if identity.id is not None:
                known.card = identity
            reading = self._figures(known, identity)
            if not known.heard and known.code == nvml_codes.UNKNOWN:
                self._strike(known)
        except _CardFaultError as fault:
            return Reading.unreadable(known.card, fault.reason, fault.what)
        known.card = identity
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
        for known in self._known:
            known.forget_handle()
            known.card = Card(known.card.index)
            known.strikes = 0
        self._known.extend(_Known(index) for index in range(len(self._known), count))
        self._count = count

    def _look_up(self, known: _Known) -> None:
        known.forget_handle()
        try:
            known.handle = self._nvml.nvmlDeviceGetHandleByIndex(known.card.index)
        except self._nvml.NVMLError as error:
            self._refused_handle(known, error.value)

    def _refused_handle(self, known: _Known, code: int) -> NoReturn:
        if nvml_codes.blames_driver(code):
            raise nvml_codes.verdict(code, "nvmlDeviceGetHandleByIndex")
        if code == nvml_codes.UNKNOWN:
            self._strike(known)
        known.strikes = 0
        reason = nvml_codes.reason(code)
        if reason is Reason.UNSUPPORTED:  # of a handle, INVALID_ARGUMENT says that the index went out of range
            reason = Reason.TRANSIENT_DRIVER_ERROR
        what = "lost" if reason is Reason.LOST else "cannot be opened"
        raise _CardFaultError(reason, f"{what}: {nvml_codes.named(code)}")

    def _strike(self, known: _Known) -> NoReturn:
        """A card that answers nothing but UNKNOWN: soon lost, and if all cards do so, it is the driver."""
        self._unknown_cards += 1
        if self._unknown_cards == self._count > 1:
            raise CollectorError(
                CollectorState.FAILED, f"every card answers {nvml_codes.named(nvml_codes.UNKNOWN)}"
            )
        known.strikes += 1
        known.handle = None
        lost = known.strikes >= UNKNOWN_STRIKES
        reason = Reason.LOST if lost else Reason.TRANSIENT_DRIVER_ERROR
        what = f"{'lost: ' if lost else ''}answers {nvml_codes.named(nvml_codes.UNKNOWN)}"
        raise _CardFaultError(reason, what)

    def _identity(self, known: _Known, so_far: Card) -> Card:
        nvml = self._nvml
        uuid = so_far.id or _text(self._ask(known, "uuid", nvml.nvmlDeviceGetUUID))
        name = so_far.name or _text(self._ask(known, "name", nvml.nvmlDeviceGetName))
        address = so_far.pci_bus_id or _text(self._ask(known, "pci", self._bus_id))
        return Card(so_far.index, uuid, name, normalise(address) if address else None)

    def _bus_id(self, handle: Any) -> str:
        bus_id = self._nvml.nvmlDeviceGetPciInfo(handle).busId
        return bus_id if isinstance(bus_id, str) else bus_id.decode()

    def _figures(self, known: _Known, identity: Card) -> Reading:
        total, used = self._memory(known)
        cores = self._cores(known)
        temperature = self._temperature(known)
        power = self._ask(known, "power", self._nvml.nvmlDeviceGetPowerUsage)
        errors = self._ask(known, _ECC, self._nvml.nvmlDeviceGetMemoryErrorCounter, _UNCORRECTED, _VOLATILE, _DRAM)
        unhealthy, unread = _health(errors)
        if known.inforom_corrupted:
            unhealthy = unhealthy or nvml_codes.named(nvml_codes.CORRUPTED_INFOROM)
        return Reading(
            identity,
            total,
            used,
            cores,
            plausibility.celsius(temperature),
            plausibility.milliwatts(power),
            unhealthy,
            unread,
        )

    def _memory(self, known: _Known) -> tuple[Figure, Figure]:
        """Total and used. The older call counts the driver's reserve as used, so the choice is kept per card."""
        nvml = self._nvml
        if known.memory_version != 1:
            info = self._ask(known, "memory_v2", nvml.nvmlDeviceGetMemoryInfo, nvml.nvmlMemory_v2)
            if not isinstance(info, Reason):
                known.memory_version = 2
                return plausibility.bytes_pair(info.total, info.used)
            not_there = info is Reason.UNSUPPORTED or known.code == nvml_codes.UNKNOWN
            if known.memory_version == 2 or not not_there:
                return info, info
        info = self._ask(known, "memory_v1", nvml.nvmlDeviceGetMemoryInfo)
        if isinstance(info, Reason):
            return info, info
        known.memory_version = 1
        return plausibility.bytes_pair(info.total, info.used)

    def _cores(self, known: _Known) -> Figure:
        if known.gpm is None:
            self._ask_for_gpm(known)
        if isinstance(known.gpm, GpmUtilization):
            average = self._ask(known, "gpm", known.gpm.percent)
            if average is not None and average is not Reason.UNSUPPORTED:
                return _whole_percent(average)
        rates = self._ask(known, "utilization", self._nvml.nvmlDeviceGetUtilizationRates)
        if rates is Reason.UNSUPPORTED:
            return self._why_no_cores(known)
        return rates if isinstance(rates, Reason) else plausibility.percent(rates.gpu)

    def _ask_for_gpm(self, known: _Known) -> None:
        support = self._ask(known, "gpm_support", self._nvml.nvmlGpmQueryDeviceSupport)
        if support is Reason.UNSUPPORTED:
            known.gpm = False
        elif not isinstance(support, Reason):
            supported = bool(support.isSupportedDevice)
            known.gpm = GpmUtilization(self._nvml, self._monotonic_s) if supported else False

    def _why_no_cores(self, known: _Known) -> Reason:
        """The parent of a partitioned card has no utilization of its own. A pending change of mode is none yet."""
        mode = self._ask(known, "mig", self._nvml.nvmlDeviceGetMigMode)
        partitioned = not isinstance(mode, Reason) and mode[0] == 1
        return Reason.PARTITIONED if partitioned else Reason.UNSUPPORTED

    def _temperature(self, known: _Known) -> Any:
        """The call with a version replaces one that is going away; drivers before it know only the other."""
        temperature = self._ask(known, "temperature_v", self._nvml.nvmlDeviceGetTemperatureV, _GPU_SENSOR)
        if temperature is Reason.UNSUPPORTED:
            temperature = self._ask(known, "temperature", self._nvml.nvmlDeviceGetTemperature, _GPU_SENSOR)
        return temperature

    def _ask(self, known: _Known, what: str, call: Callable[..., Any], *arguments: Any) -> Any:
        """What one call on a card returns, or the reason for having nothing.

        Raises:
            _CardFaultError: The card is lost.
            CollectorError: The driver is.
        """
        if what in known.refused:
            reason, until = known.refused[what]
            if self._tick < until:
                return reason
        try:
            answer = call(known.handle, *arguments)
        except self._nvml.NVMLError as error:
            return self._refused(known, what, error.value)
        except UnicodeDecodeError:
            answer = Reason.INVALID_DATA
        except (self._nvml.NVMLLibraryMismatchError, AttributeError):
            answer = self._not_supported(known, what, Reason.UNSUPPORTED)
        known.heard = True
        return answer

    def _refused(self, known: _Known, what: str, code: int) -> Reason:
        known.code = code
        if nvml_codes.blames_driver(code):
            known.handle = None
            raise nvml_codes.verdict(code, f"card {known.card.index}: {what}")
        if nvml_codes.blames_card(code):
            known.handle = None
            known.strikes = 0
            raise _CardFaultError(Reason.LOST, f"lost: {nvml_codes.named(code)}")
        if code != nvml_codes.UNKNOWN:
            known.heard = True
        if code == nvml_codes.CORRUPTED_INFOROM:
            known.inforom_corrupted = True
        return self._not_supported(known, what, nvml_codes.reason(code))

    def _not_supported(self, known: _Known, what: str, reason: Reason) -> Reason:
        """The reason unchanged; remembered if it will still hold for a while."""
        if reason is Reason.UNSUPPORTED:
            known.refused[what] = (reason, self._tick + UNSUPPORTED_TICKS)
        return reason


def _health(errors: Any) -> tuple[str | None, dict[str, Reason]]:
    """The reason for calling a card unhealthy, and the checks that could not be read."""
    if isinstance(errors, Reason):
        return None, {_ECC: errors}
    if not 0 <= errors < _ECC_COUNT_LIMIT:
        return None, {_ECC: Reason.INVALID_DATA}
    return (f"{errors} uncorrected ECC errors in device memory" if errors else None), {}


def _whole_percent(average: Any) -> Figure:
    """Truncated. The library may answer with what is no number around a reset; a comparison with that is false."""
    if isinstance(average, Reason):
        return average
    return int(average) if 0.0 <= average <= 100.0 else Reason.INVALID_DATA


def _text(answer: Any) -> str | None:
    return answer if isinstance(answer, str) and not isinstance(answer, Reason) and answer.strip() else None
