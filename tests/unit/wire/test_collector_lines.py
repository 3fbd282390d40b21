"""What the lines of a collector process mean, and that nothing else means anything."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from devicemanager.model.accelerator import Card, CollectorState, Reading, Reason, Versions
from devicemanager.wire.collector_line_decoding import decode
from devicemanager.wire.collector_lines import (
    Announced,
    Begin,
    End,
    Failed,
    Hello,
    Line,
    Read,
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
        Hello("nvidia", count_call="nvmlDeviceGetCount"),
        Hello("nvidia", versions=Versions("590.48.01")),
        Hello("nvidia", versions=Versions("590.48.01", "13.590.48.01")),
        Announced(replace(CARD, serial="1653000000001")),
        Begin(8123.25, datetime(2026, 8, 12, 9, 0, 0, 500_000, UTC)),
        Announced(CARD),
        Announced(Card(0)),
        Announced(PARTITION),
        Read(READING),
        Read(READING, ()),
        Read(replace(READING, notes={"power_usage": "of the instant"}), ()),
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
