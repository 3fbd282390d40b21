import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from devicemanager import __version__
from devicemanager.model.accelerator import (
    Card,
    CollectorState,
    CollectorStatus,
    Reading,
    Reason,
    RestartReason,
    Sample,
    Versions,
)
from devicemanager.node.exposition import Exposition
from devicemanager.node.snapshot_store import SnapshotStore
from devicemanager.wire.snapshot import PARTITION_FIGURES
from tests import devices
from tests.timing import FakeClock

ENDS = datetime(2027, 1, 1, tzinfo=UTC)
CARD = Card(0, "GPU-0", "NVIDIA H100", "0000:01:00.0")
LABELS = {"manufacturer": "nvidia", "id": "GPU-0"}
READING = devices.reading(CARD, compute_utilization=75, temperature=41, power_usage=123_456)
OF_A_CARD = {
    "accelerator_memory_total_bytes": 80 << 30,
    "accelerator_memory_used_bytes": 20 << 30,
    "accelerator_memory_used_ratio": 0.25,
    "accelerator_cores_utilization_ratio": 0.75,
    "accelerator_temperature_celsius": 41,
    "accelerator_power_watts": 123.456,
    "accelerator_power_limit_watts": 700,
    "accelerator_clock_reduction_reasons": 0,
    "accelerator_unhealthy": 0,
}


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(clock: FakeClock) -> SnapshotStore:
    return SnapshotStore("nvidia", 1.5, None, clock)


@pytest.fixture
def exposition(store: SnapshotStore, clock: FakeClock) -> Exposition:
    return Exposition(store, lambda: ENDS, clock)


def publish(store: SnapshotStore, clock: FakeClock, *readings: Reading) -> None:
    store.update(
        CollectorStatus(CollectorState.OK, clock.now()), Sample(clock.now(), clock.monotonic(), 0.0125, readings)
    )


def series(exposition: Exposition) -> dict[str, list[tuple[Mapping[str, str], float]]]:
    """Name of a series -> its labels and values, as Prometheus' own parser reads them."""
    found: dict[str, list[tuple[Mapping[str, str], float]]] = {}
    for family in text_string_to_metric_families(exposition.render().decode()):
        for one in family.samples:
            found.setdefault(one.name, []).append((one.labels, one.value))
    return found


def test_before_the_first_sample_there_is_a_state_and_no_figure(exposition: Exposition) -> None:
    found = series(exposition)

    states = {labels["state"]: value for labels, value in found["devicemanager_collector_state"]}
    assert states == {state.value: float(state is CollectorState.STARTING) for state in CollectorState}
    assert not [name for name in found if name.startswith("accelerator_")]
    assert "devicemanager_sample_age_seconds" not in found
    assert "devicemanager_sample_duration_seconds" not in found
    assert found["devicemanager_sample_period_seconds"] == [({"manufacturer": "nvidia"}, 1.5)]


def test_what_is_running_and_until_when(exposition: Exposition) -> None:
    found = series(exposition)

    assert found["devicemanager_build_info"] == [({"version": __version__}, 1.0)]
    assert found["devicemanager_certificate_not_after_timestamp_seconds"] == [({}, ENDS.timestamp())]


def test_figures_are_in_base_units(exposition: Exposition, store: SnapshotStore, clock: FakeClock) -> None:
    publish(store, clock, READING)
    found = series(exposition)

    assert {name: found[name] for name in OF_A_CARD} == {
        name: [(LABELS, value)] for name, value in OF_A_CARD.items()
    }


def test_an_absent_figure_has_no_series_and_costs_no_other(
    exposition: Exposition, store: SnapshotStore, clock: FakeClock
) -> None:
    no_power = devices.reading(CARD, power_usage=Reason.UNSUPPORTED)
    unreadable = Reading.unreadable(Card(1, "GPU-1"), Reason.LOST, "the card is lost")
    publish(store, clock, no_power, unreadable)
    found = series(exposition)

    assert "accelerator_power_watts" not in found
    for name in OF_A_CARD.keys() - {"accelerator_power_watts", "accelerator_unhealthy"}:
        assert [labels["id"] for labels, _ in found[name]] == ["GPU-0"]
    assert [(labels["id"], value) for labels, value in found["accelerator_unhealthy"]] == [
        ("GPU-0", 0.0),
        ("GPU-1", 1.0),
    ]


def test_names_are_counted_and_each_has_a_series(
    exposition: Exposition, store: SnapshotStore, clock: FakeClock
) -> None:
    limited = devices.reading(CARD, clock_reduction_reasons=("sw_power_cap", "hw_slowdown"))
    unknown = devices.reading(Card(1, "GPU-1"), clock_reduction_reasons=Reason.UNSUPPORTED)
    free = devices.reading(Card(2, "GPU-2"))
    publish(store, clock, limited, unknown, free)
    found = series(exposition)

    counts = [(labels["id"], value) for labels, value in found["accelerator_clock_reduction_reasons"]]
    assert counts == [("GPU-0", 2.0), ("GPU-2", 0.0)]
    assert found["accelerator_clock_reduction_reason"] == [
        ({**LABELS, "reason": reason}, 1.0) for reason in ("sw_power_cap", "hw_slowdown")
    ]


@pytest.mark.parametrize(
    "reading",
    [
        devices.reading(CARD, memory_total=Reason.UNSUPPORTED),
        devices.reading(CARD, memory_used=Reason.UNSUPPORTED),
        devices.reading(CARD, memory_total=0),
    ],
    ids=["no-total", "no-used", "zero-total"],
)
def test_a_ratio_needs_both_its_sides(
    exposition: Exposition, store: SnapshotStore, clock: FakeClock, reading: Reading
) -> None:
    publish(store, clock, reading)

    assert "accelerator_memory_used_ratio" not in series(exposition)


def test_what_a_card_is_has_a_series_of_its_own(
    exposition: Exposition, store: SnapshotStore, clock: FakeClock
) -> None:
    card = replace(CARD, serial="1653")
    publish(store, clock, replace(READING, card=card), replace(READING, card=Card(3, "index:3")))
    store.update(replace(store.snapshot.collector, versions=Versions("590.48.01", "13.590.48.01")))

    versions = {"driver_version": "590.48.01", "library_version": "13.590.48.01"}
    known = {"index": "0", "name": "NVIDIA H100", "pci_bus_id": "0000:01:00.0", "serial": "1653", **versions}
    unknown = {"index": "3", "name": "", "pci_bus_id": "", "serial": "", **versions}
    assert series(exposition)["accelerator_info"] == [
        ({**LABELS, **known}, 1.0),
        ({"manufacturer": "nvidia", "id": "index:3", **unknown}, 1.0),
    ]


def test_names_with_quotes_and_newlines_survive(
    exposition: Exposition, store: SnapshotStore, clock: FakeClock
) -> None:
    publish(store, clock, replace(READING, card=Card(0, "GPU-0", 'a "card"\n\\x')))

    ((labels, _),) = series(exposition)["accelerator_info"]
    assert labels["name"] == 'a "card"\n\\x'


def test_a_device_that_moves_keeps_its_series(
    exposition: Exposition, store: SnapshotStore, clock: FakeClock
) -> None:
    """After a card is lost, the others have other indexes."""
    publish(store, clock, READING)
    before = series(exposition)
    publish(store, clock, replace(READING, card=replace(CARD, index=7)))
    after = series(exposition)

    assert {name: after[name] for name in OF_A_CARD} == {name: before[name] for name in OF_A_CARD}
    assert after["accelerator_info"][0][0]["index"] == "7"


def test_an_unhealthy_device_says_why_in_a_word(
    exposition: Exposition, store: SnapshotStore, clock: FakeClock
) -> None:
    failing = devices.reading(Card(1, "GPU-1"), "3 uncorrected ECC errors in device memory")
    lost = Reading.unreadable(Card(2, "GPU-2"), Reason.LOST, "lost: code 15")
    publish(store, clock, READING, failing, lost)

    causes = [(labels["id"], labels["reason"]) for labels, _ in series(exposition)["accelerator_unhealthy_reason"]]
    assert causes == [("GPU-1", "health_check"), ("GPU-2", "lost")]


def test_partitions_have_metrics_of_their_own(
    exposition: Exposition, store: SnapshotStore, clock: FakeClock
) -> None:
    """Under the same names as cards, a sum over a node would count their memory twice."""
    one = devices.partition(Card(0, "MIG-1", parent="GPU-0", profile="1g.10gb"), memory_used=5 << 30)
    hung = Reading.unreadable(Card(0, "MIG-2", parent="GPU-0"), Reason.TIMEOUT, "no answer")
    publish(store, clock, replace(READING, partitions=(one, hung)), devices.reading(Card(1, "GPU-1")))
    found = series(exposition)

    first = {"manufacturer": "nvidia", "id": "MIG-1", "parent": "GPU-0"}
    second = {**first, "id": "MIG-2"}
    assert found["accelerator_partition_info"] == [
        ({**first, "profile": "1g.10gb"}, 1.0),
        ({**second, "profile": ""}, 1.0),
    ]
    assert found["accelerator_partition_memory_used_bytes"] == [(first, 5 << 30)]
    assert found["accelerator_partition_memory_used_ratio"] == [(first, 5 / 80)]
    assert found["accelerator_partition_unhealthy"] == [(first, 0.0), (second, 1.0)]
    assert found["accelerator_partition_unhealthy_reason"] == [({**second, "reason": "timeout"}, 1.0)]
    assert "accelerator_partition_temperature_celsius" not in found  # the board's
    assert [labels["id"] for labels, _ in found["accelerator_memory_used_bytes"]] == ["GPU-0", "GPU-1"]


def test_no_partition_has_no_series(exposition: Exposition, store: SnapshotStore, clock: FakeClock) -> None:
    publish(store, clock, READING)

    assert b"accelerator_partition" not in exposition.render()


def test_the_state_is_counted(exposition: Exposition, store: SnapshotStore, clock: FakeClock) -> None:
    publish(store, clock, READING)
    restarts = {RestartReason.UNRESPONSIVE: 2, RestartReason.MEMORY: 1}
    store.update(CollectorStatus(CollectorState.UNRESPONSIVE, clock.now(), "no answer", 4, restarts))
    found = series(exposition)

    assert found["devicemanager_collector_consecutive_failures"][0][1] == 4
    counted = {labels["reason"]: value for labels, value in found["devicemanager_collector_restarts_total"]}
    assert {reason: value for reason, value in counted.items() if value} == {"unresponsive": 2, "memory": 1}
    assert counted.keys() == {reason.value for reason in RestartReason}  # from 0 on, so that rate() sees the first
    assert found["accelerator_memory_used_bytes"]  # the last sample is kept, and its age says how old it is


def test_times_of_the_sample(exposition: Exposition, store: SnapshotStore, clock: FakeClock) -> None:
    publish(store, clock, READING)
    clock.monotonic_s += 2.25
    found = series(exposition)

    assert found["devicemanager_sample_duration_seconds"][0][1] == 0.0125
    assert found["devicemanager_sample_timestamp_seconds"][0][1] == clock.now().timestamp()
    assert found["devicemanager_sample_age_seconds"] == [({"manufacturer": "nvidia"}, 2.25)]


def test_the_age_is_current_while_the_rest_is_rendered_once_per_snapshot(
    exposition: Exposition, store: SnapshotStore, clock: FakeClock
) -> None:
    publish(store, clock, READING)
    ages, kept = [], set()
    for _ in range(3):
        ages.append(series(exposition)["devicemanager_sample_age_seconds"][0][1])
        kept.add(id(exposition._rendered))
        clock.monotonic_s += 1
    assert (ages, len(kept)) == ([0.0, 1.0, 2.0], 1)

    store.update(CollectorStatus(CollectorState.CRASHED, clock.now()))
    states = {labels["state"]: value for labels, value in series(exposition)["devicemanager_collector_state"]}
    assert states["crashed"] == 1


def test_every_metric_is_documented_and_no_other(
    exposition: Exposition, store: SnapshotStore, clock: FakeClock
) -> None:
    partition = Card(0, "MIG-1", parent="GPU-0")
    slow = devices.reading(CARD, "a check says so", clock_reduction_reasons=("sw_power_cap",))
    publish(store, clock, replace(slow, partitions=(replace(devices.partition(partition), unhealthy_reason="so"),)))
    docs = Path(__file__).parents[3] / "docs"
    page = (docs / "metrics.md").read_text(encoding="utf-8")
    section = page.partition("## The device manager")[2].partition("\n## ")[0]

    figures = set(re.findall(r"`(accelerator_\w+)`", (docs / "figures.md").read_text(encoding="utf-8")))
    of_partitions = {spec.metric.replace("accelerator", "accelerator_partition") for spec in PARTITION_FIGURES}
    documented = set(re.findall(r"^\| `(\w+)`", section, re.MULTILINE)) | figures | of_partitions
    assert documented == set(series(exposition))


def test_the_text_ends_in_a_newline_and_repeats_no_family(
    exposition: Exposition, store: SnapshotStore, clock: FakeClock
) -> None:
    publish(store, clock, READING, replace(READING, card=Card(1, "GPU-1")))
    text = exposition.render().decode()
    types = [line for line in text.splitlines() if line.startswith("# TYPE")]

    assert text.endswith("\n")
    assert len(types) == len(set(types))
