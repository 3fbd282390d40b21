"""The snapshot that a device manager serves: encoding ours, parsing a peer's.

The keys are those of the GPUStack operator's own device manager, so that either side can be exchanged for it; what
we add is additive. Every key, unit and absence is explained in ``docs/snapshot.md``. Encoding happens once per
sample, parsing on each read of a peer, which may be older, newer or the operator's, and is not trusted.
"""

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Final, TypeVar

from pydantic import BeforeValidator, Field, PlainValidator, ValidationError
from pydantic_core import from_json

from devicemanager.errors import DocumentError, excerpt
from devicemanager.model.accelerator import CollectorState, CollectorStatus, Figure, Reading, Reason, Snapshot
from devicemanager.model.usage import PeerSnapshot, SliceDevice, SliceUsage, SnapshotCard
from devicemanager.rules import freshness, plausibility, units
from devicemanager.wire.tolerant import (
    Document,
    FigureField,
    FlagField,
    KeyField,
    LineField,
    NameField,
    ReasonField,
    ReasonsField,
    TimeField,
    item_or_none,
    valid_items,
)

BODY_LIMIT_BYTES: Final = 4 << 20
"""The most that is parsed; 1,024 cards take about 0.5 MiB, 256 with all their slices 1.5 MiB."""

ZERO_TIME: Final = "0001-01-01T00:00:00Z"
"""What a Go program prints for a time that was never set: the snapshot before the first sample."""

_SLICES_VERSIONS: Final = range(1, 2)
_MIB: Final = 1 << 20
_ENCODER: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False)


def encode(snapshot: Snapshot) -> bytes:
    """The body of ``GET /monitor/snapshot``: compact ASCII JSON that ends in one newline."""
    sample = snapshot.sample
    timestamp = ZERO_TIME if sample is None else _instant(sample.taken_at)
    document: dict[str, object] = {
        "timestamp": timestamp,
        "periodSeconds": units.period_seconds(snapshot.period_s),
        "groups": []
        if sample is None
        else [
            {
                "manufacturer": snapshot.manufacturer,
                "timestamp": timestamp,
                "accelerators": [_encode_card(reading) for reading in sample.readings],
            }
        ],
    }
    if snapshot.node_name is not None:
        document["nodeName"] = snapshot.node_name
    document["collector"] = _encode_status(snapshot.collector)
    return _ENCODER.encode(document).encode("ascii") + b"\n"


def _encode_card(reading: Reading) -> dict[str, object]:
    card = reading.card
    figures: dict[str, Figure] = {
        "memory": units.mib(reading.memory_total_bytes),
        "memoryUsage": units.mib(reading.memory_used_bytes),
        "memoryUtilization": units.percent_used(reading.memory_used_bytes, reading.memory_total_bytes),
        "coresUtilization": reading.cores_percent,
        "temperature": reading.temperature_celsius,
        "powerUsage": units.watts(reading.power_milliwatts),
    }
    document: dict[str, object] = {"id": card.id, "index": card.index}
    if card.name is not None:
        document["name"] = card.name
    if card.pci_bus_id is not None:
        document["pciBusId"] = card.pci_bus_id
    document |= {key: figure for key, figure in figures.items() if not isinstance(figure, Reason)}
    document["unhealthy"] = reading.unhealthy_reason is not None
    if reading.unhealthy_reason is not None:
        document["unhealthyReason"] = reading.unhealthy_reason
    unread = {check: reason.value for check, reason in reading.unread_checks.items()}
    document["absent"] = unread | {key: f.value for key, f in figures.items() if isinstance(f, Reason)}
    return document


def _encode_status(status: CollectorStatus) -> dict[str, object]:
    detail = {} if status.detail is None else {"detail": status.detail}
    return {
        "state": status.state.value,
        **detail,
        "since": _instant(status.since),
        "consecutiveFailures": status.consecutive_failures,
        "restarts": status.restarts,
    }


def _instant(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def parse(body: bytes) -> PeerSnapshot:
    """A peer's snapshot, as far as it can be understood.

    A card, group or slice that is not what it should be is left out, and a figure that is not, or that no card can
    have, is ``invalid_data``; neither costs anything else. A figure that is missing has the reason that the card's
    ``absent`` names, else ``not_reported``. Unknown keys are ignored.

    Raises:
        DocumentError: The bytes are no snapshot at all: too many, no JSON (NaN and Infinity are none), or no object
            with ``groups``.
    """
    if len(body) > BODY_LIMIT_BYTES:
        raise DocumentError(f"snapshot: more than {BODY_LIMIT_BYTES} bytes")
    try:
        raw = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise DocumentError(f"snapshot: {excerpt(str(error))}") from None
    if not isinstance(raw, dict):
        raise DocumentError("snapshot: must be an object")
    try:
        envelope = _Envelope.model_validate(raw)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        raise DocumentError(f"snapshot: {first['loc'][0]}: {excerpt(first['msg'])}") from None
    return envelope.peer_snapshot()


class _Card(Document):
    id: KeyField
    index: FigureField = Reason.NOT_REPORTED
    name: LineField = None
    pci_bus_id: LineField = None
    memory: FigureField = Reason.NOT_REPORTED
    memory_usage: FigureField = Reason.NOT_REPORTED
    memory_utilization: FigureField = Reason.NOT_REPORTED
    cores_utilization: FigureField = Reason.NOT_REPORTED
    temperature: FigureField = Reason.NOT_REPORTED
    power_usage: FigureField = Reason.NOT_REPORTED
    unhealthy: FlagField = Reason.NOT_REPORTED
    unhealthy_reason: LineField = None
    absent: ReasonsField = Field(default_factory=dict)

    def snapshot_card(self) -> SnapshotCard:
        memory, used = _mib_pair(self._known("memory", self.memory), self._known("memoryUsage", self.memory_usage))
        share = plausibility.percent(self._known("memoryUtilization", self.memory_utilization))
        if Reason.INVALID_DATA in (memory, used):
            share = Reason.INVALID_DATA
        return SnapshotCard(
            id=self.id,
            index=None if isinstance(self.index, Reason) else self.index,
            name=self.name,
            memory_mib=memory,
            memory_usage_mib=used,
            memory_utilization_percent=share,
            cores_utilization_percent=plausibility.percent(self._known("coresUtilization", self.cores_utilization)),
            temperature_celsius=plausibility.celsius(self._known("temperature", self.temperature)),
            power_usage_watts=_plausible_watts(self._known("powerUsage", self.power_usage)),
            unhealthy=self.unhealthy,
            unhealthy_reason=self.unhealthy_reason,
            pci_bus_id=self.pci_bus_id,
        )

    def _known(self, key: str, figure: Figure) -> Figure:
        """The figure, unless the sender itself says that it has none."""
        return self.absent.get(key, figure)


class _Group(Document):
    manufacturer: KeyField
    accelerators: Annotated[tuple[_Card, ...], BeforeValidator(valid_items(_Card))]


class _Usage(Document):
    manufacturer: KeyField
    pod_uid: KeyField = Field(alias="podUID")
    container: KeyField
    device_id: KeyField = Field(alias="deviceID")
    memory_used_mib: FigureField = Field(Reason.NOT_REPORTED, alias="memoryUsedMiB")
    cores_utilization_percent: FigureField = Reason.NOT_REPORTED

    def slice_usage(self) -> SliceUsage:
        return SliceUsage(
            pod_uid=self.pod_uid,
            container=self.container,
            card_id=self.device_id,
            memory_used_mib=_mib_pair(Reason.NOT_REPORTED, self.memory_used_mib)[1],
            cores_percent=plausibility.percent(self.cores_utilization_percent),
        )


class _Partition(Document):
    manufacturer: KeyField
    pod_uid: NameField = Field("", alias="podUID")
    container: NameField = ""
    """Pod and container stay empty where the sender reads partitions but knows no pods."""
    device_id: KeyField = Field(alias="deviceID")
    id: KeyField
    """A partition is addressed by its own UUID; a record without one answers no question and is left out."""
    memory_total_mib: FigureField = Field(Reason.NOT_REPORTED, alias="memoryTotalMiB")
    memory_used_mib: FigureField = Field(Reason.NOT_REPORTED, alias="memoryUsedMiB")
    cores_percent: FigureField = Reason.NOT_REPORTED
    memory_reason: ReasonField = None
    cores_reason: ReasonField = None

    def slice_usage(self) -> SliceUsage:
        total, used = _mib_pair(
            self.memory_reason or self.memory_total_mib, self.memory_reason or self.memory_used_mib
        )
        return SliceUsage(
            pod_uid=self.pod_uid,
            container=self.container,
            card_id=self.device_id,
            memory_used_mib=used,
            cores_percent=plausibility.percent(self.cores_reason or self.cores_percent),
            partition_id=self.id,
            memory_total_mib=total,
        )


class _Device(Document):
    manufacturer: KeyField
    device_id: KeyField = Field(alias="deviceID")
    memory_reason: ReasonField = None
    cores_reason: ReasonField = None

    def slice_device(self) -> SliceDevice:
        return SliceDevice(self.device_id, self.memory_reason, self.cores_reason)


class _SlicesVersion(Document):
    schema_version: FigureField = Reason.NOT_REPORTED


class _Slices(Document):
    usages: Annotated[tuple[_Usage, ...], BeforeValidator(valid_items(_Usage))] = ()
    devices: Annotated[tuple[_Device, ...], BeforeValidator(valid_items(_Device))] = ()
    partitions: Annotated[tuple[_Partition, ...], BeforeValidator(valid_items(_Partition))] = ()


class _Collector(Document):
    state: KeyField
    detail: LineField = None


class _Envelope(Document):
    timestamp: TimeField = None
    period_seconds: FigureField = Reason.NOT_REPORTED
    groups: Annotated[tuple[_Group, ...], BeforeValidator(valid_items(_Group))]
    node_name: LineField = None
    collector: Annotated[_Collector | None, PlainValidator(item_or_none(_Collector))] = None
    slices: object = None

    def peer_snapshot(self) -> PeerSnapshot:
        state, detail = _state(self.collector)
        period = None if isinstance(self.period_seconds, Reason) else self.period_seconds
        slices = _usable_slices(self.slices)
        return PeerSnapshot(
            timestamp=self.timestamp,
            period_s=freshness.effective_period_s(period),
            node_name=self.node_name,
            state=state,
            detail=detail,
            cards=_cards(self.groups),
            slices=None
            if isinstance(slices, Reason)
            else _by_manufacturer(
                (item.manufacturer, item.slice_usage()) for item in slices.usages + slices.partitions
            ),
            slice_devices={}
            if isinstance(slices, Reason)
            else _by_manufacturer((item.manufacturer, item.slice_device()) for item in slices.devices),
            slices_reason=slices if isinstance(slices, Reason) else None,
        )


def _usable_slices(raw: object) -> _Slices | Reason:
    """The section, or why there is none to be used."""
    version = item_or_none(_SlicesVersion)(raw)
    if version is None:
        return Reason.UNSUPPORTED
    if version.schema_version not in _SLICES_VERSIONS:
        return Reason.VERSION_SKEW
    return item_or_none(_Slices)(raw) or Reason.INVALID_DATA


def _state(collector: _Collector | None) -> tuple[CollectorState, str | None]:
    if collector is None:
        return CollectorState.OK, None
    try:
        return CollectorState(collector.state), collector.detail
    except ValueError:
        return CollectorState.FAILED, f"the device manager reports a state unknown here: {excerpt(collector.state)}"


def _cards(groups: Iterable[_Group]) -> Mapping[str, tuple[SnapshotCard, ...]]:
    """Cards by manufacturer, each id once: of two cards that claim one id, the first in the sender's order."""
    cards: dict[str, dict[str, SnapshotCard]] = {}
    for group in groups:
        known = cards.setdefault(group.manufacturer, {})
        for card in group.accelerators:
            known.setdefault(card.id, card.snapshot_card())
    return {manufacturer: tuple(known.values()) for manufacturer, known in cards.items()}


_Value = TypeVar("_Value")


def _by_manufacturer(items: Iterable[tuple[str, _Value]]) -> Mapping[str, tuple[_Value, ...]]:
    sorted_out: dict[str, list[_Value]] = {}
    for manufacturer, value in items:
        sorted_out.setdefault(manufacturer, []).append(value)
    return {manufacturer: tuple(values) for manufacturer, values in sorted_out.items()}


def _mib_pair(total: Figure, used: Figure) -> tuple[Figure, Figure]:
    """Capacity and use in MiB, as far as they are plausible."""

    def in_bytes(figure: Figure) -> Figure:
        return figure if isinstance(figure, Reason) else figure * _MIB

    def in_mib(figure: Figure) -> Figure:
        return figure if isinstance(figure, Reason) else figure // _MIB

    plausible_total, plausible_used = plausibility.bytes_pair(in_bytes(total), in_bytes(used))
    return in_mib(plausible_total), in_mib(plausible_used)


def _plausible_watts(power_watts: Figure) -> Figure:
    if isinstance(power_watts, Reason):
        return power_watts
    return units.watts(plausibility.milliwatts(power_watts * 1000))
