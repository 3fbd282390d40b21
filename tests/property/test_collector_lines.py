"""Any bytes from a collector process give a line or a clear refusal, and what it encodes is what is decoded."""

import json
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from devicemanager.errors import DocumentError
from devicemanager.model.accelerator import Card, CollectorState, Reading, Reason
from devicemanager.model.figures import FIGURES
from devicemanager.rules import plausibility
from devicemanager.rules.plausibility import CARDS_LIMIT
from devicemanager.wire.collector_line_decoding import decode
from devicemanager.wire.collector_lines import Announced, Begin, End, Failed, Hello, Line, Read, encode

words = st.text(st.characters(codec="utf-8", categories=["L", "N", "P"]), min_size=1, max_size=60)
reasons = st.sampled_from(Reason)
indexes = st.integers(0, CARDS_LIMIT - 1)
cards = st.builds(Card, indexes, st.none() | words, st.none() | words, st.none() | words)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=10,
)


@st.composite
def readings(draw: st.DrawFn) -> Reading:
    names = st.lists(st.from_regex(r"[a-z][a-z0-9_]{0,9}", fullmatch=True), max_size=4, unique=True)
    raw = {
        spec.name: draw(
            reasons | (names if spec.quantity.names else st.integers(spec.quantity.lowest, spec.quantity.highest))
        )
        for spec in FIGURES
        if spec.line_key
    }
    # What a collector reads has passed this rule.
    return Reading(
        draw(cards),
        plausibility.reading(raw),
        draw(st.none() | words),
        draw(st.dictionaries(words, reasons, max_size=4)),
    )


def decoded(raw: bytes) -> Line | None:
    try:
        return decode(raw)
    except DocumentError as error:
        fault = str(error)
    assert fault.startswith("line: ")
    assert len(fault) < 600
    return None


@given(st.binary(max_size=300))
def test_any_bytes(raw: bytes) -> None:
    decoded(raw)


@given(st.sampled_from(["hello", "begin", "card", "reading", "end", "failed"]), json_values)
def test_any_json_under_a_known_kind(kind: str, value: object) -> None:
    decoded(_json({kind: value}))


@given(st.dictionaries(st.sampled_from([spec.line_key for spec in FIGURES if spec.line_key]), json_values))
def test_any_figures_are_plausible_or_absent(body: dict[str, object]) -> None:
    line = decoded(_json({"reading": body | {"index": 0}}))
    if line is None:
        return  # NaN and Infinity are no JSON, so there is no line
    assert isinstance(line, Read)
    figures = line.reading.figures
    for spec in FIGURES:
        figure = figures[spec.name]
        assert not isinstance(figure, int) or spec.quantity.lowest <= figure <= spec.quantity.highest
        assert isinstance(figure, Reason) or isinstance(figure, tuple) == spec.quantity.names
    total, used = figures["memory_total"], figures["memory_used"]
    if isinstance(total, int) and isinstance(used, int):
        assert used <= total


@given(readings(), st.none() | st.lists(words, unique=True, max_size=4))
def test_a_reading_comes_back_as_it_was(reading: Reading, partitions: list[str] | None) -> None:
    card = reading.card
    listed = (
        None if partitions is None or card.id is None else tuple(Card(0, p, parent=card.id) for p in partitions)
    )
    assert decode(encode(Read(reading, listed))) == Read(reading, listed)


@given(cards, st.integers(0, CARDS_LIMIT), words)
def test_the_other_lines_come_back_as_they_were(card: Card, count: int, word: str) -> None:
    begin = Begin(count / 7, datetime.fromtimestamp(count / 3, UTC))
    partition = Card(card.index, word, parent=word, profile=word)
    failed = Failed(CollectorState.NO_PERMISSION, word)
    for line in (Announced(card), Announced(partition), End(count), begin, Hello(word), failed):
        assert decode(encode(line)) == line


@given(readings(), st.integers(0, 2000), st.integers(0, 255))
def test_one_flipped_byte(reading: Reading, place: int, value: int) -> None:
    raw = bytearray(encode(Read(reading)))
    raw[place % len(raw)] = value
    decoded(bytes(raw))


def _json(value: object) -> bytes:
    return json.dumps(value).encode()
