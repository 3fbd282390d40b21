"""The Pod annotation in which the allocator records the accelerators it gave.

Written by another program, so no content may break an answer: what cannot be understood is named in
``Allocation.problem``.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from devicemanager.errors import DocumentError, excerpt
from devicemanager.model.allocation import UNITS_PER_CARD, AllocatedCard, Allocation, Mode
from devicemanager.model.pod_stats import UNREADABLE
from devicemanager.rules import device_ids
from devicemanager.wire import bounds
from devicemanager.wire.json_values import integer, load, member, text

ANNOTATION: Final = "device.gpustack.ai/accelerator.allocated"
"""The annotation's key on the Pod."""

TEXT_LIMIT: Final = 1 << 20
"""Characters read. The API server holds all annotations of an object to 256 KiB together."""

CARD_LIMIT: Final = 1024
"""Cards read of one pod: more than any node has."""

MANUFACTURERS_LIMIT: Final = 16
"""Manufacturers read of one pod, each of which has its device manager asked: more than any node has."""

_PROBLEMS_NAMED: Final = 3

_MANUFACTURER: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
"""A label's value, because that is how a manufacturer's device managers are found."""

_ID_LIMIT: Final = 256

_PROFILE_LIMIT: Final = 63

_WHOLE: Final = frozenset({Mode.NONE, Mode.EXCLUSIVE})


def parse(annotation: str | None) -> Allocation:
    """The cards that the annotation gives, in byte order of the containers' names, then in its own order.

    A missing or empty annotation is no allocation and no problem. Never raises.
    """
    if annotation is None or not annotation.strip():
        return Allocation()
    if len(annotation) > TEXT_LIMIT:
        return Allocation(problem=f"allocation annotation is longer than {TEXT_LIMIT} characters")
    try:
        document = load(annotation, "allocation annotation", bounds.ALLOCATION)
    except DocumentError as error:
        return Allocation(problem=str(error))
    if document is None:
        return Allocation()
    if not isinstance(document, dict):
        return Allocation(problem="allocation annotation is not an object")
    return _allocation(document)


def _allocation(containers: Mapping[str, object]) -> Allocation:
    cards: list[AllocatedCard] = []
    manufacturers: set[str] = set()
    problems: list[str] = []
    for name in sorted(containers, key=_byte_order):
        for found in _container(name, containers[name]):
            if isinstance(found, str):
                problems.append(f"container {excerpt(name, 63)!r}: {found}")
                continue
            manufacturers.add(found.manufacturer)
            cards.append(found)
            excess = _excess(len(cards), len(manufacturers))
            if excess is not None:
                return Allocation(tuple(cards[:-1]), _joined([*problems, excess]))
    return Allocation(tuple(cards), _joined(problems))


def _excess(cards: int, manufacturers: int) -> str | None:
    if cards > CARD_LIMIT:
        return f"more than {CARD_LIMIT} accelerators"
    return f"more than {MANUFACTURERS_LIMIT} manufacturers" if manufacturers > MANUFACTURERS_LIMIT else None


def _byte_order(name: str) -> bytes:
    return name.encode("utf-8", "surrogatepass")


def _joined(problems: list[str]) -> str | None:
    if not problems:
        return None
    more = len(problems) - _PROBLEMS_NAMED
    return "; ".join(problems[:_PROBLEMS_NAMED]) + (f"; and {more} more" if more > 0 else "")


def _container(name: str, entry: object) -> Iterator[AllocatedCard | str]:
    """The container's cards, with one sentence for each part that is not understood."""
    groups = _array(member(entry, "devices", "groups"))
    if not isinstance(entry, dict) or not isinstance(entry.get("devices", {}), dict | None) or groups is None:
        yield "not an object with devices.groups"
        return
    for group in groups:
        manufacturer = text(member(group, "manufacturer"))
        accelerators = _array(member(group, "accelerators"))
        if manufacturer is None or _MANUFACTURER.fullmatch(manufacturer) is None:
            yield "a group without a usable manufacturer"
        elif accelerators is None:
            yield f"accelerators of {manufacturer} are not an array"
        else:
            yield from (_card(name, manufacturer, accelerator) for accelerator in accelerators)


def _array(value: object) -> list[object] | None:
    """The array; an empty one for null, as Go writes an empty slice; None for anything else."""
    if value is None:
        return []
    return value if isinstance(value, list) else None


def _card(container: str, manufacturer: str, accelerator: object) -> AllocatedCard | str:
    written = text(member(accelerator, "id"))
    if written is None or len(written) > _ID_LIMIT or not written.isprintable():
        return f"an accelerator of {manufacturer} without a usable id"
    number = integer(member(accelerator, "mode"))
    if number is None or number == UNREADABLE:
        return f"accelerator {written} without a usable mode"
    index = integer(member(accelerator, "index"))
    device = device_ids.parse(written)
    mode = _mode(number, device)
    recorded = text(member(accelerator, "allocatedPhysicalID"))
    profile = excerpt(text(member(accelerator, "allocatedPhysicalProfile")) or "", _PROFILE_LIMIT)
    units = integer(member(accelerator, "allocated"))
    return AllocatedCard(
        manufacturer=manufacturer,
        id=device.card,
        index=index if index is not None and 0 <= index < 1 << 32 else None,
        mode=mode,
        container=container,
        partition_id=(recorded or device.partition) if mode is Mode.PARTITIONED else None,
        profile=(profile or None) if mode is Mode.PARTITIONED else None,
        units=units if units is not None and 0 < units <= UNITS_PER_CARD else None,
    )


def _mode(number: int, device: device_ids.DeviceId) -> Mode:
    """The mode by number, unless its id names a partition or a replica of a card that it calls whole."""
    mode = Mode(number) if number in Mode.__members__.values() else Mode.UNKNOWN
    if mode in _WHOLE and device.partition is not None:
        return Mode.PARTITIONED
    if mode in _WHOLE and device.replica:
        return Mode.SHARED
    return mode
