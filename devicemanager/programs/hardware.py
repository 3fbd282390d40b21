"""Chooses the manufacturer, and builds its supervisor from the collectors' registry."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import structlog

from collectors import contract, pci, registry
from devicemanager.clock import SystemClock
from devicemanager.errors import SettingsError
from devicemanager.node.auto_detect import AutoDetectSupervisor
from devicemanager.node.blocking import within
from devicemanager.node.container import ContainerWatch
from devicemanager.node.process_usage import UsageLimits
from devicemanager.node.snapshot_store import SnapshotStore
from devicemanager.node.supervisor import Supervisor
from devicemanager.node.supervisor_options import SupervisorOptions
from devicemanager.rules.container import DriverFiles
from devicemanager.settings.flags import Conflict
from devicemanager.settings.node import CollectingSettings
from devicemanager.settings.process import environment_of_collectors

AUTO: Final = "auto"

_BUS_DEADLINE_S: Final = 5.0

DEV_ROOT = Path("/dev")
"""Where this container has its device files."""


def manufacturer(settings: CollectingSettings) -> str:
    """The one manufacturer to read, by name or by what is on the PCI bus.

    Raises:
        SettingsError: There is none, more than one, or none that can be read by this release.
    """
    name = found(settings, functions)
    if name is None:
        raise SettingsError(
            [
                f"--manufacturer=auto: {pci.nothing_found(settings.sys_root)}; "
                "name one, or try --manufacturer=simulated"
            ]
        )
    return name


def found(
    settings: CollectingSettings,
    scan: Callable[[CollectingSettings], Sequence[pci.PciDevice]] = lambda settings: pci.scan(settings.sys_root),
) -> str | None:
    """The same, and None where there is none on the bus, which may change. Blocks for as long as ``scan`` does.

    Raises:
        SettingsError: There is more than one, or none that can be read by this release.
    """
    given = f"--manufacturer={settings.manufacturer}"
    name = settings.manufacturer
    if name == AUTO:
        names = pci.detect(scan(settings))
        if not names:
            return None
        if len(names) > 1:
            raise SettingsError(
                [
                    f"{given}: cards of two or more manufacturers are on the PCI bus, {' and '.join(names)}; "
                    "name one, and start a process for each"
                ]
            )
        name = names[0]
    known = registry.known(name)
    if known is None:
        raise SettingsError([f"{given}: unknown; {registry.those_known(name)}"])
    if not known.built:
        built = [one.name for one in registry.MANUFACTURERS.values() if one.built]
        raise SettingsError([f"{given}: the collector for {name} is not built yet; built are {', '.join(built)}"])
    return name


def rules(settings: CollectingSettings) -> Iterator[Conflict]:
    """What is wrong with the choice of a manufacturer, to be reported with everything else that is wrong."""
    return _conflicts(manufacturer, settings)


def rules_for_serving(settings: CollectingSettings) -> Iterator[Conflict]:
    """The same for a program that can wait for a card, and for a bus that hangs."""
    return _conflicts(_found_within, settings)


def rules_for_a_name(settings: CollectingSettings) -> Iterator[Conflict]:
    """The same for programs that look at every manufacturer unless one is named."""
    return rules(settings) if settings.manufacturer != AUTO else iter(())


def functions(settings: CollectingSettings) -> tuple[pci.PciDevice, ...]:
    """What is on the PCI bus.

    Raises:
        SettingsError: The bus hangs.
    """
    try:
        return within(lambda: pci.scan(settings.sys_root), _BUS_DEADLINE_S, f"the PCI bus in {settings.sys_root}")
    except OSError as error:  # TimeoutError is one
        raise SettingsError([f"--sys-root={settings.sys_root}: {error}"]) from error


def _found_within(settings: CollectingSettings) -> str | None:
    """The manufacturer on the bus; none where the bus hangs, which may change."""
    try:
        return within(lambda: found(settings), _BUS_DEADLINE_S, "the PCI bus")
    except OSError:
        return None


def _conflicts(choose: Callable[[CollectingSettings], object], settings: CollectingSettings) -> Iterator[Conflict]:
    if settings.manufacturer == AUTO and settings.no_pci_check:
        return  # the settings say so themselves
    try:
        choose(settings)
    except SettingsError as error:
        for problem in error.problems:
            yield Conflict(("manufacturer", "sys_root", "no_pci_check"), problem)


def supervised(
    settings: CollectingSettings, period_s: float
) -> tuple[SnapshotStore, Supervisor | AutoDetectSupervisor]:
    """The store and the supervisor of a server; one that waits for a card where there is none yet."""
    clock = SystemClock()
    name = _found_within(settings)
    store = SnapshotStore(name or AUTO, period_s, settings.node_name, clock)
    if name is not None:
        return store, supervisor(settings, name, period_s, store)
    return store, AutoDetectSupervisor(
        lambda: found(settings),
        lambda later: supervisor(settings, later, period_s, store),
        store,
        clock,
        nothing_found=pci.nothing_found(settings.sys_root),
    )


def container_watch(settings: CollectingSettings, store: SnapshotStore) -> ContainerWatch:
    """The watch that ends a server in a container that was created before the driver was loaded."""

    def files(name: str) -> DriverFiles | None:
        known = registry.MANUFACTURERS.get(name)
        if known is None or known.kernel_module is None or known.device_node is None:
            return None
        node = DEV_ROOT / known.device_node
        return DriverFiles(
            module=known.kernel_module,
            loaded=(settings.sys_root / "module" / known.kernel_module).is_dir(),
            device_node=str(node),
            node_present=node.exists(),
        )

    return ContainerWatch(store, files, SystemClock())


def _taken_by_the_driver(settings: CollectingSettings, name: str, environment: Mapping[str, str]) -> Sequence[str]:
    """Where cards are that the library must count; none where this container was not given all cards."""
    known = registry.MANUFACTURERS.get(name)
    if settings.no_pci_check or known is None:
        return ()
    addresses = pci.taken(pci.scan(settings.sys_root), name)
    if known.visible_devices is not None and "all" in environment.get(known.visible_devices, "").split(","):
        return addresses
    nodes = [] if known.card_nodes is None else list(DEV_ROOT.glob(known.card_nodes))
    return addresses if len(nodes) >= len(addresses) else ()


def supervisor(settings: CollectingSettings, name: str, period_s: float, store: SnapshotStore) -> Supervisor:
    """The supervisor of one manufacturer's collector process; nothing is started yet."""

    def bus_addresses() -> Sequence[str]:
        return () if settings.no_pci_check else pci.addresses(pci.scan(settings.sys_root), name)

    scenario = [] if settings.simulated_scenario is None else ["--scenario", str(settings.simulated_scenario)]
    environment = environment_of_collectors()
    options = SupervisorOptions(
        manufacturer=name,
        period_s=period_s,
        # -P: no code from the current directory.
        command=[sys.executable, "-P", "-m", "collectors", name, *scenario],
        card_deadline_s=settings.card_timeout,
        open_deadline_s=settings.open_timeout,
        node_name=settings.node_name,
        bus_addresses=bus_addresses,
        taken_addresses=lambda: _taken_by_the_driver(settings, name, environment),
        exit_states={code: state for state, code in contract.EXIT_CODES.items()},
        usage=UsageLimits(settings.collector_memory_limit, settings.collector_descriptor_limit),
        environment=environment,
    )
    return Supervisor(options, store, SystemClock(), structlog.get_logger())
