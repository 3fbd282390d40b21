"""What commands that answer once print: tables for people, documents for programs.

Pure: values in, text out. An absent figure shows its reason in angle brackets, as kubectl shows ``<unknown>``.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from collectors.pci import PciDevice
from collectors.registry import MANUFACTURERS
from devicemanager.model.accelerator import Figure, Reason
from devicemanager.model.usage import PeerSnapshot, SnapshotCard
from devicemanager.rules import freshness
from devicemanager.rules.duration import format_duration
from devicemanager.settings.node import Output

_GAP: Final = "   "

_CARD_COLUMNS: Final = ("INDEX", "NAME", "MEMORY", "CORES", "TEMP", "POWER", "HEALTH", "ID")
_BUS_COLUMNS: Final = ("ADDRESS", "MANUFACTURER", "VENDOR:DEVICE", "DRIVER", "NOTE")
_INVENTORY_COLUMNS: Final = ("MANUFACTURER", "INDEX", "NAME", "MEMORY", "BUS", "HEALTH", "ID")


def columns(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Text in columns as wide as their widest cell, without trailing spaces."""
    table = [list(header), *(list(row) for row in rows)]
    widths = [max(len(cell) for cell in column) for column in zip(*table, strict=True)]
    return "\n".join(
        _GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table
    )


def document(value: object, output: Output) -> str:
    """A document as JSON or YAML, with its keys in the order given.

    Args:
        value: What ``json.loads`` could have returned.
        output: ``yaml``, else JSON.
    """
    if output is Output.YAML:
        import yaml  # a command that prints no YAML does not pay for it

        return str(yaml.safe_dump(value, sort_keys=False, allow_unicode=True)).rstrip()
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)


def snapshot_text(snapshot: PeerSnapshot, age_s: int | None, *, name: str = "device manager") -> str:
    """A snapshot as a line on each manufacturer's collector and a table of its cards.

    Args:
        snapshot: As parsed.
        age_s: Whole seconds since the reading began; None before the first, or where the sender does not say.
        name: What to call the sender while it names no manufacturer itself.
    """
    where = f" on {snapshot.node_name}" if snapshot.node_name else ""
    detail = f": {snapshot.detail}" if snapshot.detail else ""
    lines = [
        f"{', '.join(snapshot.cards) or name}{where}: {snapshot.state}{detail}",
        _when(snapshot, age_s),
    ]
    for cards in snapshot.cards.values():
        lines += ["", columns(_CARD_COLUMNS, map(_card_row, cards))]
    return "\n".join(lines)


def _when(snapshot: PeerSnapshot, age_s: int | None) -> str:
    period = f"sampled every {format_duration(snapshot.period_s)}"
    if snapshot.timestamp is None:
        return f"{period}; no sample yet"
    if age_s is None:
        return f"{period}; last at {snapshot.timestamp.isoformat(timespec='seconds')}"
    stale = " (stale: do not trust these figures)" if freshness.is_stale(age_s, snapshot.period_s) else ""
    return f"{period}; last {format_duration(age_s)} ago{stale}"


def _card_row(card: SnapshotCard) -> tuple[str, ...]:
    return (
        "-" if card.index is None else str(card.index),
        card.name or "-",
        memory_text(card.memory_usage_mib, card.memory_mib, card.memory_utilization_percent),
        figure_text(card.cores_utilization_percent, " %"),
        figure_text(card.temperature_celsius, " °C"),
        figure_text(card.power_usage_watts, " W"),
        health_text(card.unhealthy, card.unhealthy_reason),
        card.id,
    )


def figure_text(figure: Figure, unit: str) -> str:
    """A figure with its unit, or its reason: ``40 %``, ``<unsupported>``."""
    return f"<{figure}>" if isinstance(figure, Reason) else f"{figure}{unit}"


def memory_text(used_mib: Figure, total_mib: Figure, percent: Figure) -> str:
    """Use of capacity: ``20480 / 81920 MiB (25 %)``. One reason stands for all when nothing is known."""
    if isinstance(used_mib, Reason) and used_mib == total_mib:
        return f"<{used_mib}>"
    share = "" if isinstance(percent, Reason) else f" ({percent} %)"
    return f"{figure_text(used_mib, '')} / {figure_text(total_mib, ' MiB')}{share}"


def health_text(unhealthy: bool | Reason, why: str | None) -> str:
    """``healthy``, ``unhealthy (why)``, or the reason for not knowing."""
    match unhealthy:
        case Reason():
            return f"<{unhealthy}>"
        case True:
            return f"unhealthy ({why})" if why else "unhealthy"
        case False:
            return "healthy"


Inventory = Mapping[str, PeerSnapshot | None]
"""Manufacturer -> what its library says; None where no collector for it is built yet."""


def inventory_document(devices: Sequence[PciDevice], inventory: Inventory) -> object:
    """What there is, for programs: what the bus shows, and what each library says."""
    return {
        "bus": [
            {
                "address": device.address,
                "manufacturer": _manufacturer_of(device),
                "vendorID": device.vendor,
                "deviceID": device.device,
                "driver": device.driver,
                "integrated": device.integrated,
                "passthrough": device.passthrough,
                "virtualFunction": device.virtual_function,
            }
            for device in devices
        ],
        "manufacturers": [
            {
                "manufacturer": name,
                "built": found is not None,
                **({} if found is None else {"state": found.state.value, "detail": found.detail}),
                "accelerators": [_inventory_card(card) for card in _cards(found)],
            }
            for name, found in inventory.items()
        ],
    }


def _inventory_card(card: SnapshotCard) -> Mapping[str, object]:
    return {
        "id": card.id,
        "index": card.index,
        "name": card.name,
        "pciBusId": card.pci_bus_id,
        "memory": None if isinstance(card.memory_mib, Reason) else card.memory_mib,
        "unhealthy": None if isinstance(card.unhealthy, Reason) else card.unhealthy,
    }


def inventory_text(devices: Sequence[PciDevice], inventory: Inventory) -> str:
    """What there is, for people."""
    bus = [
        (
            device.address,
            _manufacturer_of(device),
            f"{device.vendor}:{device.device}",
            device.driver or "-",
            _note(device),
        )
        for device in devices
    ]
    cards = [
        (
            name,
            "-" if card.index is None else str(card.index),
            card.name or "-",
            figure_text(card.memory_mib, " MiB"),
            card.pci_bus_id or "-",
            health_text(card.unhealthy, card.unhealthy_reason),
            card.id,
        )
        for name, found in inventory.items()
        for card in _cards(found)
    ]
    without = [
        f"{name}: no collector is built yet"
        if found is None
        else f"{name}: {found.state}: {found.detail or 'no cards'}"
        for name, found in inventory.items()
        if not _cards(found)
    ]
    return "\n\n".join(
        [
            columns(_BUS_COLUMNS, bus) if bus else "No accelerator of a known manufacturer is on the PCI bus.",
            *([columns(_INVENTORY_COLUMNS, cards)] if cards else []),
            *without,
        ]
    )


def _cards(found: PeerSnapshot | None) -> tuple[SnapshotCard, ...]:
    return () if found is None else tuple(card for cards in found.cards.values() for card in cards)


def _manufacturer_of(device: PciDevice) -> str:
    return next((one.name for one in MANUFACTURERS.values() if one.pci_vendor_id == device.vendor), "-")


def _note(device: PciDevice) -> str:
    match device:
        case PciDevice(integrated=True):
            return "part of the processor"
        case PciDevice(passthrough=True):
            return "given to a virtual machine"
        case PciDevice(virtual_function=True):
            return "share of another card"
        case _:
            return ""
