"""One sample as a person reads it on a terminal."""

from collections.abc import Sequence

from devicemanager.errors import excerpt
from devicemanager.model.accelerator import Figure, Reading, Reason
from devicemanager.rules import units


def describe(readings: Sequence[Reading], *, library: str | None = None) -> str:
    """A block of lines per card: who it is, its figures with units or why they are absent, and its health.

    Args:
        readings: One per card.
        library: What they were read with, for a line before them.
    """
    heading = f"{excerpt(library)}\n" if library else ""
    return heading + "".join(_block(reading) for reading in readings)


def _block(reading: Reading) -> str:
    card = reading.card
    identity: tuple[str | None, ...] = (card.id or "id not read", card.name or "name not read", card.pci_bus_id)
    if card.parent is not None:
        identity = (card.id, f"partition of {card.parent}", card.profile)
    figures = (
        f"memory {_memory(reading)}",
        f"compute {_value(reading.cores_percent, '%')}",
        f"temperature {_value(reading.temperature_celsius, '°C')}",
        f"power {_value(units.watts(reading.power_milliwatts), 'W')}",
    )
    checks = (f"check not read: {name} ({reason})" for name, reason in reading.unread_checks.items())
    health = (f"unhealthy: {reading.unhealthy_reason}" if reading.unhealthy_reason else "healthy", *checks)
    return (
        f"{card.index}  {'  '.join(part for part in identity if part)}\n"
        f"   {', '.join(figures)}\n"
        f"   {'; '.join(health)}\n"
    )


def _memory(reading: Reading) -> str:
    used, total = reading.memory_used_bytes, reading.memory_total_bytes
    return f"{_value(units.mib(used), 'MiB')} used of {_value(units.mib(total), 'MiB')}"


def _value(figure: Figure, unit: str) -> str:
    return f"absent ({figure})" if isinstance(figure, Reason) else f"{figure} {unit}"
