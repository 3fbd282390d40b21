"""Which manufacturers there are, and what is known of each without loading its library.

Nothing here imports a collector before :func:`load` is asked for it, and entry points are looked up only for names
that this project does not build: reading package metadata costs more than a whole sample.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from collectors.contract import ENTRY_POINT_GROUP, Collector
from devicemanager.errors import SettingsError, excerpt

SIMULATED: Final = "simulated"


@dataclass(frozen=True, slots=True)
class Manufacturer:
    """What is known of one manufacturer without its library.

    Attributes:
        name: As users, snapshots and allocations spell it.
        pci_vendor_id: Four hexadecimal digits in lower case; None where cards are not on a PCI bus.
        resource_name: The extended resource of a whole card in Kubernetes; None where there is none.
        library: The file that the dynamic linker is asked for; None where no library is needed.
        runtime_class: Kubernetes RuntimeClass that injects the driver by default; None without one.
        host_mounts: Directories of the host, read only, in which the library lives when no runtime injects it.
        kernel_module: Its name under ``/sys/module`` while the driver is loaded; None where that is not known.
        device_node: The file under ``/dev`` without which the library cannot be used; None where that is not known.
        built: Whether a collector for it exists in this release.
    """

    name: str
    pci_vendor_id: str | None = None
    resource_name: str | None = None
    library: str | None = None
    runtime_class: str | None = None
    host_mounts: tuple[str, ...] = ()
    kernel_module: str | None = None
    device_node: str | None = None
    built: bool = False


_ALL: Final = (
    Manufacturer("amd", "1002", "amd.com/gpu", "libamd_smi.so", "amd", ("/opt/rocm",), "amdgpu", "kfd"),
    Manufacturer(
        "ascend",
        "19e5",
        "huawei.com/npu",
        "libdcmi.so",
        "ascend",
        ("/usr/local/dcmi", "/usr/local/Ascend"),
    ),
    Manufacturer("cambricon", "cabc", "cambricon.com/mlu", "libcndev.so", "cambricon", ("/usr/local/neuware",)),
    Manufacturer("hygon", "1d94", "hygon.com/dcu", "librocm_smi64.so", "hygon", ("/opt/hyhal", "/opt/dtk")),
    Manufacturer("iluvatar", "1e3e", "iluvatar.com/gpu", "libixml.so", "iluvatar", ("/usr/local/corex",)),
    Manufacturer("metax", "9999", "metax-tech.com/gpu", "libmxsml.so", "metax", ("/opt/mxdriver", "/opt/maca")),
    Manufacturer("mthreads", "1ed5", "mthreads.com/gpu", "libmtml.so.2", "mthreads"),
    Manufacturer(
        "nvidia", "10de", "nvidia.com/gpu", "libnvidia-ml.so.1", "nvidia", (), "nvidia", "nvidiactl", built=True
    ),
    Manufacturer("thead", "1ded", "alibabacloud.com/ppu", "libhgml.so", None, ("/usr/local/PPU_SDK",)),
    Manufacturer(SIMULATED, built=True),
)

MANUFACTURERS: Final[Mapping[str, Manufacturer]] = MappingProxyType({one.name: one for one in _ALL})
"""By name. Third parties' manufacturers and ``simulated-<x>`` are found by :func:`known` only."""


def known(name: str) -> Manufacturer | None:
    """The manufacturer of this name, ``simulated-<x>`` and entry points included; None if there is none."""
    if name in MANUFACTURERS:
        return MANUFACTURERS[name]
    if is_simulated(name) or _is_plugged_in(name):
        return Manufacturer(name, built=True)
    return None


def is_simulated(name: str) -> bool:
    """Whether the name is ``simulated`` or ``simulated-<x>``, x being lower-case letters, digits and hyphens."""
    prefix, _, suffix = name.partition("-")
    if prefix != SIMULATED:
        return False
    return name == SIMULATED or (suffix.replace("-", "").isalnum() and suffix.islower() and suffix.isascii())


def load(name: str, *, scenario: str | None = None) -> Collector:
    """A collector that is not opened yet.

    Args:
        name: Of the manufacturer.
        scenario: Path of the file that says what simulated cards do; refused for any other manufacturer.

    Raises:
        SettingsError: No collector of this name can be had. The message says which names there are.
    """
    if is_simulated(name):
        from collectors.simulated import SimulatedCollector

        return SimulatedCollector(name, scenario)
    if scenario is not None:
        raise SettingsError([f"a scenario is for simulated cards, not for {name}"])
    if name == "nvidia":
        from collectors.nvidia import NvidiaCollector

        return NvidiaCollector()
    if _is_plugged_in(name):
        return _plugged_in(name)
    if name in MANUFACTURERS:
        raise SettingsError([f"the collector for {name} is not built yet; built are {', '.join(_built())}"])
    raise SettingsError([f"no manufacturer is called {excerpt(name)!r}; known are {', '.join(MANUFACTURERS)}"])


def _built() -> list[str]:
    return [one.name for one in _ALL if one.built]


def _is_plugged_in(name: str) -> bool:
    from importlib.metadata import entry_points

    return bool(entry_points(group=ENTRY_POINT_GROUP, name=name))


def _plugged_in(name: str) -> Collector:
    from importlib.metadata import entry_points

    found = sorted(entry_points(group=ENTRY_POINT_GROUP, name=name), key=lambda one: one.value)
    if len(found) > 1:
        raise SettingsError(
            [f"more than one installed package provides {name}: {', '.join(e.value for e in found)}"]
        )
    try:
        collector = found[0].load()()
    except Exception as error:
        raise SettingsError(
            [f"{found[0].value}, which provides {name}, does not load: {type(error).__name__}"]
        ) from error
    if not isinstance(collector, Collector):
        raise SettingsError([f"{found[0].value}, which provides {name}, is no collector"])
    return collector
