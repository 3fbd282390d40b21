"""Any bytes from a collector process give a line or a clear refusal, and what it encodes is what is decoded."""

import json
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from devicemanager.errors import DocumentError
from devicemanager.model.accelerator import Card, CollectorState, Figure, Reading, Reason
from devicemanager.rules import plausibility
from devicemanager.rules.plausibility import CARDS_LIMIT
from devicemanager.wire.collector_lines import Announced, Begin, End, Failed, Hello, Line, Read, decode, encode

words = st.text(st.characters(codec="utf-8", categories=["L", "N", "P"]), min_size=1, max_size=60)
reasons = st.sampled_from(Reason)
indexes = st.integers(0, CARDS_LIMIT - 1)
cards = st.builds(Card, indexes, st.none() | words, st.none() | words, st.none() | words)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=10,
)


def figures(highest: int) -> st.SearchStrategy[Figure]:
    return (st.integers(0, highest) | reasons).filter(lambda figure: figure not in plausibility.SENTINELS)


@st.composite
def readings(draw: st.DrawFn) -> Reading:
    total = draw(st.integers(1, plausibility.MEMORY_BYTES_LIMIT).filter(lambda n: n not in plausibility.SENTINELS))
    return Reading(
        draw(cards),
        total,
        draw(figures(total)),
        draw(figures(100)),
        draw(figures(plausibility.TEMPERATURE_LIMIT_CELSIUS)),
        draw(figures(plausibility.POWER_LIMIT_MILLIWATTS)),
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


@given(st.dictionaries(st.sampled_from(["memory", "memoryUsed", "cores", "temperature", "power"]), json_values))
def test_any_figures_are_plausible_or_absent(body: dict[str, object]) -> None:
    line = decoded(_json({"reading": body | {"index": 0}}))
    if line is None:
        return  # NaN and Infinity are no JSON, so there is no line
    assert isinstance(line, Read)
    total, used = line.reading.memory_total_bytes, line.reading.memory_used_bytes
    assert isinstance(total, Reason) or 0 < total <= plausibility.MEMORY_BYTES_LIMIT
    assert isinstance(used, Reason) or used >= 0
    if not isinstance(total, Reason) and not isinstance(used, Reason):
        assert used <= total
    for figure in (line.reading.cores_percent, line.reading.temperature_celsius, line.reading.power_milliwatts):
        assert isinstance(figure, Reason) or figure >= 0


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
