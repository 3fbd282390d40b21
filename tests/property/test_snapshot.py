"""Any bytes from a peer give a snapshot or a clear refusal, and what is encoded is what is parsed."""

import json
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from devicemanager.errors import DocumentError
from devicemanager.model.accelerator import (
    Card,
    CollectorState,
    CollectorStatus,
    Figure,
    Reading,
    Reason,
    Sample,
    Snapshot,
)
from devicemanager.model.usage import PeerSnapshot
from devicemanager.rules import plausibility
from devicemanager.wire import snapshot as wire

words = st.text(st.characters(codec="utf-8", categories=["L", "N", "P"]), min_size=1, max_size=40)
times = st.datetimes(datetime(1970, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - Hypothesis adds it
reasons = st.sampled_from(Reason)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=10,
)
CARD_KEYS = [
    "id",
    "index",
    "name",
    "memory",
    "memoryUsage",
    "memoryUtilization",
    "coresUtilization",
    "partitions",
    "temperature",
    "powerUsage",
    "unhealthy",
    "absent",
]
ENVELOPE_KEYS = ["timestamp", "periodSeconds", "groups", "slices", "collector", "nodeName"]


@st.composite
def readings(draw: st.DrawFn, index: int) -> Reading:
    drawn = draw(st.integers(1, plausibility.MEMORY_BYTES_LIMIT) | reasons)
    most = plausibility.MEMORY_BYTES_LIMIT if isinstance(drawn, Reason) else drawn
    # Every reading's memory has passed this rule: a capacity that is not plausible makes the use doubtful too.
    total, used = plausibility.bytes_pair(drawn, draw(st.integers(0, most) | reasons))
    return Reading(
        Card(index, f"GPU-{index}", draw(st.none() | words), draw(st.none() | words)),
        total,
        used,
        draw(st.integers(0, 100) | reasons),
        draw(st.integers(0, plausibility.TEMPERATURE_LIMIT_CELSIUS) | reasons),
        draw(st.integers(0, plausibility.POWER_LIMIT_MILLIWATTS) | reasons),
        draw(st.none() | words),
        draw(st.dictionaries(words.map(lambda word: f"check.{word}"), reasons, max_size=3)),
    )


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    cards = tuple(draw(readings(index)) for index in range(draw(st.integers(0, 4))))
    status = CollectorStatus(
        draw(st.sampled_from(CollectorState)), draw(times), draw(st.none() | words), draw(st.integers(0, 99))
    )
    sample = draw(st.none() | st.just(Sample(draw(times), 1.0, 0.1, cards)))
    return Snapshot(draw(words), draw(st.integers(1, 3600)), sample, status, draw(st.none() | words))


def parsed(body: bytes) -> PeerSnapshot | None:
    try:
        return wire.parse(body)
    except DocumentError as error:
        fault = str(error)
    assert fault.startswith("snapshot: ")
    assert len(fault) < 600
    return None


def same(ours: Figure, theirs: Figure) -> bool:
    """A measured figure must come back measured, an absent one with its reason."""
    return ours == theirs if isinstance(ours, Reason) else isinstance(theirs, int)


@given(snapshots())
def test_what_is_encoded_is_parsed(snapshot: Snapshot) -> None:
    body = wire.encode(snapshot)
    assert body.endswith(b"}\n")
    assert body.count(b"\n") == 1
    peer = wire.parse(body)
    assert (peer.state, peer.detail) == (snapshot.collector.state, snapshot.collector.detail)
    assert (peer.period_s, peer.node_name) == (snapshot.period_s, snapshot.node_name)
    if snapshot.sample is None:
        assert (peer.timestamp, peer.cards) == (None, {})
        return
    assert peer.timestamp == snapshot.sample.taken_at
    for reading, card in zip(snapshot.sample.readings, peer.cards[snapshot.manufacturer], strict=True):
        assert (card.id, card.index, card.name) == (reading.card.id, reading.card.index, reading.card.name)
        assert same(reading.memory_total_bytes, card.memory_mib)
        assert same(reading.memory_used_bytes, card.memory_usage_mib)
        assert card.cores_utilization_percent == reading.cores_percent
        assert card.temperature_celsius == reading.temperature_celsius
        assert same(reading.power_milliwatts, card.power_usage_watts)
        assert card.unhealthy is (reading.unhealthy_reason is not None)
        assert card.unhealthy_reason == reading.unhealthy_reason


@given(snapshots())
def test_every_figure_is_there_or_absent_never_both_never_neither(snapshot: Snapshot) -> None:
    keys = {"memory", "memoryUsage", "memoryUtilization", "coresUtilization", "temperature", "powerUsage"}
    for group in json.loads(wire.encode(snapshot))["groups"]:
        for card in group["accelerators"]:
            assert keys & set(card) == keys - set(card["absent"])
            assert {"id", "index", "unhealthy", "absent"} <= set(card)
            assert None not in card.values()
            if "memory" in card and "memoryUsage" in card:
                assert card["memoryUsage"] <= card["memory"]
                assert 0 <= card["memoryUtilization"] <= 100


@given(st.binary(max_size=300))
def test_any_bytes(body: bytes) -> None:
    parsed(body)


@given(st.dictionaries(st.sampled_from(ENVELOPE_KEYS), json_values))
def test_any_envelope(document: dict[str, object]) -> None:
    peer = parsed(json.dumps(document).encode())
    if peer is not None:
        assert 1 <= peer.period_s <= 3600


@given(st.lists(st.dictionaries(st.sampled_from(CARD_KEYS), json_values), max_size=4))
def test_any_cards_beside_a_good_one(others: list[dict[str, object]]) -> None:
    good = {"id": "GPU-good", "memory": 100, "memoryUsage": 50, "temperature": 40}
    cards = [*others, good]
    peer = parsed(json.dumps({"groups": [{"manufacturer": "nvidia", "accelerators": cards}]}).encode())
    assert peer is not None
    found = [card for card in peer.cards["nvidia"] if card.id == "GPU-good"]
    assert [(card.memory_mib, card.memory_usage_mib, card.temperature_celsius) for card in found] == [(100, 50, 40)]
    ids = [card.id for card in peer.cards["nvidia"]]
    assert len(ids) == len(set(ids))
    for card in peer.cards["nvidia"]:
        assert isinstance(card.memory_mib, Reason) or card.memory_mib > 0
        assert isinstance(card.cores_utilization_percent, Reason) or 0 <= card.cores_utilization_percent <= 100


@given(st.dictionaries(st.sampled_from(["schemaVersion", "usages", "devices", "partitions"]), json_values))
def test_any_slices(slices: dict[str, object]) -> None:
    peer = parsed(json.dumps({"groups": [], "slices": slices}).encode())
    assert peer is not None
