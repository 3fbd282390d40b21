"""Which raw numbers of a vendor library may be believed. Whatever may not is absent ``invalid_data``.

Collectors call this on what they read, and the device manager calls it again on what the collector process wrote: a
process that a vendor library may have corrupted is not trusted to have checked its own figures. A number is never
clamped into its range, because a clamped figure looks measured.
"""

from typing import Final

from devicemanager.model.accelerator import Figure, Reason

CARDS_LIMIT: Final = 1024
"""More cards than any node has, partitions that count as cards included. As many fit the snapshot's 4 MiB."""

PARTITIONS_LIMIT: Final = 1024
"""Of all cards of a node together; 128 cards of eight partitions, which is more than any has."""

MEMORY_BYTES_LIMIT: Final = 1 << 50
"""1 PiB; no card is near it, and every sum of cards below it stays exact in a 64-bit JSON reader."""

TEMPERATURE_LIMIT_CELSIUS: Final = 150
"""Silicon shuts down well before; a library that answers in hundredths of a degree shows itself here."""

POWER_LIMIT_MILLIWATTS: Final = 10_000_000
"""10 kW; boards draw up to about 3 kW, and a milliwatt figure taken for watts shows itself here."""

SENTINELS: Final = frozenset({0x7FFF_FFFF, 0xFFFF_FFFF, 0x7FFF_FFFF_FFFF_FFFF, 0xFFFF_FFFF_FFFF_FFFF})
"""What libraries answer for "no value" with a code that says success. Odd, so never a count of memory pages."""


def bytes_pair(total: object, used: object) -> tuple[Figure, Figure]:
    """Capacity and use of a card's memory, in bytes, as one call to the library gave them.

    Args:
        total: The raw number, or the reason for having none.
        used: The raw number, or the reason for having none.

    Returns:
        The two figures. A capacity that is a number but not a plausible one makes the use doubtful too; a capacity
        that is absent for another reason does not. More used than there is makes the use ``invalid_data`` only.
    """
    capacity = _within(total, 1, MEMORY_BYTES_LIMIT)
    use = _within(used, 0, MEMORY_BYTES_LIMIT)
    if isinstance(use, Reason):
        return capacity, use
    if capacity is Reason.INVALID_DATA:
        return capacity, Reason.INVALID_DATA
    if not isinstance(capacity, Reason) and use > capacity:
        return capacity, Reason.INVALID_DATA
    return capacity, use


def percent(raw: object) -> Figure:
    """A share of 0..100 percent."""
    return _within(raw, 0, 100)


def celsius(raw: object) -> Figure:
    """A temperature of 0..150 degrees Celsius. The wire has no sign, and no running card is below freezing."""
    return _within(raw, 0, TEMPERATURE_LIMIT_CELSIUS)


def milliwatts(raw: object) -> Figure:
    """A power draw of 0 W..10 kW, in milliwatts."""
    return _within(raw, 0, POWER_LIMIT_MILLIWATTS)


def _within(raw: object, lowest: int, highest: int) -> Figure:
    if isinstance(raw, Reason):
        return raw
    if not isinstance(raw, int) or isinstance(raw, bool):
        return Reason.INVALID_DATA
    return raw if lowest <= raw <= highest and raw not in SENTINELS else Reason.INVALID_DATA
