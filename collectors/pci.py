"""Which accelerators are on the PCI bus, from ``/sys`` alone.

A hint that a manufacturer's collector should run, and the addresses for cards whose library cannot name them. It
says nothing of their health. Reading needs no privilege.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from os.path import lexists
from pathlib import Path
from typing import Final

from collectors.pci_address import normalise
from collectors.registry import MANUFACTURERS

_DEVICES: Final = Path("bus/pci/devices")
_DISPLAY: Final = "03"
_ENCRYPTION: Final = "1080"


@dataclass(frozen=True, slots=True)
class PciDevice:
    """One function on the bus that could be an accelerator.

    Attributes:
        address: ``dddd:bb:dd.f``, lower case.
        vendor: Four hexadecimal digits.
        device: Four hexadecimal digits.
        class_code: Six hexadecimal digits: class, subclass, programming interface.
        driver: Kernel driver bound to it; None when there is none.
        integrated: Part of the processor: it shares the host's memory and is no card.
        virtual_function: A share of another function of this host, which is listed itself.
    """

    address: str
    vendor: str
    device: str
    class_code: str
    driver: str | None = None
    integrated: bool = False
    virtual_function: bool = False

    @property
    def passthrough(self) -> bool:
        """Assigned to a virtual machine: this host cannot read it."""
        return self.driver == "vfio-pci"

    @property
    def ours(self) -> bool:
        """Whether a collector on this host should be able to read it."""
        return not (self.passthrough or self.integrated or self.virtual_function)


def scan(sys_root: Path = Path("/sys")) -> tuple[PciDevice, ...]:
    """All candidates of known manufacturers, in order of address; empty where the bus cannot be read.

    Args:
        sys_root: Where the host's ``/sys`` is.
    """
    vendors = {one.pci_vendor_id: one for one in MANUFACTURERS.values() if one.pci_vendor_id}
    functions = sorted(_functions(sys_root / _DEVICES))
    classes = {address: class_code for address, _, class_code, _ in functions}
    return tuple(
        PciDevice(
            address=address,
            vendor=vendor,
            device=_identifier(path / "device") or "0000",
            class_code=class_code,
            driver=_link_name(path / "driver"),
            integrated=vendors[vendor].pci_integrated
            and class_code.startswith(_DISPLAY)
            and _in_processor(address, classes),
            virtual_function=lexists(path / "physfn"),
        )
        for address, vendor, class_code, path in functions
        if vendor in vendors and class_code[:2] in vendors[vendor].pci_classes
    )


def nothing_found(sys_root: Path = Path("/sys")) -> str:
    """What to say where no manufacturer has a card: also of a bus that cannot be looked at."""
    folder = sys_root / _DEVICES
    if not folder.is_dir():
        return f"no PCI bus can be looked at, {folder} does not exist"
    return "no accelerator of a known manufacturer is on the PCI bus"


def detect(devices: Iterable[PciDevice]) -> tuple[str, ...]:
    """Names of the manufacturers that have a card here which this host can read, in alphabetical order."""
    present = {device.vendor for device in devices if device.ours}
    return tuple(sorted(one.name for one in MANUFACTURERS.values() if one.pci_vendor_id in present))


def addresses(devices: Iterable[PciDevice], manufacturer: str) -> tuple[str, ...]:
    """Where a manufacturer's readable cards are; empty for a manufacturer that is not on a PCI bus."""
    known = MANUFACTURERS.get(manufacturer)
    if known is None or known.pci_vendor_id is None:
        return ()
    return tuple(device.address for device in devices if device.ours and device.vendor == known.pci_vendor_id)


def taken(devices: Iterable[PciDevice], manufacturer: str) -> tuple[str, ...]:
    """Where a manufacturer's driver has taken cards, all of which its library must count; empty if unknown."""
    known = MANUFACTURERS.get(manufacturer)
    if known is None or known.kernel_module is None:
        return ()
    return tuple(
        device.address
        for device in devices
        if device.ours
        and device.vendor == known.pci_vendor_id
        and device.driver == known.kernel_module
        and device.class_code[:4] in known.pci_card_classes
    )


def _functions(folder: Path) -> Iterator[tuple[str, str, str, Path]]:
    """Address, vendor, class and folder of each function that is still there when it is read."""
    try:
        entries = list(folder.iterdir())
    except OSError:
        return
    for path in entries:
        address, vendor, class_code = (
            normalise(path.name),
            _identifier(path / "vendor"),
            _identifier(path / "class"),
        )
        if address and vendor and class_code:
            yield address, vendor, class_code, path


def _in_processor(address: str, classes: dict[str, str]) -> bool:
    """Whether a display function belongs to the processor.

    Its package then carries the processor's security co-processor, which no graphics card has. AMD's MI300A, an APU
    that is sold as an accelerator, calls itself class 12 and never gets here.
    """
    package = address.rpartition(".")[0] + "."
    return any(other.startswith(package) and code.startswith(_ENCRYPTION) for other, code in classes.items())


def _identifier(path: Path) -> str | None:
    """The hexadecimal digits of a one-line file such as ``vendor`` (``0x10de``); None where it cannot be read."""
    try:
        content = path.read_bytes()[:16].decode("ascii", "replace").strip().lower()
    except OSError:
        return None
    digits = content.removeprefix("0x")
    return digits if digits and all(c in "0123456789abcdef" for c in digits) else None


def _link_name(path: Path) -> str | None:
    try:
        return path.readlink().name
    except OSError:
        return None
