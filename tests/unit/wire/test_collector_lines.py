"""What the lines of a collector process mean, and that nothing else means anything."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from collectors import lines
from devicemanager.errors import CollectorError, DocumentError
from devicemanager.model.accelerator import Card, CollectorState, Reading, Reason
from devicemanager.model.figures import BY_NAME, Figures
from devicemanager.wire.collector_lines import (
    LINE_LIMIT_BYTES,
    Announced,
    Begin,
    End,
    Failed,
    Hello,
    Read,
    decode,
)
from tests import devices

CARD = Card(3, "GPU-3", "NVIDIA H100 80GB HBM3", "0000:1b:00.0")
READING = devices.reading(CARD, "ECC: 2 uncorrected", {"remappedRows": Reason.PERMISSION})


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (lines.hello("nvidia", 42), Hello("nvidia")),
        (lines.begin(8123.25, 1786525200.5), Begin(8123.25, datetime(2026, 8, 12, 9, 0, 0, 500_000, UTC))),
        (lines.announcement(CARD), Announced(CARD)),
        (lines.announcement(Card(0)), Announced(Card(0))),
        (lines.reading(READING), Read(READING)),
        (
            lines.reading(Reading.unreadable(CARD, Reason.LOST, "code 15")),
            Read(Reading.unreadable(CARD, Reason.LOST, "code 15")),
        ),
        (lines.end(8), End(8)),
        (
            lines.failed(CollectorError(CollectorState.DRIVER_NOT_LOADED, "code 9")),
            Failed(CollectorState.DRIVER_NOT_LOADED, "code 9"),
        ),
    ],
)
def test_what_the_collector_writes_is_what_is_read(raw: bytes, expected: object) -> None:
    assert decode(raw) == expected


def altered(**changes: Any) -> bytes:
    body = json.loads(lines.reading(READING))["reading"] | changes
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
        b'{"hello":{"v":3,"manufacturer":"nvidia","pid":1}}',
        b'{"hello":{"v":2}}',
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
