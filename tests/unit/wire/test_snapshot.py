"""The snapshot's bytes: ours as documented, the existing operator's as they are, and everything else survived."""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from devicemanager.errors import DocumentError
from devicemanager.model.accelerator import (
    Card,
    CollectorState,
    CollectorStatus,
    Reading,
    Reason,
    RestartReason,
    Sample,
    Snapshot,
)
from devicemanager.model.figures import BY_NAME, DeviceFigure, Figures
from devicemanager.model.usage import SliceDevice, SliceUsage
from devicemanager.wire import snapshot as wire
from tests import devices

GIB = 1 << 30
SINCE = datetime(2026, 8, 12, 9, 0, tzinfo=UTC)
TAKEN = datetime(2026, 8, 12, 9, 15, 4, 512873, tzinfo=UTC)
OK = CollectorStatus(CollectorState.OK, SINCE)

OPERATOR_BODY = b"""{"timestamp":"2026-08-12T09:15:04.512873401Z","periodSeconds":15,"groups":[{"manufacturer":\
"nvidia","timestamp":"2026-08-12T09:15:04.300112233Z","accelerators":[{"id":"GPU-aaaa1111-0000-0000-0000-000000000001",\
"memory":81920,"memoryUsage":20480,"memoryUtilization":25,"coresUtilization":40,"temperature":51,"powerUsage":233,\
"unhealthy":false},{"id":"GPU-aaaa1111-0000-0000-0000-000000000002","memory":81920,"memoryUsage":0,\
"memoryUtilization":0,"coresUtilization":0,"temperature":0,"powerUsage":0,"unhealthy":true}]}],"slices":{\
"schemaVersion":1,"usages":[{"manufacturer":"nvidia","podUID":"11111111-2222-3333-4444-555555555555",\
"container":"main","deviceID":"GPU-aaaa1111-0000-0000-0000-000000000001","memoryUsedMiB":6144,\
"coresUtilizationPercent":18}],"devices":[{"manufacturer":"nvidia","deviceID":\
"GPU-aaaa1111-0000-0000-0000-000000000001","coresReason":"unsupported","rowsReturned":1,"rowsAttributed":1,\
"rowsNonInstance":0,"rowsUnreadable":0,"rowsAmbiguous":0,"readsTruncated":0}],"partitions":[{"manufacturer":"nvidia",\
"podUID":"66666666-7777-8888-9999-000000000000","container":"main","deviceID":\
"GPU-aaaa1111-0000-0000-0000-000000000002","id":"MIG-bbbb2222-0000-0000-0000-000000000003","memoryTotalMiB":9856,\
"memoryUsedMiB":0,"coresReason":"unsupported"}]}}
"""
"""What the existing operator's device manager prints, zeros included."""


CARD = Card(0, "GPU-1", "NVIDIA H100 80GB HBM3", "0000:1b:00.0")


def reading(unread_checks: Mapping[str, Reason] | None = None, **changes: DeviceFigure) -> Reading:
    return devices.reading(CARD, None, unread_checks, **{"memory_used": 20 * GIB + 1, **changes})


def encoded(
    *readings: Reading, period_s: float = 15.0, collector: CollectorStatus = OK, node: str | None = None
) -> Any:
    sample = Sample(TAKEN, 100.0, 0.02, readings)
    return json.loads(wire.encode(Snapshot("nvidia", period_s, sample, collector, node)))


def document(*cards: object, **changes: object) -> bytes:
    body: dict[str, object] = {
        "timestamp": "2026-08-12T09:15:04Z",
        "periodSeconds": 15,
        "groups": [{"manufacturer": "nvidia", "accelerators": list(cards)}],
    }
    return json.dumps(body | changes).encode()


def test_before_the_first_sample() -> None:
    starting = CollectorStatus(CollectorState.STARTING, SINCE)
    body = wire.encode(Snapshot("nvidia", 15.0, None, starting))
    assert body == (
        b'{"timestamp":"0001-01-01T00:00:00Z","periodSeconds":15,"groups":[],"collector":{"state":"starting",'
        b'"since":"2026-08-12T09:00:00Z","consecutiveFailures":0,"restarts":0}}\n'
    )


def test_a_card_with_every_figure() -> None:
    body = encoded(reading(), period_s=1.5, node="worker-1")
    assert body == {
        "timestamp": "2026-08-12T09:15:04.512873Z",
        "periodSeconds": 2,
        "groups": [
            {
                "manufacturer": "nvidia",
                "timestamp": "2026-08-12T09:15:04.512873Z",
                "accelerators": [
                    {
                        "id": "GPU-1",
                        "index": 0,
                        "name": "NVIDIA H100 80GB HBM3",
                        "pciBusId": "0000:1b:00.0",
                        "memory": 81920,
                        "memoryUsage": 20481,
                        "memoryUtilization": 25,
                        "coresUtilization": 40,
                        "temperature": 51,
                        "powerUsage": 233,
                        "powerLimit": 700,
                        "clockReductionReasons": [],
                        "unhealthy": False,
                        "absent": {},
                    }
                ],
            }
        ],
        "nodeName": "worker-1",
        "collector": {
            "state": "ok",
            "since": "2026-08-12T09:00:00Z",
            "consecutiveFailures": 0,
            "restarts": 0,
        },
    }


def test_a_value_that_is_not_the_usual_one_says_so() -> None:
    noted = replace(reading(), notes={"power_usage": "of the instant"})
    document = encoded(noted, reading())
    cards = document["groups"][0]["accelerators"]
    assert cards[0]["notes"] == {"powerUsage": "of the instant"}
    assert "notes" not in cards[1]
    (card, _) = wire.parse(json.dumps(document).replace('"id": "GPU-1"', '"id": "GPU-2"', 1).encode()).cards[
        "nvidia"
    ]
    assert card.notes == {"powerUsage": "of the instant"}


@pytest.mark.parametrize(
    ("notes", "expected"),
    [
        (None, {}),
        ([], {}),
        ("text", {}),
        ({"powerUsage": 5, "memory": None, "temperature": "two\nlines"}, {"temperature": "two lines"}),
        ({f"k{n}": "x" for n in range(100)}, {f"k{n}": "x" for n in range(64)}),
    ],
)
def test_notes_that_are_none_cost_nothing_else(notes: object, expected: object) -> None:
    (card,) = wire.parse(document({"id": "GPU-1", "memory": 4, "notes": notes})).cards["nvidia"]
    assert (card.notes, card.figures["memory_total"]) == (expected, 4)


def test_an_absent_figure_has_no_key_but_a_reason() -> None:
    body = encoded(
        reading(memory_used=Reason.UNSUPPORTED, unread_checks={"eccUncorrected": Reason.PERMISSION}),
        Reading.unreadable(Card(1, "GPU-2"), Reason.TIMEOUT, "did not answer within 2 s"),
    )
    first, second = body["groups"][0]["accelerators"]
    assert first["memory"] == 81920
    assert "memoryUsage" not in first
    assert "memoryUtilization" not in first
    assert first["absent"] == {
        "eccUncorrected": "permission",
        "memoryUsage": "unsupported",
        "memoryUtilization": "unsupported",
    }
    assert second == {
        "id": "GPU-2",
        "index": 1,
        "unhealthy": True,
        "unhealthyReason": "did not answer within 2 s",
        "absent": dict.fromkeys(
            [
                "memory",
                "memoryUsage",
                "memoryUtilization",
                "coresUtilization",
                "temperature",
                "powerUsage",
                "powerLimit",
                "clockReductionReasons",
            ],
            "timeout",
        ),
    }


def test_a_full_card_is_not_more_than_full() -> None:
    odd = 80 * GIB - 1
    card = encoded(reading(memory_total=odd, memory_used=odd))["groups"][0]["accelerators"][0]
    assert (card["memory"], card["memoryUsage"], card["memoryUtilization"]) == (81920, 81920, 100)


def test_measured_and_empty_is_a_group_without_cards() -> None:
    body = encoded(collector=CollectorStatus(CollectorState.NO_DEVICES, SINCE, "the library counts no card"))
    assert body["groups"] == [
        {"manufacturer": "nvidia", "timestamp": "2026-08-12T09:15:04.512873Z", "accelerators": []}
    ]
    assert body["collector"]["detail"] == "the library counts no card"


def test_times_are_utc_whatever_they_were_given_in() -> None:
    tokyo = TAKEN.astimezone(timezone(timedelta(hours=9)))
    sample = Sample(tokyo, 1.0, 0.1, ())
    assert json.loads(wire.encode(Snapshot("nvidia", 15, sample, OK)))["timestamp"] == "2026-08-12T09:15:04.512873Z"


def test_the_existing_operators_bytes() -> None:
    peer = wire.parse(OPERATOR_BODY)
    assert peer.timestamp == TAKEN
    assert (peer.period_s, peer.node_name, peer.state, peer.detail) == (15, None, CollectorState.OK, None)
    first, second = peer.cards["nvidia"]
    assert first.id == "GPU-aaaa1111-0000-0000-0000-000000000001"
    assert (first.index, first.name, first.pci_bus_id) == (None, None, None)
    assert first.figures == Figures(
        Reason.NOT_REPORTED,
        memory_total=81920,
        memory_used=20480,
        memory_utilization=25,
        compute_utilization=40,
        temperature=51,
        power_usage=233,
    )
    assert first.unhealthy is False
    assert [second.figures[name] for name in ("memory_used", "temperature", "power_usage")] == [0, 0, 0]
    assert second.unhealthy is True
    assert peer.slices is not None
    assert peer.slices["nvidia"] == (
        SliceUsage("11111111-2222-3333-4444-555555555555", "main", first.id, 6144, 18),
        SliceUsage(
            "66666666-7777-8888-9999-000000000000",
            "main",
            second.id,
            0,
            Reason.UNSUPPORTED,
            "MIG-bbbb2222-0000-0000-0000-000000000003",
            9856,
        ),
    )
    assert peer.slice_devices["nvidia"] == (SliceDevice(first.id, None, Reason.UNSUPPORTED),)


def test_the_operator_before_its_first_tick() -> None:
    peer = wire.parse(b'{"timestamp":"0001-01-01T00:00:00Z","periodSeconds":0,"groups":[]}\n')
    assert (peer.timestamp, peer.period_s, peer.cards, peer.slices) == (None, 15, {}, None)


def test_what_we_encode_is_what_we_parse() -> None:
    absent = Reading.unreadable(Card(1, "GPU-2", None, "0000:2b:00.0"), Reason.LOST, "code 15")
    status = CollectorStatus(CollectorState.CRASHED, SINCE, "ended by SIGSEGV", 3, {RestartReason.CRASHED: 2})
    body = wire.encode(Snapshot("nvidia", 15, Sample(TAKEN, 0.0, 0.0, (reading(), absent)), status, "worker-1"))
    peer = wire.parse(body)
    assert (peer.state, peer.detail, peer.node_name) == (CollectorState.CRASHED, "ended by SIGSEGV", "worker-1")
    first, second = peer.cards["nvidia"]
    assert (first.index, first.name, first.figures["memory_used"]) == (0, "NVIDIA H100 80GB HBM3", 20481)
    assert (second.figures["memory_total"], second.figures["power_usage"]) == (Reason.LOST, Reason.LOST)
    assert (second.unhealthy, second.unhealthy_reason, second.pci_bus_id) == (True, "code 15", "0000:2b:00.0")


@pytest.mark.parametrize(
    ("changes", "figure", "expected"),
    [
        ({"memory": None}, "memory_total", Reason.NOT_REPORTED),
        ({"memory": -1}, "memory_total", Reason.INVALID_DATA),
        ({"memory": 0}, "memory_total", Reason.INVALID_DATA),
        ({"memory": 1 << 70}, "memory_total", Reason.INVALID_DATA),
        ({"memory": 2.5}, "memory_total", Reason.INVALID_DATA),
        ({"memory": True}, "memory_total", Reason.INVALID_DATA),
        ({"memory": "81920"}, "memory_total", Reason.INVALID_DATA),
        ({"memoryUsage": 81921}, "memory_used", Reason.INVALID_DATA),
        ({"memoryUsage": 81921}, "memory_utilization", Reason.INVALID_DATA),
        ({"memoryUtilization": 250}, "memory_utilization", Reason.INVALID_DATA),
        ({"coresUtilization": 4294967295}, "compute_utilization", Reason.INVALID_DATA),
        ({"temperature": 3800}, "temperature", Reason.INVALID_DATA),
        ({"powerUsage": 71000}, "power_usage", Reason.INVALID_DATA),
        ({"powerLimit": 700}, "power_limit", 700),
        ({"clockReductionReasons": []}, "clock_reduction_reasons", ()),
        ({"clockReductionReasons": ["sw_power_cap"]}, "clock_reduction_reasons", ("sw_power_cap",)),
        ({"clockReductionReasons": {"sw_power_cap": 1}}, "clock_reduction_reasons", Reason.INVALID_DATA),
        ({"figures": {"temperature": 9}}, "temperature", 51),
        ({"unhealthy": "no"}, "unhealthy", Reason.INVALID_DATA),
        ({"unhealthy": None}, "unhealthy", Reason.NOT_REPORTED),
        ({"absent": {"temperature": "permission"}}, "temperature", Reason.PERMISSION),
        ({"absent": {"temperature": "a word of tomorrow"}}, "temperature", Reason.NOT_REPORTED),
        ({"absent": ["temperature"]}, "temperature", 51),
        ({"index": "first"}, "index", None),
        ({"name": ["x"]}, "name", None),
        ({"somethingNew": {}}, "temperature", 51),
    ],
)
def test_a_bad_field_costs_itself_only(changes: dict[str, object], figure: str, expected: object) -> None:
    whole: dict[str, object] = {
        "id": "GPU-1",
        "index": 0,
        "name": "card",
        "memory": 81920,
        "memoryUsage": 20480,
        "memoryUtilization": 25,
        "coresUtilization": 40,
        "temperature": 51,
        "powerUsage": 233,
        "unhealthy": False,
    }
    card = wire.parse(document(whole | changes)).cards["nvidia"][0]
    assert (card.figures[figure] if figure in BY_NAME else getattr(card, figure)) == expected
    assert card.id == "GPU-1"
    if figure != "compute_utilization":
        assert card.figures["compute_utilization"] == 40


@pytest.mark.parametrize("bad", [None, 5, "GPU-9", [], {}, {"id": ""}, {"id": 7}, {"id": None}, {"id": "x" * 300}])
def test_a_bad_card_costs_itself_only(bad: object) -> None:
    cards = wire.parse(document({"id": "GPU-1"}, bad, {"id": "GPU-2"})).cards["nvidia"]
    assert [card.id for card in cards] == ["GPU-1", "GPU-2"]
    assert cards[0].figures["memory_total"] is Reason.NOT_REPORTED


@pytest.mark.parametrize("bad", [None, 5, {}, {"manufacturer": "amd"}, {"manufacturer": 1, "accelerators": []}])
def test_a_bad_group_costs_itself_only(bad: object) -> None:
    good = {"manufacturer": "nvidia", "accelerators": [{"id": "GPU-1"}]}
    assert list(wire.parse(document(groups=[bad, good])).cards) == ["nvidia"]


def test_of_two_cards_with_one_id_only_what_both_say_stays() -> None:
    """The same kind: which of the two a pod was given cannot be told."""
    one, other = (
        {"id": "GPU-1", "temperature": 40, "powerUsage": 70},
        {"id": "GPU-1", "temperature": 90, "powerUsage": 70},
    )
    for pair in ((one, other), (other, one), (one, other, one)):
        (card,) = wire.parse(document(*pair)).cards["nvidia"]
        assert (card.figures["temperature"], card.figures["power_usage"]) == (Reason.INVALID_DATA, 70)


def test_null_lists_are_empty() -> None:
    assert wire.parse(document(groups=None)).cards == {}
    measured = wire.parse(document(groups=[{"manufacturer": "nvidia", "accelerators": None}]))
    assert measured.cards == {"nvidia": ()}
    slices = {"schemaVersion": 1, "usages": None, "devices": None}
    assert wire.parse(document(slices=slices)).slices == {}


@pytest.mark.parametrize("version", [0, 2, "1", None, 1.0, True])
def test_slices_of_another_version_are_no_slices(version: object) -> None:
    usage = {"manufacturer": "nvidia", "podUID": "u", "container": "c", "deviceID": "GPU-1", "memoryUsedMiB": 1}
    peer = wire.parse(document({"id": "GPU-1"}, slices={"schemaVersion": version, "usages": [usage]}))
    assert peer.slices is None
    assert peer.slices_reason is Reason.VERSION_SKEW
    assert len(peer.cards["nvidia"]) == 1


@pytest.mark.parametrize(
    ("section", "reason"),
    [
        (None, Reason.UNSUPPORTED),
        ([], Reason.UNSUPPORTED),
        ({"schemaVersion": 1, "usages": 5}, Reason.INVALID_DATA),
        ({"schemaVersion": 2, "usages": {}}, Reason.VERSION_SKEW),
    ],
)
def test_a_section_that_cannot_be_used_says_why(section: object, reason: Reason) -> None:
    peer = wire.parse(document({"id": "GPU-1"}, slices=section))
    assert (peer.slices, peer.slices_reason) == (None, reason)


def test_a_partition_of_a_sender_without_pod_uids() -> None:
    partition = {"manufacturer": "nvidia", "deviceID": "GPU-1", "id": "MIG-1", "coresPercent": 7}
    slices = wire.parse(document(slices={"schemaVersion": 1, "partitions": [partition]})).slices
    assert slices is not None
    assert slices["nvidia"] == (SliceUsage("", "", "GPU-1", Reason.NOT_REPORTED, 7, "MIG-1"),)


def test_a_bad_slice_costs_itself_only() -> None:
    good = {"manufacturer": "nvidia", "podUID": "u", "container": "c", "deviceID": "GPU-1", "memoryUsedMiB": 1}
    nameless = {**good, "id": None}
    impossible = {**good, "id": "MIG-1", "memoryTotalMiB": 5, "memoryUsedMiB": 6}
    refused = {**good, "id": "MIG-2", "memoryReason": "permission"}
    slices = {
        "schemaVersion": 1,
        "usages": [{**good, "podUID": None}, 7, good],
        "partitions": [nameless, impossible, refused],
    }
    parsed = wire.parse(document(slices=slices)).slices
    assert parsed is not None
    usage, first, second = parsed["nvidia"]
    assert (usage.memory_used_mib, usage.utilization_percent, usage.partition_id) == (1, Reason.NOT_REPORTED, None)
    assert (first.memory_total_mib, first.memory_used_mib) == (5, Reason.INVALID_DATA)
    assert (second.memory_total_mib, second.memory_used_mib) == (Reason.PERMISSION, Reason.PERMISSION)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-08-12T09:15:04.512873401Z", TAKEN),
        ("2026-08-12T17:15:04.512873+08:00", TAKEN),
        ("0001-01-01T00:00:00Z", None),
        ("0001-01-01T00:00:00+08:00", None),
        ("1970-01-01T00:00:09Z", datetime(1970, 1, 1, 0, 0, 9, tzinfo=UTC)),
    ],
)
def test_timestamps(text: object, expected: datetime | None) -> None:
    assert wire.parse(document(timestamp=text)).timestamp == expected


@pytest.mark.parametrize(
    "bad",
    [
        "9999-12-31T23:59:59-14:00",
        "2026-13-40T00:00:00Z",
        "2026-08-12 09:15:04Z",
        "yesterday",
        "",
        1786526104,
        None,
        True,
        {},
        [],
    ],
)
def test_an_invalid_time_is_no_snapshot_and_no_zero_time(bad: object) -> None:
    with pytest.raises(DocumentError, match="snapshot: timestamp: "):
        wire.parse(document(timestamp=bad))


def test_a_snapshot_without_a_time_is_none() -> None:
    with pytest.raises(DocumentError, match="snapshot: timestamp: "):
        wire.parse(b'{"periodSeconds":15,"groups":[]}')


@pytest.mark.parametrize(
    ("period", "expected"),
    [(1, 1), (3600, 3600), (0, 15), (3601, 15), (-5, 15), ("30", 15), (None, 15), (True, 15)],
)
def test_periods(period: object, expected: int) -> None:
    assert wire.parse(document(periodSeconds=period)).period_s == expected


def test_a_state_of_tomorrow_is_a_failure_that_names_it() -> None:
    peer = wire.parse(document(collector={"state": "hibernating"}))
    assert peer.state is CollectorState.FAILED
    assert "hibernating" in str(peer.detail)
    assert wire.parse(document(collector=7)).state is CollectorState.OK


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (b"", "snapshot:"),
        (b"null", "object"),
        (b"[]", "object"),
        (b'{"timestamp":"2026-08-12T09:15:04Z"}', "groups"),
        (b'{"timestamp":"2026-08-12T09:15:04Z","groups":"none"}', "array"),
        (b'{"groups":[', "snapshot:"),
        (b"\xff\xfe", "snapshot:"),
        (b'{"groups":[{"manufacturer":"n","accelerators":[{"id":"a","memory":NaN}]}]}', "snapshot:"),
        (b'{"groups":[{"manufacturer":"n","accelerators":[{"id":"a","memory":Infinity}]}]}', "snapshot:"),
        (b"[" * 100_000, "snapshot:"),
        (b" " * (wire.BODY_LIMIT_BYTES + 1), "more than"),
    ],
)
def test_what_is_no_snapshot_is_refused_with_the_fault(body: bytes, fault: str) -> None:
    with pytest.raises(DocumentError, match=fault):
        wire.parse(body)


PARTITION = Card(0, "MIG-1", parent="GPU-1", profile="1g.10gb")


def partition(card: Card = PARTITION, **changes: DeviceFigure) -> Reading:
    own = {"memory_total": 10 * GIB, "memory_used": GIB, "compute_utilization": 7}
    return devices.partition(card, **own | changes)


def test_partitions_of_a_card_have_their_own_figures_and_none_of_the_board() -> None:
    one = partition()
    other = partition(
        Card(0, "MIG-2", parent="GPU-1"), compute_utilization=Reason.UNSUPPORTED, memory_used=Reason.TIMEOUT
    )
    (card,) = encoded(replace(reading(), partitions=(one, other)))["groups"][0]["accelerators"]
    assert card["partitions"] == [
        {
            "id": "MIG-1",
            "profile": "1g.10gb",
            "memory": 10240,
            "memoryUsage": 1024,
            "memoryUtilization": 10,
            "coresUtilization": 7,
            "absent": {},
        },
        {
            "id": "MIG-2",
            "memory": 10240,
            "absent": {"memoryUsage": "timeout", "memoryUtilization": "timeout", "coresUtilization": "unsupported"},
        },
    ]
    (card,) = encoded(reading())["groups"][0]["accelerators"]
    assert "partitions" not in card


def listing(partitions: object) -> bytes:
    return document({"id": "GPU-1", "memory": 81920, "partitions": partitions})


def test_partitions_are_read_as_they_were_encoded() -> None:
    one = partition(compute_utilization=Reason.UNSUPPORTED)
    sample = Sample(TAKEN, 100.0, 0.02, (replace(reading(), partitions=(one,)),))
    peer = wire.parse(wire.encode(Snapshot("nvidia", 15.0, sample, OK)))
    assert peer.partitions == {
        "nvidia": (SliceUsage("", "", "GPU-1", 1024, Reason.UNSUPPORTED, "MIG-1", 10240, profile="1g.10gb"),)
    }
    assert peer.slices is None


@pytest.mark.parametrize(
    ("partitions", "expected"),
    [
        (None, []),
        ("many", []),
        ([7, {}, {"id": ""}], []),
        ([{"id": "MIG-1"}], [("MIG-1", Reason.NOT_REPORTED, Reason.NOT_REPORTED)]),
        (
            [{"id": "MIG-1", "memory": 10, "memoryUsage": 11, "coresUtilization": 101}],
            [("MIG-1", Reason.INVALID_DATA, Reason.INVALID_DATA)],
        ),
        ([{"id": "MIG-1", "memory": 10, "memoryUsage": 0, "coresUtilization": 0}], [("MIG-1", 0, 0)]),
        (
            [{"id": "MIG-1", "coresUtilization": 5, "absent": {"coresUtilization": "lost"}}],
            [("MIG-1", Reason.NOT_REPORTED, Reason.LOST)],
        ),
    ],
)
def test_a_partition_that_cannot_be_understood_costs_itself_only(partitions: object, expected: object) -> None:
    peer = wire.parse(listing(partitions))
    assert [card.figures["memory_total"] for card in peer.cards["nvidia"]] == [81920]
    found = [
        (one.partition_id, one.memory_used_mib, one.utilization_percent)
        for one in peer.partitions.get("nvidia", ())
    ]
    assert found == expected


def test_partitions_are_bounded() -> None:
    assert len(wire.parse(listing([{"id": f"P-{n}"} for n in range(1024)])).partitions["nvidia"]) == 1024
    with pytest.raises(DocumentError, match="more than 1024 partitions"):
        wire.parse(listing([{"id": f"P-{n}"} for n in range(1025)]))
