"""The forms in which allocators write the id of an accelerator.

Anything unknown stays as it is: it then matches no card, and the answer says so. An index (``nvidia0``) is never
taken for an identity, because it changes when a card falls off the bus.
"""

import re
from dataclasses import dataclass
from typing import Final

_REPLICA: Final = re.compile(r"(?P<card>.+)::[0-9]+", re.DOTALL)
_OLD_PARTITION: Final = re.compile(r"MIG-(?P<card>GPU-[^/]+)/[0-9]+/[0-9]+")
_PARTITION_PREFIX: Final = "MIG-"
_PCI_ADDRESS: Final = re.compile(r"(?P<domain>[0-9A-Fa-f]{4,8}):(?P<rest>[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])")
_PROVISIONAL: Final = ("pci:", "index:")


@dataclass(frozen=True, slots=True)
class DeviceId:
    """A parsed id of an allocator.

    Attributes:
        card: The id of the card; the partition's own where the id names no card.
        partition: UUID of the partition; None for a whole card.
        replica: Whether it is one of several replicas of a card that is shared over time.
    """

    card: str
    partition: str | None = None
    replica: bool = False


def parse(text: str) -> DeviceId:
    """The id in ``text``: ``GPU-…``, ``GPU-…::3``, ``MIG-…``, ``MIG-GPU-…/7/0``, or any other id as it is."""
    if match := _REPLICA.fullmatch(text):
        return DeviceId(match["card"], replica=True)
    if match := _OLD_PARTITION.fullmatch(text):
        return DeviceId(match["card"], partition=text)
    if text.startswith(_PARTITION_PREFIX):
        return DeviceId(text, partition=text)
    return DeviceId(text)


def pci_address(text: str | None) -> str | None:
    """A PCI address in lower case with a domain of four digits or as many as it needs; None for anything else."""
    match = _PCI_ADDRESS.fullmatch(text) if text is not None else None
    if match is None:
        return None
    return f"{int(match['domain'], 16):04x}:{match['rest'].lower()}"


def provisional_id(pci_address: str) -> str:
    """The made-up id of a card that was never read, at an address."""
    return _PROVISIONAL[0] + pci_address


def is_provisional(text: str) -> bool:
    """Whether this is a made-up id of a card that was never read; such an id matches no allocation."""
    return text.startswith(_PROVISIONAL)
