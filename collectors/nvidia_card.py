"""One NVIDIA card: its handle, what is remembered of it, and the one place at which its calls are made.

A call returns a value or a reason. Only a code that says that the card itself is gone is an exception.
"""

from collections.abc import Callable
from typing import Any, Final

from collectors import nvml_codes
from collectors.nvidia_gpm import GpmUtilization
from collectors.pci_address import normalise
from devicemanager.model.accelerator import Card, Reason

UNSUPPORTED_TICKS: Final = 20
"""Ticks for which a figure that is not supported is not asked for again: 5 minutes at the default period. Not for
ever, because a driver also says "not supported" while partitioning is on, or of a handle that became invalid."""

Call = Callable[[Any, Any], Any]
"""Takes the ``pynvml`` module and a handle. Names of the module are looked up only within, where a missing one is
caught."""


class CardFaultError(Exception):
    """A card answers nothing worth asking for any more, this tick."""

    def __init__(self, reason: Reason, what: str) -> None:
        super().__init__(what)
        self.reason = reason
        self.what = what


class NvidiaCard:
    """What is remembered of the card behind one index of the library's order.

    An index is not an identity: everything but the strikes is of the card that the handle led to, and goes with it.

    Attributes:
        index: Of the library's order.
        identity: What the library said of this handle; nothing without a handle.
        handle: The library's; None until looked up, and again after a loss.
        memory_version: Of the memory call that this card answers; None until the newer one did.
        memory_failures: Ticks in a row in which the newer memory call failed after it had answered.
        gpm: None until the card was asked whether it supports it, False if it does not.
        failing: Query -> readings in a row in which it failed; see :mod:`collectors.nvidia_health`.
        strikes: Ticks in a row with nothing but UNKNOWN.
        codes: What the calls of this tick returned that failed, those for its identity aside: call -> code.
        memory_faults: What its health checks last said of its memory.
        inforom_corrupted: Whether a call of this tick said so.
    """

    def __init__(self, index: int, nvml: Any) -> None:
        self.index = index
        self.strikes = 0
        self.gpm: GpmUtilization | bool | None = None
        self.codes: dict[str, int] = {}
        self.inforom_corrupted = False
        self._nvml = nvml
        self._tick = 0
        # Raised by the binding for symbols that a library of another release lacks; older bindings do not know it.
        self._not_there = (AttributeError, TypeError, getattr(nvml, "NVMLLibraryMismatchError", AttributeError))
        self.drop_handle()

    def drop_handle(self) -> None:
        """The next tick looks the card up again, and whatever it finds says anew who it is."""
        self.handle: Any = None
        self.identity = Card(self.index)
        self._forget()

    def _forget(self) -> None:
        """Believe nothing of what this card did not support: it is, or may be, another one."""
        self._refused: dict[str, int] = {}
        self.memory_version: int | None = None
        self.memory_failures = 0
        self.failing: dict[str, int] = {}
        self.memory_faults: tuple[str, ...] = ()
        if isinstance(self.gpm, GpmUtilization):
            self.gpm.forget()
        else:
            self.gpm = None

    def begin(self, tick: int) -> None:
        """A tick begins; ticks are numbered."""
        self._tick = tick
        self.codes = {}
        self.inforom_corrupted = False

    def identify(self) -> Card:
        """Who this handle leads to, as the library says in this tick.

        The UUID is read at every tick, because a library may lead a handle that was kept to another card. While it
        cannot be read, nothing that was read earlier is believed either.
        """
        uuid = _text(self._identity("uuid", lambda nvml, handle: nvml.nvmlDeviceGetUUID(handle)))
        before = self.identity
        same = before if uuid is not None and uuid == before.id else Card(self.index, uuid)
        self.identity = same  # also of a card that is lost before it has said the rest
        name = same.name or _text(self._identity("name", lambda nvml, handle: nvml.nvmlDeviceGetName(handle)))
        address = same.pci_bus_id or _address(
            self._identity("pci", lambda nvml, handle: nvml.nvmlDeviceGetPciInfo(handle).busId)
        )
        self.identity = Card(self.index, uuid, name, address)
        if (uuid, address) != (before.id, before.pci_bus_id):
            self._forget()
        return self.identity

    def _identity(self, call_name: str, call: Call) -> Any:
        answer = self.ask(call_name, call)
        self._refused.pop(call_name, None)  # who a card is, is asked for until it is known
        self.codes.pop(call_name, None)
        return answer

    def ask(self, call_name: str, call: Call) -> Any:
        """What one call on this card returns, or the reason for having nothing.

        Raises:
            CardFaultError: The card is lost.
        """
        if self._tick < self._refused.get(call_name, 0):
            return Reason.UNSUPPORTED
        try:
            return call(self._nvml, self.handle)
        except self._nvml.NVMLError as error:
            return self._failed(call_name, error.value)
        except UnicodeDecodeError:
            return Reason.INVALID_DATA
        except self._not_there:
            return self._remembered(call_name, Reason.UNSUPPORTED)

    def _failed(self, call_name: str, code: int) -> Reason:
        self.codes[call_name] = code
        if nvml_codes.blames_card(code):
            raise CardFaultError(Reason.LOST, f"lost: {nvml_codes.named(code)}")
        if code == nvml_codes.CORRUPTED_INFOROM:
            self.inforom_corrupted = True
        return self._remembered(call_name, nvml_codes.reason(code))

    def _remembered(self, call_name: str, reason: Reason) -> Reason:
        """The reason unchanged; remembered if it will still hold for a while."""
        if reason is Reason.UNSUPPORTED:
            self._refused[call_name] = self._tick + UNSUPPORTED_TICKS
        return reason


def _text(answer: Any) -> str | None:
    """Older bindings answer with bytes."""
    if isinstance(answer, bytes):
        try:
            answer = answer.decode()
        except UnicodeDecodeError:
            return None
    return answer if isinstance(answer, str) and not isinstance(answer, Reason) and answer.strip() else None


def _address(answer: Any) -> str | None:
    address = _text(answer)
    return normalise(address) if address else None
