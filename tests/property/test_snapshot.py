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
    Reading,
    Reason,
    Sample,
    Snapshot,
)
from devicemanager.model.figures import FIGURES, Figures
from devicemanager.model.usage import PeerSnapshot
from devicemanager.rules import plausibility, units
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
CARD_KEYS = ["id", "index", "name", *(spec.snapshot_key for spec in FIGURES), "unhealthy", "absent"]
ENVELOPE_KEYS = ["timestamp", "periodSeconds", "groups", "slices", "collector", "nodeName"]


@st.composite
def readings(draw: st.DrawFn, index: int) -> Reading:
    names = st.lists(st.from_regex(r"[a-z][a-z0-9_]{0,9}", fullmatch=True), max_size=4, unique=True)
    raw = {
        spec.name: draw(
            reasons | (names if spec.quantity.names else st.integers(spec.quantity.lowest, spec.quantity.highest))
        )
        for spec in FIGURES
        if spec.line_key
    }
    # Every reading has passed this rule: a capacity that is not plausible makes the use doubtful too.
    return Reading(
        Card(index, f"GPU-{index}", draw(st.none() | words), draw(st.none() | words)),
        plausibility.reading(raw),
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
        assert card.figures == units.published(reading.figures)
        assert card.unhealthy is (reading.unhealthy_reason is not None)
        assert card.unhealthy_reason == reading.unhealthy_reason


@given(snapshots())
def test_every_figure_is_there_or_absent_never_both_never_neither(snapshot: Snapshot) -> None:
    keys = {spec.snapshot_key for spec in FIGURES}
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


@given(json_values | st.text())
def test_a_time_is_one_or_the_zero_time_or_no_snapshot(timestamp: object) -> None:
    peer = parsed(json.dumps({"timestamp": timestamp, "groups": []}).encode())
    if peer is not None:
        assert isinstance(timestamp, str)
        assert (peer.timestamp is None) is timestamp.startswith("0001-")


@given(st.lists(st.dictionaries(st.sampled_from(CARD_KEYS), json_values), max_size=4))
def test_any_cards_beside_a_good_one(others: list[dict[str, object]]) -> None:
    good = {"id": "GPU-good", "memory": 100, "memoryUsage": 50, "temperature": 40}
    cards = [*others, good]
    groups = [{"manufacturer": "nvidia", "accelerators": cards}]
    peer = parsed(json.dumps({"timestamp": wire.ZERO_TIME, "groups": groups}).encode())
    assert peer is not None
    found = [card for card in peer.cards["nvidia"] if card.id == "GPU-good"]
    assert [card.figures for card in found] == [Figures(memory_total=100, memory_used=50, temperature=40)]
    ids = [card.id for card in peer.cards["nvidia"]]
    assert len(ids) == len(set(ids))
    for card in peer.cards["nvidia"]:
        for spec in FIGURES:
            figure = card.figures[spec.name]
            assert not isinstance(figure, int) or spec.quantity.lowest <= figure <= spec.quantity.highest


@given(st.dictionaries(st.sampled_from(["schemaVersion", "usages", "devices", "partitions"]), json_values))
def test_any_slices(slices: dict[str, object]) -> None:
    peer = parsed(json.dumps({"timestamp": wire.ZERO_TIME, "groups": [], "slices": slices}).encode())
    assert peer is not None
