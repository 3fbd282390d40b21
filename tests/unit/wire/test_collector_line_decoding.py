"""What the device manager makes of the lines of a collector process, and of what is no line."""

import json
from typing import Any

import pytest

from devicemanager.errors import DocumentError
from devicemanager.model.accelerator import Card, CollectorState, Reading, Reason
from devicemanager.model.figures import BY_NAME, Figures
from devicemanager.wire.collector_line_decoding import decode
from devicemanager.wire.collector_lines import LINE_LIMIT_BYTES, Announced, Failed, Read, encode
from tests import devices

CARD = Card(3, "GPU-3", "NVIDIA H100 80GB HBM3", "0000:1b:00.0")
READING = devices.reading(CARD, "ECC: 2 uncorrected", {"remappedRows": Reason.PERMISSION})


def altered(**changes: Any) -> bytes:
    body = json.loads(encode(Read(READING)))["reading"] | changes
    return json.dumps({"reading": body}).encode()


@pytest.mark.parametrize(
    ("changes", "figure", "expected"),
    [
        ({"memoryUsed": (80 << 30) + 1}, "memory_used", Reason.INVALID_DATA),
        ({"memory": 0}, "memory_total", Reason.INVALID_DATA),
        ({"cores": 101}, "compute_utilization", Reason.INVALID_DATA),
        ({"cores": 4294967295}, "compute_utilization", Reason.INVALID_DATA),
        ({"cores": 50.5}, "compute_utilization", Reason.INVALID_DATA),
        ({"cores": True}, "compute_utilization", Reason.INVALID_DATA),
        ({"cores": None}, "compute_utilization", Reason.INVALID_DATA),
        ({"cores": []}, "compute_utilization", Reason.INVALID_DATA),
        ({"cores": "not_yet"}, "compute_utilization", Reason.NOT_YET),
        ({"cores": "a word of tomorrow"}, "compute_utilization", Reason.INVALID_DATA),
        ({"temperature": -3}, "temperature", Reason.INVALID_DATA),
        ({"power": -1}, "power_usage", Reason.INVALID_DATA),
        ({"clockReductionReasons": ["sw_power_cap"]}, "clock_reduction_reasons", ("sw_power_cap",)),
        ({"clockReductionReasons": "unsupported"}, "clock_reduction_reasons", Reason.UNSUPPORTED),
        ({"clockReductionReasons": ["two words"]}, "clock_reduction_reasons", Reason.INVALID_DATA),
        ({"unhealthy": 7}, "unhealthy_reason", "the collector gives no readable reason"),
        ({"unhealthy": ""}, "unhealthy_reason", "the collector gives no readable reason"),
        ({"unhealthy": "two\nlines"}, "unhealthy_reason", "two lines"),
        ({"unread": {"ecc": "tomorrow"}}, "unread_checks", {"ecc": Reason.INVALID_DATA}),
    ],
)
def test_a_bad_figure_costs_itself_only(changes: dict[str, object], figure: str, expected: object) -> None:
    line = decode(altered(**changes))
    assert isinstance(line, Read)
    assert (line.reading.figures[figure] if figure in BY_NAME else getattr(line.reading, figure)) == expected
    assert line.reading.card == CARD


@pytest.mark.parametrize(
    ("notes", "expected"),
    [
        ({"power_usage": "of the instant"}, {"power_usage": "of the instant"}),
        ({"power_usage": 5, "temperature": "two\nlines", "colour": "red"}, {"temperature": "two lines"}),
        ({"power_usage": ""}, {}),
        ([], {}),
        ("text", {}),
        (None, {}),
    ],
)
def test_notes_are_of_known_figures_or_none(notes: object, expected: object) -> None:
    line = decode(altered(notes=notes))
    assert isinstance(line, Read)
    assert (line.reading.notes, line.reading.figures) == (expected, READING.figures)


def test_a_figure_left_out_is_not_reported() -> None:
    line = decode(b'{"reading":{"index":0}}')
    assert line == Read(Reading(Card(0), Figures(Reason.NOT_REPORTED)))


@pytest.mark.parametrize("bad", ["", 7, None, "x" * 257, "GPU\n1", "\ud800"])
def test_an_id_that_cannot_be_one_is_none(bad: object) -> None:
    line = decode(altered(id=bad))
    assert isinstance(line, Read)
    assert line.reading.card.id is None


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\n",
        b"null",
        b"[]",
        b"{}",
        b'"begin"',
        b"{'begin': {}}",
        b'{"begin":[]}',
        b'{"begin":',
        b"\xff\xff",
        b'{"end":{}}',
        b'{"end":{"count":-1}}',
        b'{"end":{"count":1025}}',
        b'{"end":{"count":true}}',
        b'{"end":{"count":1.0}}',
        b'{"end":{"count":NaN}}',
        b'{"card":{}}',
        b'{"card":{"index":1024}}',
        b'{"card":{"index":"0"}}',
        b'{"reading":{"index":0,"unread":[]}}',
        b'{"reading":{"index":0,"cores":Infinity}}',
        b'{"begin":{}}',
        b'{"begin":{"monotonic":1.0}}',
        b'{"begin":{"monotonic":true,"wall":1.0}}',
        b'{"begin":{"monotonic":-1.0,"wall":1.0}}',
        b'{"begin":{"monotonic":1e400,"wall":1.0}}',
        b'{"begin":{"monotonic":NaN,"wall":1.0}}',
        b'{"begin":{"monotonic":"1","wall":1.0}}',
        b'{"begin":{"monotonic":1.0,"wall":-1.0}}',
        b'{"begin":{"monotonic":1.0,"wall":1e15}}',
        b'{"begin":{"monotonic":' + b"9" * 400 + b',"wall":1.0}}',
        b'{"hello":{"v":1,"manufacturer":"nvidia","pid":1}}',
        b'{"hello":{"v":2,"manufacturer":"nvidia","pid":1}}',
        b'{"hello":{"v":4,"manufacturer":"nvidia","pid":1}}',
        b'{"hello":{"v":3}}',
        b'{"card":{"index":0,"parent":"GPU-0"}}',
        b'{"card":{"index":0,"parent":"GPU-0","id":7}}',
        b'{"card":{"index":0,"parent":7,"id":"MIG-1"}}',
        b'{"reading":{"index":0,"id":"GPU-0","partitions":{}}}',
        b'{"reading":{"index":0,"id":"GPU-0","partitions":[7]}}',
        b'{"reading":{"index":0,"id":"GPU-0","partitions":[{"index":0,"id":"MIG-1"}]}}',
        b'{"reading":{"index":0,"id":"GPU-0","partitions":[{"index":0,"id":"MIG-1","parent":"GPU-1"}]}}',
        b'{"reading":{"index":0,"id":"GPU-0","partitions":['
        b'{"index":0,"id":"MIG-1","parent":"GPU-0"},{"index":0,"id":"MIG-1","parent":"GPU-0","profile":"x"}]}}',
        b'{"reading":{"index":0,"partitions":[{"index":0,"id":"MIG-1","parent":"GPU-0"}]}}',
        b'{"failed":{"state":5,"detail":"x"}}',
        b'{"failed":{"state":"failed"}}',
        b'{"end":{"count":' + b"9" * 5000 + b"}}",
        b"[" * 60_000,
        b'{"begin":{}}' + b" " * LINE_LIMIT_BYTES,
    ],
)
def test_anything_else_is_refused(raw: bytes) -> None:
    with pytest.raises(DocumentError, match=r"^line: "):
        decode(raw)


@pytest.mark.parametrize("state", ["ok", "starting", "a word of tomorrow"])
def test_a_process_cannot_fail_well(state: str) -> None:
    assert decode(json.dumps({"failed": {"state": state, "detail": "d"}}).encode()) == Failed(
        CollectorState.FAILED, "d"
    )


def test_an_announcement_that_comes_again_is_read_alike_and_a_faulty_one_refused_alike() -> None:
    """Announcements are remembered by their bytes."""
    first, again, other = (encode(Announced(Card(3, one))) for one in ("GPU-3", "GPU-3", "GPU-4"))
    assert [decode(raw) for raw in (first, other, again)] == [
        Announced(Card(3, "GPU-3")),
        Announced(Card(3, "GPU-4")),
        Announced(Card(3, "GPU-3")),
    ]
    long = encode(Announced(Card(3, "G" * 257)))
    assert [decode(long), decode(long)] == [Announced(Card(3))] * 2
    for _ in range(2):
        with pytest.raises(DocumentError, match="index"):
            decode(b'{"card":{"index":"0"}}')
