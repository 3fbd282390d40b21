"""Whose cards are read, and by which process: hands what the collectors' registry knows to the supervisor."""

import sys
from collections.abc import Iterator, Sequence

import structlog

from collectors import contract, pci, registry
from devicemanager.clock import SystemClock
from devicemanager.errors import SettingsError
from devicemanager.node.holder import Holder
from devicemanager.node.supervisor import Supervisor, SupervisorOptions
from devicemanager.settings.flags import Conflict
from devicemanager.settings.node import CollectingSettings


def manufacturer(settings: CollectingSettings) -> str:
    """The one manufacturer to read, by name or by what is on the PCI bus.

    Raises:
        SettingsError: There is none, more than one, or none that can be read by this release.
    """
    if settings.manufacturer != "auto":
        name, given = settings.manufacturer, f"--manufacturer={settings.manufacturer}"
    else:
        found = pci.detect(pci.scan(settings.sys_root))
        given = "--manufacturer=auto"
        if not found:
            raise SettingsError(
                [
                    f"{given}: no accelerator of a known manufacturer is on the PCI bus; "
                    "name one, or try --manufacturer=simulated"
                ]
            )
        if len(found) > 1:
            raise SettingsError(
                [
                    f"{given}: cards of two or more manufacturers are on the PCI bus, {' and '.join(found)}; "
                    "name one, and start a process for each"
                ]
            )
        name = found[0]
    known = registry.known(name)
    if known is None:
        raise SettingsError([f"{given}: unknown; known are {', '.join(registry.MANUFACTURERS)}"])
    if not known.built:
        built = [one.name for one in registry.MANUFACTURERS.values() if one.built]
        raise SettingsError([f"{given}: the collector for {name} is not built yet; built are {', '.join(built)}"])
    return name


def rules(settings: CollectingSettings) -> Iterator[Conflict]:
    """What is wrong with the choice of a manufacturer, to be reported with everything else that is wrong."""
    try:
        manufacturer(settings)
    except SettingsError as error:
        for problem in error.problems:
            yield Conflict(("manufacturer", "sys_root", "no_pci_check"), problem)


def rules_for_a_name(settings: CollectingSettings) -> Iterator[Conflict]:
    """The same for programs that look at every manufacturer unless one is named."""
    return rules(settings) if settings.manufacturer != "auto" else iter(())


def supervisor(settings: CollectingSettings, name: str, period_s: float, holder: Holder) -> Supervisor:
    """The supervisor of one manufacturer's collector process; nothing is started yet."""

    def bus_addresses() -> Sequence[str]:
        return () if settings.no_pci_check else pci.addresses(pci.scan(settings.sys_root), name)

    scenario = [] if settings.simulated_scenario is None else ["--scenario", str(settings.simulated_scenario)]
    options = SupervisorOptions(
        manufacturer=name,
        period_s=period_s,
        # -P: what lies in the directory that we happen to be started in is not our code.
        command=[sys.executable, "-P", "-m", "collectors", name, *scenario],
        card_deadline_s=settings.card_timeout,
        open_deadline_s=settings.open_timeout,
        node_name=settings.node_name,
        bus_addresses=bus_addresses,
        exit_states={code: state for state, code in contract.EXIT_CODES.items()},
    )
    return Supervisor(options, holder, SystemClock(), structlog.get_logger())
