"""The snapshot that a device manager serves: encoding ours, parsing a peer's.

The keys are those of the GPUStack operator's own device manager, so that either side can be exchanged for it; what
we add is additive. Every key, unit and absence is explained in ``docs/snapshot.md``. Encoding happens once per
sample, parsing on each read of a peer, which may be older, newer or the operator's, and is not trusted.
"""

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Final, TypeAlias

from pydantic import Field, PlainValidator, ValidationError
from pydantic_core import from_json

from devicemanager.errors import DocumentError, ExcessError, excerpt
from devicemanager.model.accelerator import CollectorState, CollectorStatus, Reading, Reason, Snapshot
from devicemanager.model.figures import BY_NAME, FIGURES, FigureSpec, Scope
from devicemanager.model.usage import PeerSnapshot, SliceUsage, SnapshotCard
from devicemanager.rules import freshness, units
from devicemanager.rules.plausibility import CARDS_LIMIT, PARTITIONS_LIMIT
from devicemanager.rules.snapshot_view import agreed
from devicemanager.wire import bounds
from devicemanager.wire.json_values import items, member
from devicemanager.wire.lenient import (
    ArrayField,
    Document,
    FigureField,
    FlagField,
    KeyField,
    LineField,
    LinesField,
    OptionalArrayField,
    TimeField,
    item_or_none,
    valid_items,
)
from devicemanager.wire.snapshot_slices import RECORD_LIMITS, CardPartition, FiguresDocument, usable_slices
from devicemanager.wire.steps import Steps, at_once

BODY_LIMIT_BYTES: Final = 4 << 20
"""The most that is parsed; 1,024 cards take about 0.5 MiB, 256 with all their slices 1.5 MiB."""

GROUPS_LIMIT: Final = 64
"""Groups of one snapshot: several for each manufacturer there is."""

ZERO_TIME: Final = "0001-01-01T00:00:00Z"
"""What a Go program prints for a time that was never set: the snapshot before the first sample."""

PARTITION_FIGURES: Final = tuple(spec for spec in FIGURES if spec.scope is Scope.SHARE)
"""What is measured of a partition; temperature, power and health are its card's."""

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
    document: dict[str, object] = {"id": card.id, "index": card.index}
    if card.name is not None:
        document["name"] = card.name
    if card.pci_bus_id is not None:
        document["pciBusId"] = card.pci_bus_id
    figures, absent = _encode_figures(reading, FIGURES)
    document |= figures
    document["unhealthy"] = reading.unhealthy_reason is not None
    if reading.unhealthy_reason is not None:
        document["unhealthyReason"] = reading.unhealthy_reason
    unread = {check: reason.value for check, reason in reading.unread_checks.items()}
    document["absent"] = unread | absent
    if reading.notes:
        document["notes"] = {BY_NAME[name].snapshot_key: note for name, note in reading.notes.items()}
    if reading.partitions:
        document["partitions"] = [_encode_partition(partition) for partition in reading.partitions]
    return document


def _encode_partition(reading: Reading) -> dict[str, object]:
    document: dict[str, object] = {"id": reading.card.id}
    if reading.card.profile is not None:
        document["profile"] = reading.card.profile
    figures, absent = _encode_figures(reading, PARTITION_FIGURES)
    return document | figures | {"absent": absent}


def _encode_figures(reading: Reading, specs: Iterable[FigureSpec]) -> tuple[dict[str, object], dict[str, str]]:
    """By key: the figures that are there, in the units of the wire, and why the others are absent."""
    document: dict[str, object] = {}
    absent: dict[str, str] = {}
    for spec in specs:
        value = reading.figures[spec.name]
        if isinstance(value, Reason):
            absent[spec.snapshot_key] = value
        else:
            document[spec.snapshot_key] = units.on_wire(spec, value) if isinstance(value, int) else value
    return document, absent


def _encode_status(status: CollectorStatus) -> dict[str, object]:
    detail = {} if status.detail is None else {"detail": status.detail}
    return {
        "state": status.state.value,
        **detail,
        "since": _instant(status.since),
        "consecutiveFailures": status.consecutive_failures,
        "restarts": sum(status.restarts.values()),
    }


def _instant(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")


def parse(body: bytes) -> PeerSnapshot:
    """A peer's snapshot, as far as it can be read.

    A card, group or slice that is not what it should be is left out, and a figure that is not, or that no card can
    have, is ``invalid_data``; neither costs anything else. A figure that is missing has the reason that the card's
    ``absent`` names, else ``not_reported``. Unknown keys are ignored.

    Raises:
        DocumentError: The bytes are no snapshot at all: no JSON (NaN and Infinity are none), or no object with
            ``groups`` and a ``timestamp``.
        ExcessError: There are more bytes, groups, cards or slices than a snapshot may hold.
    """
    return at_once(parse_in_steps(body))


def parse_in_steps(body: bytes) -> Steps[PeerSnapshot]:
    """The same in steps, of a card or slice each. The longest is the first, which reads the JSON: 15 ms for as many
    cards and slices as one may have.
    """
    if len(body) > BODY_LIMIT_BYTES:
        raise ExcessError(f"snapshot: more than {BODY_LIMIT_BYTES} bytes")
    yield from bounds.SNAPSHOT.check_in_steps(body, "snapshot")
    try:
        raw = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise DocumentError(f"snapshot: {excerpt(str(error))}") from None
    if not isinstance(raw, dict):
        raise DocumentError("snapshot: must be an object")
    yield
    _check_counts(raw)
    try:
        envelope = _Envelope.model_validate(raw)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        raise DocumentError(f"snapshot: {first['loc'][0]}: {excerpt(first['msg'])}") from None
    yield
    cards, partitions = yield from _cards(envelope.groups)
    slices, reason = yield from usable_slices(envelope.slices)
    state, detail = _state(envelope.collector)
    period = None if isinstance(envelope.period_seconds, Reason) else envelope.period_seconds
    return PeerSnapshot(
        timestamp=envelope.timestamp,
        period_s=freshness.effective_period_s(period),
        node_name=envelope.node_name,
        state=state,
        detail=detail,
        cards=cards,
        partitions=partitions,
        slices=None if slices is None else slices.usages,
        slice_devices={} if slices is None else slices.devices,
        slices_reason=reason,
    )


def _check_counts(raw: Mapping[str, object]) -> None:
    """Raises ExcessError where there are too many of anything, before the first of them is looked at."""
    groups = raw.get("groups")
    cards = [card for group in items(groups) for card in items(member(group, "accelerators"))]
    counted = {
        "groups": (len(list(items(groups))), GROUPS_LIMIT),
        "accelerators": (len(cards), CARDS_LIMIT),
        "partitions": (sum(len(list(items(member(card, "partitions")))) for card in cards), PARTITIONS_LIMIT),
    }
    for key, limit in RECORD_LIMITS.items():
        counted[f"slices.{key}"] = (len(list(items(member(raw, "slices", key)))), limit)
    for what, (count, limit) in counted.items():
        if count > limit:
            raise ExcessError(f"snapshot: more than {limit} {what}")


class _Card(FiguresDocument):
    id: KeyField
    index: FigureField = Reason.NOT_REPORTED
    name: LineField = None
    pci_bus_id: LineField = None
    unhealthy: FlagField = Reason.NOT_REPORTED
    unhealthy_reason: LineField = None
    notes: LinesField = Field(default_factory=dict)
    partitions: OptionalArrayField = Field(default_factory=list)

    def snapshot_card(self) -> SnapshotCard:
        return SnapshotCard(
            id=self.id,
            index=None if isinstance(self.index, Reason) else self.index,
            name=self.name,
            figures=self.plausible_figures(),
            unhealthy=self.unhealthy,
            unhealthy_reason=self.unhealthy_reason,
            pci_bus_id=self.pci_bus_id,
            notes=self.notes,
        )


class _Group(Document):
    manufacturer: KeyField
    accelerators: ArrayField


class _Collector(Document):
    state: KeyField
    detail: LineField = None


class _Envelope(Document):
    timestamp: TimeField
    period_seconds: FigureField = Reason.NOT_REPORTED
    groups: ArrayField
    node_name: LineField = None
    collector: Annotated[_Collector | None, PlainValidator(item_or_none(_Collector))] = None
    slices: object = None


def _state(collector: _Collector | None) -> tuple[CollectorState, str | None]:
    if collector is None:
        return CollectorState.OK, None
    try:
        return CollectorState(collector.state), collector.detail
    except ValueError:
        return CollectorState.FAILED, f"the device manager reports a state unknown here: {excerpt(collector.state)}"


_Partitions: TypeAlias = Mapping[str, tuple[SliceUsage, ...]]


def _cards(groups: Iterable[object]) -> Steps[tuple[Mapping[str, tuple[SnapshotCard, ...]], _Partitions]]:
    """Cards by manufacturer, and the partitions that are listed on them, in the sender's order.

    Each card's id comes once; of two with one id, what they agree on. There are no partitions of a manufacturer
    that is not named.
    """
    cards: dict[str, dict[str, SnapshotCard]] = {}
    partitions: dict[str, list[SliceUsage]] = {}
    for group in (yield from valid_items(_Group, groups)):
        known = cards.setdefault(group.manufacturer, {})
        for card in (yield from valid_items(_Card, group.accelerators)):
            found = card.snapshot_card()
            known[card.id] = agreed(known[card.id], found) if card.id in known else found
            listed = yield from valid_items(CardPartition, card.partitions)
            if listed:
                usages = partitions.setdefault(group.manufacturer, [])
                usages += [partition.slice_usage(card.id) for partition in listed]
            yield
    return (
        {manufacturer: tuple(known.values()) for manufacturer, known in cards.items()},
        {manufacturer: tuple(found) for manufacturer, found in partitions.items()},
    )
