"""What a vendor's module supplies to the code that all vendors share: calls, units and codes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from collectors.codes import ErrorCodes
from devicemanager.model.accelerator import Versions
from devicemanager.model.reasons import Reason

if TYPE_CHECKING:  # a device needs its library
    from collectors.device import Device


@dataclass(frozen=True, slots=True)
class Health:
    """Results of the health checks of one device.

    Attributes:
        faults: One line for each failed check.
        unread: Checks that could not be read: name of the check -> reason.
    """

    faults: Sequence[str] = ()
    unread: Mapping[str, Reason] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CallNames:
    """Names of the calls that are not about a figure, for messages."""

    open: str
    count: str
    handle: str


class VendorLibrary(Protocol):
    """What a vendor's module supplies: calls, units and codes.

    Every call may raise what the vendor's binding raises; :meth:`code_of` tells its errors from others. A missing
    name (AttributeError) or argument (TypeError) of a binding of another release counts as not supported.

    Attributes:
        codes: What the library's codes mean.
        call_names: For messages.
        found: The file or package that was found, for the log; None before :meth:`open`.
        found_fault: What is unusual about it, if anything.
        versions: Of driver and library, as far as it says them; nothing before :meth:`open`.
    """

    codes: ErrorCodes
    call_names: CallNames
    found: str | None
    found_fault: str | None
    versions: Versions

    def open(self) -> None:
        """Load and initialise the library. May also raise a CollectorError of its own."""
        ...

    def close(self) -> None:
        """Give the library back. All handles were released before."""
        ...

    def code_of(self, error: Exception) -> int | None:
        """The library's code in an error; None if the error is not the library's."""
        ...

    def count(self) -> int:
        """How many devices the library counts now. Must not touch any of them."""
        ...

    def handle(self, index: int) -> Any:
        """What the other calls take for the device at an index below the count; opens the device."""
        ...

    def release(self, handle: Any) -> None:
        """Release a handle that is not used any more."""
        ...

    def uuid(self, handle: Any) -> Any:
        """The vendor's own identifier, as text or bytes. Asked at every tick."""
        ...

    def name(self, handle: Any) -> Any:
        """The product name, as text or bytes. Asked until it is known."""
        ...

    def pci_address(self, handle: Any) -> Any:
        """Where the device is, as text or bytes in any usual spelling. Asked until it is known."""
        ...

    def serial(self, handle: Any) -> Any:
        """The serial number of the board, as text or bytes. Asked with the name."""
        ...

    def figures(self, device: "Device") -> Mapping[str, Any]:
        """Every figure, read by :meth:`Device.query`: its name in the table -> raw value or reason.

        The table is :data:`devicemanager.model.figures.FIGURES`. Raw values are in the units of readings, and
        checked by the caller. A figure that is left out is ``unsupported``.
        """
        ...

    def health(self, device: "Device") -> Health:
        """The health checks of a device whose figures were read in this tick."""
        ...
