"""Which devices a collector process touches: a rule used at both ends of the pipe."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from devicemanager.model.accelerator import Card, DeviceKey


@dataclass(frozen=True, slots=True)
class Selection:
    """Which devices to touch. A card that is not selected takes its partitions with it.

    Attributes:
        only: When not empty, no other device is touched, except the card of a partition in here, which has to be
            read to find the partition.
        skip: Never touched; wins over ``only``.
        assumed: Index -> id for which the card at that index is taken until the process has read it. Once it says
            who it is, that counts: after a renumbering, no other card is skipped.
    """

    only: frozenset[DeviceKey] = frozenset()
    skip: frozenset[DeviceKey] = frozenset()
    assumed: Mapping[int, str] = field(default_factory=dict)

    def __contains__(self, device: Card) -> bool:
        if not self.skip and not self.only:
            return True
        keys = self._keys(device)
        if not keys.isdisjoint(self.skip):
            return False
        if not self.only or not keys.isdisjoint(self.only):
            return True
        if device.parent is not None:
            return not self.only.isdisjoint((DeviceKey(index=device.index), DeviceKey(id=device.parent)))
        parents = {key.parent for key in self.only if key.parent is not None}
        return not parents.isdisjoint(key.id for key in keys)

    @property
    def arguments(self) -> list[str]:
        """The same as flags of ``python -m collectors``."""
        return [
            *(f"--skip={text}" for text in sorted(key.text for key in self.skip)),
            *(f"--only={text}" for text in sorted(key.text for key in self.only)),
            *(f"--assume={index}={card_id}" for index, card_id in sorted(self.assumed.items())),
        ]

    def _keys(self, device: Card) -> set[DeviceKey]:
        if device.parent is not None:
            return {device.key}
        known = device.id or self.assumed.get(device.index)
        return {DeviceKey(index=device.index)} | (set() if known is None else {DeviceKey(id=known)})
