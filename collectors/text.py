"""One sample as a person reads it on a terminal."""

from collections.abc import Sequence

from devicemanager.errors import excerpt
from devicemanager.model.accelerator import Card, DeviceKey, Reading
from devicemanager.model.figures import BY_NAME, FIGURES, Figures, FigureSpec
from devicemanager.model.reasons import Reason
from devicemanager.rules.selection import Selection
from devicemanager.rules.units import published


def describe(readings: Sequence[Reading], *, library: str | None = None) -> str:
    """A block of lines per card: who it is, its figures with units or why they are absent, and its health.

    Args:
        readings: One per card.
        library: What they were read with, for a line before them.
    """
    heading = f"{excerpt(library)}\n" if library else ""
    return heading + "".join(_block(reading) for reading in readings)


def not_read(readings: Sequence[Reading], selection: Selection) -> Sequence[str]:
    """What was asked for and is not among the readings, a line each; empty when nothing is missing."""
    read = {key for reading in readings for key in (reading.card.key, *_index_of(reading.card))}
    missing = sorted(key.text for key in selection.only - read)
    skipped = {key.text for key in selection.skip}
    if not readings and not missing:
        return ["every card is skipped"]
    return [f"{excerpt(name)}: {'is skipped' if name in skipped else 'no such device'}" for name in missing]


def _index_of(card: Card) -> Sequence[DeviceKey]:
    return [DeviceKey(index=card.index)] if card.parent is None else []


def _block(reading: Reading) -> str:
    card = reading.card
    identity: tuple[str | None, ...] = (card.id or "id not read", card.name or "name not read", card.pci_bus_id)
    if card.parent is not None:
        identity = (card.id, f"partition of {card.parent}", card.profile)
    values = published(reading.figures)
    used, total = (_value(spec, values) for spec in (BY_NAME["memory_used"], BY_NAME["memory_total"]))
    others = (spec for spec in FIGURES if not spec.name.startswith("memory_"))
    figures = (
        f"memory {used} used of {total}",
        *(f"{spec.name.replace('_', ' ')} {_value(spec, values)}" for spec in others),
    )
    checks = (f"check not read: {name} ({reason})" for name, reason in reading.unread_checks.items())
    health = (f"unhealthy: {reading.unhealthy_reason}" if reading.unhealthy_reason else "healthy", *checks)
    return (
        f"{card.index}  {'  '.join(part for part in identity if part)}\n"
        f"   {', '.join(figures)}\n"
        f"   {'; '.join(health)}\n"
        + "".join(f"   {name.replace('_', ' ')}: {note}\n" for name, note in reading.notes.items())
    )


def _value(spec: FigureSpec, figures: Figures) -> str:
    match figures[spec.name]:
        case Reason() as reason:
            return f"absent ({reason})"
        case tuple(names):
            return " ".join(names) or "none"
        case int(value):
            return f"{value} {spec.quantity.wire_unit}"
