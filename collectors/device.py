"""One device of a vendor library: its handle, what is remembered of it, and the calls to it.

The same for every vendor; a :class:`collectors.vendor_library.VendorLibrary` supplies calls, units and codes. A
call returns a value or a reason. Only a code for a device that is gone is an exception.
"""

from collections.abc import Callable
from typing import Any, Final

from collectors.codes import Fault
from collectors.pci_address import normalise
from collectors.query_failures import QueryFailures
from collectors.vendor_library import Health, VendorLibrary
from devicemanager.model.accelerator import Card
from devicemanager.model.reasons import Reason

UNSUPPORTED_TICKS: Final = 20
"""Ticks for which a call that is not supported is not made again: 5 minutes at the default period. Not for ever,
because a driver also says "not supported" while partitioning is on, or of a handle that became invalid."""

HEALTH_TICKS: Final = 4
"""The health checks, which cost a call each, are made in every fourth tick; devices take turns by their index.
While one cannot be read, they are made in every tick: one that keeps failing is noticed as soon as a figure is."""

HEALTH_S: Final = 60.0
"""The longest time for which the result of a health check is kept, whatever the period."""

KEPT_FAILURES: Final = 3
"""Ticks in a row in which a preferred call must fail, after it had answered, before a call of another meaning is
taken in its place."""

Call = Callable[[Any], Any]
"""Takes a handle and returns what the library answers: a Reason where a value says that there is none, None where
there is none yet. Names of the vendor's module are looked up only within, where a missing one is caught."""


class DeviceLostError(Exception):
    """A device is lost: it is not read any further in this tick.

    Attributes:
        code: The library's code.
    """

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Device:
    """What is remembered of the device behind one index of the library's order.

    An index is not an identity: everything but the strikes is of the device that the handle led to, and goes with
    it.

    Attributes:
        identity: What the library said of this handle; nothing without a handle.
        handle: The library's; None until looked up, and again after a loss.
        strikes: Ticks in a row with nothing but ambiguous codes.
        codes: What failed in this tick, the identity aside, in order: what was asked and the code.
        failures: Of the queries, in this tick and those before.
        notes: Figure -> what its value is, where the vendor's module had to take another than the usual one.
        kept: What the vendor's module keeps about this device; emptied when it is, or may be, another one.
    """

    def __init__(self, index: int, library: VendorLibrary) -> None:
        self.index = index
        self.identity = Card(index)
        self.handle: Any = None
        self.strikes = 0
        self.failures = QueryFailures(library.codes)
        self._library = library
        self._forget()
        self.begin(0, 0.0)

    def begin(self, tick: int, now_s: float) -> None:
        """A tick begins.

        Args:
            tick: Its number, from 1.
            now_s: Monotonic time.
        """
        self._tick = tick
        self._now_s = now_s
        self.codes: list[tuple[str, int]] = []
        self.notes: dict[str, str] = {}
        self.failures.begin()

    def drop_handle(self) -> None:
        """Forget handle and identity; the next tick looks the device up again."""
        handle, self.handle = self.handle, None
        self.identity = Card(self.index)
        self._forget()
        if handle is not None:
            try:
                self._library.release(handle)
            except Exception as error:
                if self._library.code_of(error) is None:
                    raise

    def _forget(self) -> None:
        """Forget what was learned from calls: this is, or may be, another device."""
        self.kept: dict[str, Any] = {}
        self._refused: dict[tuple[str, int], int] = {}  # a call -> the tick in which it is made again
        self._preferred: dict[str, int] = {}  # a query whose first call has answered -> its failures since
        self._health: Health | None = None
        self._health_due = (0, 0.0)  # tick and time
        self.failures.forget()

    def identify(self) -> Card:
        """The identity of the device behind the handle, read in this tick.

        The UUID is read at every tick, because a library may lead a handle that was kept to another device. While
        it cannot be read, nothing that was read earlier is believed either.

        Raises:
            DeviceLostError: The device is lost.
        """
        uuid = _text(self._attempt(self._library.uuid))
        before = self.identity
        same = uuid is not None and uuid == before.id
        if same and before.name is not None and before.pci_bus_id is not None:
            return before
        known = before if same else Card(self.index, uuid)
        self.identity = known  # also of a device that is lost before it has said the rest
        name = known.name or _text(self._attempt(self._library.name))
        address = known.pci_bus_id or _address(self._attempt(self._library.pci_address))
        serial = known.serial or _text(self._attempt(self._library.serial))
        self.identity = Card(self.index, uuid, name, address, serial=serial)
        if (uuid, address) != (before.id, before.pci_bus_id):
            self._forget()
        return self.identity

    def query(self, name: str, *calls: Call, keep: bool = False) -> Any:
        """What the first of several calls that answers returns, or the reason for having nothing.

        A query that fails, and keeps failing, makes the device unhealthy.

        Args:
            name: For people and for what is remembered.
            calls: In order of preference. Any failure leads to the next, and so does None.
            keep: The calls differ in meaning, so they must not alternate: once the first has answered, another is
                taken only when the first keeps failing, and left again when it answers.

        Raises:
            DeviceLostError: The device is lost.
        """
        reason, failed_with = Reason.UNSUPPORTED, None
        for position, call in enumerate(calls):
            answer, code = self._call(name, position, call)
            if answer is None:
                continue
            if not isinstance(answer, Reason):
                self.failures.record(name, None)
                if keep and position == 0:
                    self._preferred[name] = 0
                return answer
            waits = position == 0 and self._waits_for_preferred(name)
            if waits or answer is not Reason.UNSUPPORTED:
                reason, failed_with = answer, code
            if waits:
                break
        self.failures.record(name, failed_with)
        return reason

    def excuse(self, name: str, reason: Reason) -> Reason:
        """Count a query without an answer as not failed, for this reason. Returns the reason."""
        self.failures.record(name, None)
        return reason

    def ask(self, name: str, call: Call) -> Any:
        """What one call returns, or the reason for having nothing. Its failures do not count as the device's.

        Raises:
            DeviceLostError: The device is lost.
        """
        return self._call(name, 0, call)[0]

    def health(self) -> Health:
        """The results of the health checks: of this tick, or of an earlier one (:data:`HEALTH_TICKS`).

        Raises:
            DeviceLostError: The device is lost.
        """
        due_tick, due_s = self._health_due
        if self._health is not None and self._tick < due_tick and self._now_s < due_s:
            return self._health
        self._health = None  # also if the device is lost meanwhile
        health = self._library.health(self)
        if not self.failures.any and Reason.TRANSIENT_DRIVER_ERROR not in health.unread.values():
            self._health = health
            turn = (self._tick + self.index) % HEALTH_TICKS
            self._health_due = (self._tick + HEALTH_TICKS - turn, self._now_s + HEALTH_S)
        return health

    def _waits_for_preferred(self, name: str) -> bool:
        """Whether the first call of a query, which just failed, answered so recently that it is waited for."""
        if name not in self._preferred:
            return False
        self._preferred[name] += 1
        return self._preferred[name] < KEPT_FAILURES

    def _call(self, name: str, position: int, call: Call) -> tuple[Any, int | None]:
        """What one call returns, or the reason for having nothing and the code that says so, which is noted.

        A call that is remembered as not supported is not made.
        """
        if self._refused and self._tick < self._refused.get((name, position), 0):
            return Reason.UNSUPPORTED, None
        code = None
        try:
            answer = call(self.handle)
        except Exception as error:  # noqa: BLE001 - what is not the library's is raised again
            answer, code = self._reason(error)
            if code is not None:
                self.codes.append((name, code))
        if answer is Reason.UNSUPPORTED:
            self._refused[name, position] = self._tick + UNSUPPORTED_TICKS
        return answer, code

    def _attempt(self, call: Call) -> Any:
        """What a call about the identity returns, or the reason for having nothing."""
        try:
            return call(self.handle)
        except Exception as error:  # noqa: BLE001 - what is not the library's is raised again
            return self._reason(error)[0]

    def _reason(self, error: Exception) -> tuple[Reason, int | None]:
        """The reason for having nothing, and the code that says so. Raises what is not the library's."""
        if isinstance(error, UnicodeDecodeError):
            return Reason.INVALID_DATA, None
        code = self._library.code_of(error)
        if code is None and isinstance(error, AttributeError | TypeError):
            return Reason.UNSUPPORTED, None
        if code is None:
            raise error
        fault = self._library.codes.fault(code)
        if fault is Fault.LOST:
            raise DeviceLostError(code)
        if fault is Fault.DEGRADED:
            self.failures.degraded(code)
        return self._library.codes.reason(code), code


def _text(answer: Any) -> str | None:
    """Some bindings answer with bytes."""
    if isinstance(answer, bytes):
        try:
            answer = answer.decode()
        except UnicodeDecodeError:
            return None
    return answer if isinstance(answer, str) and not isinstance(answer, Reason) and answer.strip() else None


def _address(answer: Any) -> str | None:
    address = _text(answer)
    return normalise(address) if address else None
