"""The section ``slices`` of a snapshot: what single containers hold on cards that they share, and on partitions.

It has a version of its own. A section of another version is not used at all, because its figures could mean
something else; within an accepted one, a bad record costs itself only.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeVar

from pydantic import Field, model_validator

from devicemanager.model.figures import FIGURES, Figure, Figures
from devicemanager.model.reasons import Reason
from devicemanager.model.usage import SliceDevice, SliceUsage
from devicemanager.rules import plausibility
from devicemanager.wire.lenient import (
    ArrayField,
    Document,
    FigureField,
    KeyField,
    LineField,
    NameField,
    ReasonField,
    ReasonsField,
    item_or_none,
)
from devicemanager.wire.steps import Steps

_VERSIONS: Final = range(1, 2)

RECORD_LIMITS: Final[Mapping[str, int]] = MappingProxyType({"usages": 4096, "devices": 1024, "partitions": 4096})
"""Records of each kind. The existing operator sends at most as many, and 256 devices."""


class _Usage(Document):
    manufacturer: KeyField
    pod_uid: KeyField = Field(alias="podUID")
    container: KeyField
    device_id: KeyField = Field(alias="deviceID")
    memory_used_mib: FigureField = Field(Reason.NOT_REPORTED, alias="memoryUsedMiB")
    cores_utilization_percent: FigureField = Reason.NOT_REPORTED

    def slice_usage(self) -> SliceUsage:
        figures = _figures(Reason.NOT_REPORTED, self.memory_used_mib, self.cores_utilization_percent)
        return SliceUsage(
            pod_uid=self.pod_uid,
            container=self.container,
            card_id=self.device_id,
            memory_used_mib=figures.number("memory_used"),
            utilization_percent=figures.number("compute_utilization"),
        )


class _Partition(Document):
    manufacturer: KeyField
    pod_uid: NameField = Field("", alias="podUID")
    container: NameField = ""
    """Pod and container stay empty where the sender reads partitions but knows no pods."""
    device_id: KeyField = Field(alias="deviceID")
    id: KeyField
    """A partition is addressed by its own UUID; a record without one is left out."""
    memory_total_mib: FigureField = Field(Reason.NOT_REPORTED, alias="memoryTotalMiB")
    memory_used_mib: FigureField = Field(Reason.NOT_REPORTED, alias="memoryUsedMiB")
    cores_percent: FigureField = Reason.NOT_REPORTED
    memory_reason: ReasonField = None
    cores_reason: ReasonField = None

    def slice_usage(self) -> SliceUsage:
        figures = _figures(
            self.memory_reason or self.memory_total_mib,
            self.memory_reason or self.memory_used_mib,
            self.cores_reason or self.cores_percent,
        )
        return SliceUsage(
            pod_uid=self.pod_uid,
            container=self.container,
            card_id=self.device_id,
            memory_used_mib=figures.number("memory_used"),
            utilization_percent=figures.number("compute_utilization"),
            partition_id=self.id,
            memory_total_mib=figures.number("memory_total"),
        )


class FiguresDocument(Document):
    """An object with the figures of a device by snapshot key, and reasons for the others in ``absent``.

    Attributes:
        figures: Name of the figure -> as it came.
        absent: Key of the snapshot -> reason.
    """

    figures: dict[str, object]
    absent: ReasonsField = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _gather_figures(cls, raw: object) -> object:
        if not isinstance(raw, dict):
            return raw
        found = ((spec.name, raw.get(spec.snapshot_key)) for spec in FIGURES)
        return {**raw, "figures": {name: value for name, value in found if value is not None}}

    def plausible_figures(self) -> Figures:
        """The plausible figures, in the units of the wire; those in ``absent`` are not read."""
        absent = {spec.name: self.absent[spec.snapshot_key] for spec in FIGURES if spec.snapshot_key in self.absent}
        return plausibility.published(self.figures | absent)


class CardPartition(FiguresDocument):
    """One partition among the ``partitions`` of a card; what this device manager sends."""

    id: KeyField
    profile: LineField = None

    def slice_usage(self, card_id: str) -> SliceUsage:
        """The same as a record of ``slices``, of no pod."""
        figures = self.plausible_figures()
        return SliceUsage(
            pod_uid="",
            container="",
            card_id=card_id,
            memory_used_mib=figures.number("memory_used"),
            utilization_percent=figures.number("compute_utilization"),
            partition_id=self.id,
            memory_total_mib=figures.number("memory_total"),
            profile=self.profile,
        )


class _Device(Document):
    manufacturer: KeyField
    device_id: KeyField = Field(alias="deviceID")
    memory_reason: ReasonField = None
    cores_reason: ReasonField = None

    def slice_device(self) -> SliceDevice:
        return SliceDevice(self.device_id, self.memory_reason, self.cores_reason)


class _Section(Document):
    """The section, whose records are not looked at yet."""

    usages: ArrayField = Field(default_factory=list)
    devices: ArrayField = Field(default_factory=list)
    partitions: ArrayField = Field(default_factory=list)


class _Version(Document):
    schema_version: FigureField = Reason.NOT_REPORTED


@dataclass(frozen=True, slots=True)
class Slices:
    """What containers hold on cards that they share, and on partitions. By manufacturer, in the sender's order.

    Attributes:
        usages: Those of cards, then those of partitions.
        devices: The cards that were looked at.
    """

    usages: Mapping[str, tuple[SliceUsage, ...]]
    devices: Mapping[str, tuple[SliceDevice, ...]]


def usable_slices(raw: object) -> Steps[tuple[Slices | None, Reason | None]]:
    """The section, or why there is none to be used; in steps of a record each."""
    version = item_or_none(_Version)(raw)
    if version is None:
        return None, Reason.UNSUPPORTED
    if version.schema_version not in _VERSIONS:
        return None, Reason.VERSION_SKEW
    section = item_or_none(_Section)(raw)
    if section is None:
        return None, Reason.INVALID_DATA
    usages: dict[str, list[SliceUsage]] = {}
    sections: tuple[tuple[type[_Usage | _Partition], list[object]], ...] = (
        (_Usage, section.usages),
        (_Partition, section.partitions),
    )
    for model, records in sections:
        for record in records:
            used = item_or_none(model)(record)
            if used is not None:
                usages.setdefault(used.manufacturer, []).append(used.slice_usage())
            yield
    devices: dict[str, list[SliceDevice]] = {}
    for record in section.devices:
        device = item_or_none(_Device)(record)
        if device is not None:
            devices.setdefault(device.manufacturer, []).append(device.slice_device())
        yield
    return Slices(_frozen(usages), _frozen(devices)), None


_Value = TypeVar("_Value")


def _frozen(sorted_out: Mapping[str, list[_Value]]) -> Mapping[str, tuple[_Value, ...]]:
    return {manufacturer: tuple(values) for manufacturer, values in sorted_out.items()}


def _figures(total: Figure, used: Figure, utilization: Figure) -> Figures:
    """Capacity and use in MiB, and compute in percent, as far as they are plausible."""
    return plausibility.published({"memory_total": total, "memory_used": used, "compute_utilization": utilization})
