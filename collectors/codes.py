"""What the error codes of a vendor library mean: one table per vendor."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from devicemanager.errors import CollectorError
from devicemanager.model.accelerator import CollectorState, Reason


class Fault(Enum):
    """What kind of failure a code is, whichever call returned it."""

    UNSUPPORTED = auto()
    """This card or driver has no such figure."""
    PERMISSION = auto()
    """The figure exists, and we may not read it."""
    BUSY = auto()
    """No value at the moment. A healthy card may answer so at any time."""
    TRANSIENT = auto()
    """The call failed, and the next one may not. Codes that a table does not name are of this kind."""
    DEGRADED = auto()
    """As :attr:`TRANSIENT`, and the card is damaged, though it goes on working."""
    LOST = auto()
    """The card is gone or needs a reset, whichever figure was asked for."""
    DRIVER = auto()
    """The library or driver as a whole cannot be used, whichever card was asked."""
    AMBIGUOUS = auto()
    """A fault of a figure, a card or the driver: that depends on how many answer so, and how often."""


_REASONS: Final = {
    Fault.UNSUPPORTED: Reason.UNSUPPORTED,
    Fault.PERMISSION: Reason.PERMISSION,
    Fault.LOST: Reason.LOST,
}


@dataclass(frozen=True, slots=True)
class ErrorCodes:
    """The codes of one library, or of all libraries built like it.

    Attributes:
        names: Code -> the library's own name for it.
        faults: Code -> its kind; :attr:`Fault.TRANSIENT` for a code that is not there.
        states: Code -> the state of the collector when a call for the library as a whole returned it.
    """

    names: Mapping[int, str]
    faults: Mapping[int, Fault]
    states: Mapping[int, CollectorState]

    def named(self, code: int) -> str:
        """The code as a person can look it up: ``GPU_IS_LOST (15)``."""
        return f"{self.names.get(code, 'code')} ({code})"

    def fault(self, code: int) -> Fault:
        """What kind of failure the code is."""
        return self.faults.get(code, Fault.TRANSIENT)

    def reason(self, code: int) -> Reason:
        """Why a figure is absent whose call returned this code."""
        return _REASONS.get(self.fault(code), Reason.TRANSIENT_DRIVER_ERROR)

    def failure(self, code: int, call: str) -> CollectorError:
        """The error for the library as a whole when ``call`` returned this code."""
        otherwise = CollectorState.NO_PERMISSION if self.fault(code) is Fault.PERMISSION else CollectorState.FAILED
        return CollectorError(self.states.get(code, otherwise), f"{call} answered {self.named(code)}")
