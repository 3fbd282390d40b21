"""What the lines of a collector process mean, and that nothing else means anything."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from devicemanager.errors import DocumentError
from devicemanager.model.accelerator import Card, CollectorState, Reading, Reason
from devicemanager.model.figures import BY_NAME, Figures
from devicemanager.wire.collector_lines import (
    LINE_LIMIT_BYTES,
    Announced,
    Begin,
    End,
    Failed,
    Hello,
    Line,
    Read,
    decode,
    encode,
)
from tests import devices

CARD = Card(3, "GPU-3", "NVIDIA H100 80GB HBM3", "0000:1b:00.0")
READING = devices.reading(CARD, "ECC: 2 uncorrected", {"remappedRows": Reason.PERMISSION})


PARTITION = Card(3, "MIG-1", parent="GPU-3", profile="1g.10gb")


@pytest.mark.parametrize(
    "line",
    [
        Hello("nvidia"),
        Hello("nvidia", "nvidia-ml-py 13", "too old"),
        Begin(8123.25, datetime(2026, 8, 12, 9, 0, 0, 500_000, UTC)),
        Announced(CARD),
        Announced(Card(0)),
        Announced(PARTITION),
        Read(READING),
        Read(READING, ()),
        Read(READING, (PARTITION, replace(PARTITION, id="MIG-2", profile=None))),
        Read(replace(READING, card=PARTITION)),
        Read(Reading.unreadable(CARD, Reason.LOST, "code 15")),
        End(8),
        Failed(CollectorState.DRIVER_NOT_LOADED, "code 9"),
    ],
)
def test_what_the_collector_writes_is_what_is_read(line: Line) -> None:
    raw = encode(line)
    assert raw.isascii()
    assert raw.count(b"\n") == 1
    assert decode(raw) == line


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
