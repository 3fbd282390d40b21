"""The output of commands that print once: tables for people, documents for programs.

Pure: values in, text out. An absent figure shows its reason in angle brackets, as kubectl shows ``<unknown>``.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from collectors.pci import PciDevice
from collectors.registry import MANUFACTURERS
from devicemanager.errors import printable
from devicemanager.model.figures import SHOWN, DeviceFigure, Figure, Figures, FigureSpec, Scope
from devicemanager.model.reasons import Reason
from devicemanager.model.usage import PeerSnapshot, SliceUsage, SnapshotCard
from devicemanager.programs.columns import columns
from devicemanager.rules import freshness
from devicemanager.rules.duration import format_duration
from devicemanager.rules.units import percent_used
from devicemanager.settings.output import Output

FIGURE_COLUMNS: Final = tuple(column.heading.removeprefix("GPU-").upper() for _, column in SHOWN)
EXTRA_COLUMNS: Final = tuple(
    heading for heading, (_, column) in zip(FIGURE_COLUMNS, SHOWN, strict=True) if column.priority > 1
)
"""Those that are left out first where a table does not fit."""

_CARD_COLUMNS: Final = ("INDEX", "NAME", "MEMORY", *FIGURE_COLUMNS, "HEALTH", "ID")
_LONG: Final = ("NAME", "HEALTH", "ID")
_LESS: Final = ("NAME", "INDEX", "POWER", "TEMP")
"""What may be left out, but never the id, without which a line is nobody's, nor use and health."""

_LESS_OF_INVENTORY: Final = ("INDEX", "MEMORY", "NAME")
_BUS_COLUMNS: Final = ("ADDRESS", "MANUFACTURER", "VENDOR:DEVICE", "DRIVER", "NOTE")
_INVENTORY_COLUMNS: Final = ("MANUFACTURER", "INDEX", "NAME", "MEMORY", "BUS", "HEALTH", "ID")


def document(value: object, output: Output) -> str:
    """What ``json.loads`` could have returned, as YAML or JSON, with its keys in the order given."""
    if output is Output.YAML:
        import yaml  # a command that prints no YAML does not pay for it

        return str(yaml.safe_dump(value, sort_keys=False, allow_unicode=False)).rstrip()
    return json.dumps(value, indent=2, ensure_ascii=True, allow_nan=False)


def snapshot_text(
    snapshot: PeerSnapshot,
    age_s: int | None,
    *,
    name: str = "device manager",
    once: bool = False,
    width: int | None = None,
) -> str:
    """A snapshot as a line on each manufacturer's collector and a table of its cards.

    Args:
        snapshot: As parsed.
        age_s: Whole seconds since the reading began; None before the first, or where the sender does not say.
        name: What to call the sender while it names no manufacturer itself.
        once: Whether this is a single sample, and not that of a running device manager.
        width: As for :func:`columns`.
    """
    where = f" on {snapshot.node_name}" if snapshot.node_name else ""
    detail = f": {snapshot.detail}" if snapshot.detail else ""
    lines = [
        f"{printable(', '.join(snapshot.cards)) or name}{where}: {snapshot.state}{detail}",
        *([] if once else [_when(snapshot, age_s)]),
    ]
    for manufacturer, cards in snapshot.cards.items():
        if not cards:
            continue
        rows = list(_device_rows(cards, snapshot.partitions.get(manufacturer, ())))
        lines += ["", columns(_CARD_COLUMNS, rows, width, drop=EXTRA_COLUMNS, shorten=_LONG, drop_last=_LESS)]
    return "\n".join(lines)


def _when(snapshot: PeerSnapshot, age_s: int | None) -> str:
    period = f"sampled every {format_duration(snapshot.period_s)}"
    if snapshot.timestamp is None:
        return f"{period}; no sample yet"
    if age_s is None:
        return f"{period}; last at {snapshot.timestamp.isoformat(timespec='seconds')}"
    stale = " (stale: do not trust these figures)" if freshness.is_stale(age_s, snapshot.period_s) else ""
    return f"{period}; last {format_duration(age_s)} ago{stale}"


def _device_rows(cards: Iterable[SnapshotCard], partitions: Iterable[SliceUsage]) -> Iterator[tuple[str, ...]]:
    """Each card, and below it its partitions."""
    of_card = _by_card(partitions)
    for card in cards:
        yield _card_row(card)
        yield from map(_partition_row, of_card[card.id])


def _by_card(partitions: Iterable[SliceUsage]) -> Mapping[str, list[SliceUsage]]:
    of_card: defaultdict[str, list[SliceUsage]] = defaultdict(list)
    for partition in partitions:
        of_card[partition.card_id].append(partition)
    return of_card


def _inventory_rows(name: str, found: PeerSnapshot | None) -> Iterator[tuple[str, ...]]:
    """Each card of a manufacturer with what it is, and below it its partitions."""
    if found is None:
        return
    for manufacturer, cards in found.cards.items():
        of_card = _by_card(found.partitions.get(manufacturer, ()))
        for card in cards:
            yield (
                name,
                "-" if card.index is None else str(card.index),
                card.name or "-",
                figure_text(card.figures.number("memory_total"), " MiB"),
                card.pci_bus_id or "-",
                health_text(card.unhealthy, card.unhealthy_reason),
                card.id,
            )
            for partition in of_card[card.id]:
                memory = figure_text(partition.memory_total_mib, " MiB")
                yield name, "-", _partition_name(partition), memory, "-", "-", partition.partition_id or "-"


def _partition_name(partition: SliceUsage) -> str:
    return f"└ {partition.profile or 'partition'}"


def _partition_row(partition: SliceUsage) -> tuple[str, ...]:
    """What is measured of a partition itself; the rest is its card's, one row or more above."""
    used_mib, total_mib = partition.memory_used_mib, partition.memory_total_mib
    figures = Figures(
        memory_total=total_mib,
        memory_used=used_mib,
        memory_utilization=percent_used(used_mib, total_mib),
        compute_utilization=partition.utilization_percent,
    )
    shown = (_cell(spec, figures[spec.name]) if spec.scope is Scope.SHARE else "-" for spec, _ in SHOWN)
    return "-", _partition_name(partition), memory_text(figures), *shown, "-", partition.partition_id or "-"


def _card_row(card: SnapshotCard) -> tuple[str, ...]:
    return (
        "-" if card.index is None else str(card.index),
        card.name or "-",
        *figure_cells(card.figures),
        health_text(card.unhealthy, card.unhealthy_reason),
        card.id,
    )


def figure_cells(figures: Figures) -> tuple[str, ...]:
    """The cells under ``MEMORY`` and :data:`FIGURE_COLUMNS`."""
    return (memory_text(figures), *(_cell(spec, figures[spec.name]) for spec, _ in SHOWN))


def _cell(spec: FigureSpec, value: DeviceFigure) -> str:
    if isinstance(value, tuple):
        return ", ".join(value) or "none"
    return figure_text(value, f" {spec.quantity.wire_unit}")


def figure_text(figure: Figure, unit: str) -> str:
    """A figure with its unit, or its reason: ``40 %``, ``<unsupported>``."""
    return f"<{figure}>" if isinstance(figure, Reason) else f"{figure}{unit}"


def memory_text(figures: Figures) -> str:
    """Use of capacity: ``20480 / 81920 MiB (25 %)``. One reason stands for all when nothing is known."""
    used_mib, total_mib = figures.number("memory_used"), figures.number("memory_total")
    percent = figures.number("memory_utilization")
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


def inventory_document(devices: Sequence[PciDevice], served: Mapping[str, Any]) -> object:
    """What there is, for programs; ``served`` has each snapshot as a document, None without a collector."""
    return {
        "bus": [
            {
                "address": device.address,
                "manufacturer": _manufacturer_of(device),
                "vendorID": device.vendor,
                "deviceID": device.device,
                **({"driver": device.driver} if device.driver else {}),
                "integrated": device.integrated,
                "passthrough": device.passthrough,
                "virtualFunction": device.virtual_function,
            }
            for device in devices
        ],
        "manufacturers": [
            {"manufacturer": name, "built": found is not None, **_inventory_of(found)}
            for name, found in served.items()
        ],
    }


def _inventory_of(found: Mapping[str, Any] | None) -> Mapping[str, object]:
    if found is None:
        return {"accelerators": []}
    status = {key: found["collector"][key] for key in ("state", "detail") if key in found["collector"]}
    return {**status, "accelerators": [card for group in found["groups"] for card in group["accelerators"]]}


def inventory_text(
    devices: Sequence[PciDevice], inventory: Inventory, *, searched: str | None = None, width: int | None = None
) -> str:
    """What there is, for people; ``width`` as for :func:`columns`.

    ``searched`` is what to say of an empty bus; None where it was not asked which manufacturers there are.
    """
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
    listed = [(name, card) for name, found in inventory.items() for card in _cards(found)]
    cards = [row for name, found in inventory.items() for row in _inventory_rows(name, found)]
    notes = [f"{name} {card.index}: {key}: {note}" for name, card in listed for key, note in card.notes.items()]
    without = [
        f"{name}: no collector is built yet"
        if found is None
        else f"{name}: {found.state}: {found.detail or 'no cards'}"
        for name, found in inventory.items()
        if not _cards(found)
    ]
    nothing = [f"{searched[:1].upper()}{searched[1:]}."] if searched else []
    return "\n\n".join(
        [
            *([columns(_BUS_COLUMNS, bus, width, shorten=["NOTE"])] if bus else nothing),
            *(
                [columns(_INVENTORY_COLUMNS, cards, width, shorten=_LONG, drop_last=_LESS_OF_INVENTORY)]
                if cards
                else []
            ),
            *(["\n".join(notes)] if notes else []),
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
