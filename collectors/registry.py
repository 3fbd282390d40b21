"""Which manufacturers there are, and what is known of each without loading its library.

A manufacturer is one entry of the table, and nothing else here or in :mod:`collectors.pci` knows any by name. No
collector is imported before :func:`load` is asked for it, and entry points are looked up only for names that this
project does not build: reading package metadata costs more than a whole sample.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from operator import attrgetter
from types import MappingProxyType
from typing import Final

from collectors.contract import ENTRY_POINT_GROUP, Collector
from devicemanager.errors import SettingsError, excerpt


@dataclass(frozen=True, slots=True, kw_only=True)
class Manufacturer:
    """What is known of one manufacturer without its library.

    Attributes:
        name: As users, snapshots and allocations spell it.
        collector: ``module:function`` or ``module:Class``, which makes its collector; None while there is none.
        simulated: Its cards do what a scenario says: the collector takes a name and a scenario's path, and
            ``<name>-<x>`` is a manufacturer too.
        library: The file that the dynamic linker is asked for; None where no library is needed.
        pci_vendor_id: Four hexadecimal digits in lower case; None where cards are not on a PCI bus.
        pci_classes: First bytes of the class codes of its accelerators on the bus. Display controller, processor
            and processing accelerator are all that cards have been seen to call themselves.
        pci_integrated: Whether its processors have displays of their own, which are no cards.
        resource_name: The extended resource of a whole card in Kubernetes; None where there is none.
        runtime_class: Kubernetes RuntimeClass that injects the driver by default; None without one.
        host_mounts: Directories of the host, read only, in which the library lives when no runtime injects it.
        kernel_module: Its name under ``/sys/module`` while the driver is loaded; None where that is not known.
        device_node: The file under ``/dev`` without which the library cannot be used; None where that is not known.
        pci_card_classes: First two bytes of the class codes of functions that the library counts once the kernel
            module of this name is their driver; empty where that is not known.
        card_nodes: Pattern of the files under ``/dev`` of which each card has one; None where that is not known.
        visible_devices: The variable that says ``all`` where a container was given all cards; None without one.
    """

    name: str
    collector: str | None = None
    simulated: bool = False
    library: str | None = None
    pci_vendor_id: str | None = None
    pci_classes: frozenset[str] = frozenset({"03", "0b", "12"})
    pci_integrated: bool = False
    resource_name: str | None = None
    runtime_class: str | None = None
    host_mounts: tuple[str, ...] = ()
    kernel_module: str | None = None
    device_node: str | None = None
    pci_card_classes: frozenset[str] = frozenset()
    card_nodes: str | None = None
    visible_devices: str | None = None

    @property
    def built(self) -> bool:
        """Whether there is a collector for it."""
        return self.collector is not None


_ALL: Final = (
    Manufacturer(
        name="amd",
        library="libamd_smi.so",
        pci_vendor_id="1002",
        pci_integrated=True,
        resource_name="amd.com/gpu",
        host_mounts=("/opt/rocm",),
        kernel_module="amdgpu",
        device_node="kfd",
    ),
    Manufacturer(
        name="ascend",
        library="libdcmi.so",
        pci_vendor_id="19e5",
        pci_classes=frozenset({"0b", "12"}),  # every Kunpeng server has a Huawei VGA device in its iBMC
        resource_name="huawei.com/npu",
        runtime_class="ascend",
        host_mounts=("/usr/local/dcmi", "/usr/local/Ascend"),
    ),
    Manufacturer(
        name="cambricon",
        library="libcndev.so",
        pci_vendor_id="cabc",
        resource_name="cambricon.com/mlu",
        runtime_class="cambricon",
        host_mounts=("/usr/local/neuware",),
    ),
    Manufacturer(
        name="hygon",
        library="librocm_smi64.so",
        pci_vendor_id="1d94",
        resource_name="hygon.com/dcu",
        host_mounts=("/opt/hyhal", "/opt/dtk"),
    ),
    Manufacturer(
        name="iluvatar",
        library="libixml.so",
        pci_vendor_id="1e3e",
        resource_name="iluvatar.com/gpu",
        runtime_class="iluvatar",
        host_mounts=("/usr/local/corex",),
    ),
    Manufacturer(
        name="metax",
        library="libmxsml.so",
        pci_vendor_id="9999",
        resource_name="metax-tech.com/gpu",
        host_mounts=("/opt/mxdriver", "/opt/maca"),
    ),
    Manufacturer(
        name="mthreads",
        library="libmtml.so.2",
        pci_vendor_id="1ed5",
        resource_name="mthreads.com/gpu",
        runtime_class="mthreads",
    ),
    Manufacturer(
        name="nvidia",
        collector="collectors.nvidia:collector",
        library="libnvidia-ml.so.1",
        pci_vendor_id="10de",
        resource_name="nvidia.com/gpu",
        runtime_class="nvidia",
        kernel_module="nvidia",
        device_node="nvidiactl",
        pci_card_classes=frozenset({"0300", "0302"}),
        card_nodes="nvidia[0-9]*",
        visible_devices="NVIDIA_VISIBLE_DEVICES",
    ),
    Manufacturer(
        name="thead",
        library="libhgml.so",
        pci_vendor_id="1ded",
        resource_name="alibabacloud.com/ppu",
        host_mounts=("/usr/local/PPU_SDK",),
    ),
    Manufacturer(name="simulated", collector="collectors.simulated:SimulatedCollector", simulated=True),
)

MANUFACTURERS: Final[Mapping[str, Manufacturer]] = MappingProxyType({one.name: one for one in _ALL})
"""By name. Third parties' manufacturers and ``simulated-<x>`` are found by :func:`known` only."""


def known(name: str) -> Manufacturer | None:
    """The manufacturer of this name, ``simulated-<x>`` and entry points included; None if there is none.

    Raises:
        SettingsError: More than one installed package provides it.
    """
    entry = MANUFACTURERS.get(name) or _of_a_family(name)
    if entry is not None and entry.built:
        return entry
    plug_in = _plugged_in(name)
    return entry if plug_in is None else replace(entry or Manufacturer(name=name), collector=plug_in)


def those_known(name: str) -> str:
    """What to say of a name that is not known: what may have been meant, and all that there are."""
    import difflib
    from importlib.metadata import entry_points

    names = sorted({*MANUFACTURERS, *entry_points(group=ENTRY_POINT_GROUP).names})
    close = difflib.get_close_matches(name, names, n=1)
    return f"{f'did you mean {close[0]}? ' if close else ''}known are {', '.join(names)}"


def load(name: str, *, scenario: str | None = None) -> Collector:
    """A collector that is not opened yet.

    Args:
        name: Of the manufacturer.
        scenario: Path of the file that says what simulated cards do; refused for any other manufacturer.

    Raises:
        SettingsError: No collector of this name can be had. The message says which names there are.
    """
    entry = known(name)
    if entry is None:
        raise SettingsError([f"no manufacturer is called {excerpt(name)!r}; {those_known(name)}"])
    if scenario is not None and not entry.simulated:
        raise SettingsError([f"a scenario is for simulated cards, not for {name}"])
    if entry.collector is None:
        built = ", ".join(one.name for one in _ALL if one.built)
        raise SettingsError([f"the collector for {name} is not built yet; built are {built}"])
    module, _, attribute = entry.collector.partition(":")
    try:
        make = attrgetter(attribute)(import_module(module))
        collector = make(name, scenario) if entry.simulated else make()
    except Exception as error:
        raise SettingsError(
            [f"{entry.collector}, which provides {name}, does not load: {type(error).__name__}"]
        ) from error
    if not isinstance(collector, Collector):
        raise SettingsError([f"{entry.collector}, which provides {name}, is no collector"])
    return collector


def _of_a_family(name: str) -> Manufacturer | None:
    """``simulated-<x>``, x being lower-case letters, digits and hyphens."""
    family, _, suffix = name.partition("-")
    entry = MANUFACTURERS.get(family)
    if entry is None or not entry.simulated:
        return None
    well_formed = suffix.replace("-", "").isalnum() and suffix.islower() and suffix.isascii()
    return replace(entry, name=name) if well_formed else None


def _plugged_in(name: str) -> str | None:
    """What makes the collector that another installed package provides."""
    from importlib.metadata import entry_points

    points = entry_points(group=ENTRY_POINT_GROUP, name=name)
    found = sorted(f"{one.module}:{one.attr}" for one in points)
    if len(found) > 1:
        raise SettingsError([f"more than one installed package provides {name}: {', '.join(found)}"])
    return found[0] if found else None
