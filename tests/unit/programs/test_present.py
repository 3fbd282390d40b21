"""What people see: every figure with its unit, every absence with its reason."""

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest
import yaml

from collectors.pci import PciDevice
from devicemanager.model.accelerator import CollectorState, Reason
from devicemanager.model.figures import Figures
from devicemanager.model.usage import PeerSnapshot, SliceUsage, SnapshotCard
from devicemanager.programs import present
from devicemanager.settings.output import Output
from tests import devices

CARD = SnapshotCard(
    id="GPU-1",
    index=0,
    name="NVIDIA H100",
    figures=devices.published(),
    unhealthy=False,
    pci_bus_id="0000:3c:00.0",
)

LOST = SnapshotCard(
    id="GPU-2",
    index=None,
    name=None,
    figures=Figures(Reason.LOST),
    unhealthy=True,
    unhealthy_reason="lost: GPU_IS_LOST (15)",
)

SNAPSHOT = PeerSnapshot(
    timestamp=datetime(2026, 8, 12, 9, 15, 4, tzinfo=UTC),
    period_s=15,
    node_name="node-1",
    state=CollectorState.OK,
    detail=None,
    cards={"nvidia": (CARD, LOST)},
)


def test_a_snapshot_as_a_table() -> None:
    assert present.snapshot_text(SNAPSHOT, 3).splitlines() == [
        "nvidia on node-1: ok",
        "sampled every 15s; last 3s ago",
        "",
        "INDEX   NAME          MEMORY                     UTIL     TEMP     POWER    "
        "POWER-LIMIT   CLOCK-REDUCTION   HEALTH                               ID",
        "0       NVIDIA H100   20480 / 81920 MiB (25 %)   40 %     51 °C    233 W    "
        "700 W         none              healthy                              GPU-1",
        "-       -             <lost>                     <lost>   <lost>   <lost>   "
        "<lost>        <lost>            unhealthy (lost: GPU_IS_LOST (15))   GPU-2",
    ]


def test_partitions_are_listed_below_their_card() -> None:
    partitions = [
        SliceUsage("", "", "GPU-1", 1024, 37, "MIG-1", 10240, "1g.10gb"),
        SliceUsage("", "", "GPU-1", Reason.TIMEOUT, Reason.TIMEOUT, "MIG-2", Reason.TIMEOUT),
    ]
    rows = present.snapshot_text(replace(SNAPSHOT, partitions={"nvidia": tuple(partitions)}), 3).splitlines()[3:]

    assert [row.split() for row in rows[2:4]] == [
        [
            "-",
            "└",
            "1g.10gb",
            "1024",
            "/",
            "10240",
            "MiB",
            "(10",
            "%)",
            "37",
            "%",
            "-",
            "-",
            "-",
            "-",
            "-",
            "MIG-1",
        ],
        ["-", "└", "partition", "<timeout>", "<timeout>", "-", "-", "-", "-", "-", "MIG-2"],
    ]
    assert [row.split()[-1] for row in rows] == ["ID", "GPU-1", "MIG-1", "MIG-2", "GPU-2"]


def test_a_snapshot_without_a_sample_says_so() -> None:
    empty = replace(
        SNAPSHOT, timestamp=None, node_name=None, state=CollectorState.LIBRARY_MISSING, detail="no file", cards={}
    )

    assert present.snapshot_text(empty, None, name="nvidia").splitlines() == [
        "nvidia: library_missing: no file",
        "sampled every 15s; no sample yet",
    ]


@pytest.mark.parametrize(
    ("age_s", "expected"),
    [
        (45, "last 45s ago"),
        (46, "last 46s ago (stale: do not trust these figures)"),
        (None, "last at 2026-08-12T09:15:04+00:00"),
    ],
)
def test_what_is_old_says_so(age_s: int | None, expected: str) -> None:
    assert present.snapshot_text(SNAPSHOT, age_s).splitlines()[1] == f"sampled every 15s; {expected}"


@pytest.mark.parametrize(
    ("used", "total", "percent", "expected"),
    [
        (1, 4, 25, "1 / 4 MiB (25 %)"),
        (0, 4, 0, "0 / 4 MiB (0 %)"),
        (Reason.INVALID_DATA, 4, Reason.INVALID_DATA, "<invalid_data> / 4 MiB"),
        (1, Reason.UNSUPPORTED, Reason.UNSUPPORTED, "1 / <unsupported>"),
        (Reason.UNSUPPORTED, Reason.UNSUPPORTED, Reason.UNSUPPORTED, "<unsupported>"),
    ],
)
def test_memory(used: int | Reason, total: int | Reason, percent: int | Reason, expected: str) -> None:
    assert (
        present.memory_text(Figures(memory_used=used, memory_total=total, memory_utilization=percent)) == expected
    )


@pytest.mark.parametrize(
    ("unhealthy", "why", "expected"),
    [
        (False, None, "healthy"),
        (True, None, "unhealthy"),
        (True, "ECC", "unhealthy (ECC)"),
        (Reason.NOT_REPORTED, None, "<not_reported>"),
    ],
)
def test_health(unhealthy: bool | Reason, why: str | None, expected: str) -> None:
    assert present.health_text(unhealthy, why) == expected


def test_documents_keep_the_order_of_their_keys_and_every_character_in_ascii() -> None:
    value = {"b": [1, None], "a": "ü\u00a0\u202e\x9b"}

    as_json, as_yaml = (present.document(value, output) for output in (Output.JSON, Output.YAML))
    assert as_json == '{\n  "b": [\n    1,\n    null\n  ],\n  "a": "\\u00fc\\u00a0\\u202e\\u009b"\n}'
    assert as_yaml == 'b:\n- 1\n- null\na: "\\xFC\\_\\u202E\\x9B"'
    assert json.loads(as_json) == yaml.safe_load(as_yaml) == value


def test_no_document_holds_what_is_not_json() -> None:
    with pytest.raises(ValueError, match="JSON"):
        present.document({"a": float("nan")}, Output.JSON)


DEVICES = (
    PciDevice("0000:3c:00.0", "10de", "2330", "030200", "nvidia"),
    PciDevice("0000:3d:00.0", "10de", "2330", "030200", "vfio-pci"),
    PciDevice("0000:00:02.0", "1002", "1638", "030000", "amdgpu", integrated=True),
    PciDevice("0000:3c:00.4", "1002", "7410", "120000", virtual_function=True),
)


def test_an_inventory_as_tables() -> None:
    text = present.inventory_text(DEVICES, {"nvidia": SNAPSHOT, "amd": None})

    assert [line.split(None, 4) for line in text.split("\n\n")[0].splitlines()] == [
        ["ADDRESS", "MANUFACTURER", "VENDOR:DEVICE", "DRIVER", "NOTE"],
        ["0000:3c:00.0", "nvidia", "10de:2330", "nvidia"],
        ["0000:3d:00.0", "nvidia", "10de:2330", "vfio-pci", "given to a virtual machine"],
        ["0000:00:02.0", "amd", "1002:1638", "amdgpu", "part of the processor"],
        ["0000:3c:00.4", "amd", "1002:7410", "-", "share of another card"],
    ]
    assert "81920 MiB" in text
    assert "0000:3c:00.0   healthy" in text
    assert text.endswith("amd: no collector is built yet")


def test_a_value_that_is_not_the_usual_one_says_so() -> None:
    (cards,) = SNAPSHOT.cards.values()
    noted = replace(SNAPSHOT, cards={"nvidia": (replace(cards[0], notes={"powerUsage": "of the instant"}),)})

    text = present.inventory_text((), {"nvidia": noted})

    assert text.split("\n\n")[1:] == [f"nvidia {cards[0].index}: powerUsage: of the instant"]


def test_an_inventory_of_nothing() -> None:
    empty = replace(SNAPSHOT, state=CollectorState.DRIVER_NOT_LOADED, detail="code 9", cards={})

    assert present.inventory_text((), {"nvidia": empty}, searched="no card is there") == (
        "No card is there.\n\nnvidia: driver_not_loaded: code 9"
    )
    assert present.inventory_text((), {}, searched="no card is there") == "No card is there."


def test_an_empty_bus_that_was_not_searched_is_not_mentioned() -> None:
    assert present.inventory_text((), {"nvidia": replace(SNAPSHOT, cards={})}) == ("nvidia: ok: no cards")


def test_an_inventory_for_programs() -> None:
    card = {"id": "GPU-2", "unhealthy": True, "unhealthyReason": "lost", "absent": {"memory": "lost"}}
    served = {"groups": [{"manufacturer": "nvidia", "accelerators": [card]}], "collector": {"state": "ok"}}

    assert present.inventory_document([DEVICES[0], DEVICES[3]], {"nvidia": served, "amd": None}) == {
        "bus": [
            {
                "address": "0000:3c:00.0",
                "manufacturer": "nvidia",
                "vendorID": "10de",
                "deviceID": "2330",
                "driver": "nvidia",
                "integrated": False,
                "passthrough": False,
                "virtualFunction": False,
            },
            {
                "address": "0000:3c:00.4",
                "manufacturer": "amd",
                "vendorID": "1002",
                "deviceID": "7410",
                "integrated": False,
                "passthrough": False,
                "virtualFunction": True,
            },
        ],
        "manufacturers": [
            {"manufacturer": "nvidia", "built": True, "state": "ok", "accelerators": [card]},
            {"manufacturer": "amd", "built": False, "accelerators": []},
        ],
    }


LONG = replace(CARD, id="GPU-2f1c0a3e-6a52-4f6e-9d39-0c5a4de8a1b7", name="NVIDIA H100 80GB HBM3 for a test")


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (100, "INDEX NAME MEMORY UTIL TEMP POWER HEALTH ID"),
        (80, "INDEX MEMORY UTIL TEMP POWER HEALTH ID"),
        (66, "MEMORY UTIL TEMP POWER HEALTH ID"),
        (55, "MEMORY UTIL HEALTH ID"),
    ],
)
def test_a_table_of_cards_fits_a_terminal_and_keeps_who_each_is(width: int, shown: str) -> None:
    text = present.snapshot_text(replace(SNAPSHOT, cards={"nvidia": (LONG,)}), 3, width=width)

    header, row = text.splitlines()[-2:]
    assert header.split() == shown.split()
    assert ("NVIDIA H" in row) == ("NAME" in shown)
    assert "  healthy  GPU-2f1c0" in row
    assert row.endswith("…")
    assert len(row) <= width


@pytest.mark.parametrize("width", [80, 64])
def test_every_table_fits_a_narrow_terminal(width: int) -> None:
    lost = replace(LOST, index=3, name=LONG.name, id=LONG.id)
    snapshot = replace(SNAPSHOT, cards={"nvidia": (LONG, lost)})

    for text in (
        present.snapshot_text(snapshot, 3, width=width),
        present.inventory_text(DEVICES, {"nvidia": snapshot}, width=width),
    ):
        assert max(map(len, text.splitlines())) <= width


def test_one_look_is_not_sampled_again() -> None:
    empty = replace(SNAPSHOT, timestamp=None, state=CollectorState.FAILED, detail="why", cards={})

    assert present.snapshot_text(empty, 0, once=True, name="nvidia") == "nvidia on node-1: failed: why"
