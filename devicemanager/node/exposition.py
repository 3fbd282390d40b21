"""The snapshot as Prometheus text.

Base units, no figure for what was not measured: an absent figure has no series. The text of a snapshot is rendered
once and kept until the snapshot changes; what changes by itself, the age of the sample, is rendered for each scrape
and appended. ``docs/metrics.md`` explains every metric.
"""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from typing_extensions import override

from devicemanager import __version__
from devicemanager.clock import Clock
from devicemanager.model.accelerator import CollectorState, Figure, Reading, Reason, Snapshot
from devicemanager.node.snapshot_store import SnapshotStore

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_CARD_LABELS: Final = ("manufacturer", "id", "index", "name", "pci_bus_id")


class Exposition:
    """Renders ``/metrics`` of the node program."""

    def __init__(self, store: SnapshotStore, not_after: Callable[[], datetime], clock: Clock) -> None:
        """Prepare.

        Args:
            store: Whose snapshot is rendered.
            not_after: End of the validity of the certificate now served.
            clock: Ages the sample.
        """
        self._store = store
        self._not_after = not_after
        self._clock = clock
        self._rendered: tuple[int, bytes] | None = None

    def render(self) -> bytes:
        """The text at this moment, :data:`CONTENT_TYPE`."""
        return self._of_snapshot() + _text(self._live())

    def _of_snapshot(self) -> bytes:
        # The version is taken first: a snapshot swapped in between is then rendered again, never missed.
        version = self._store.version
        if self._rendered is None or self._rendered[0] != version:
            self._rendered = (version, _text(_families(self._store.snapshot)))
        return self._rendered[1]

    def _live(self) -> Iterator[Metric]:
        age = GaugeMetricFamily(
            "devicemanager_sample_age_seconds",
            "Time since the reading of the sample began. No series before the first sample.",
            labels=["manufacturer"],
        )
        snapshot = self._store.snapshot
        if snapshot.sample is not None:
            seconds = self._clock.monotonic() - snapshot.sample.started_monotonic_s
            age.add_metric([snapshot.manufacturer], round(max(0.0, seconds), 3))
        yield age
        yield GaugeMetricFamily(
            "devicemanager_certificate_not_after_timestamp_seconds",
            "End of the validity of the certificate being served, in Unix time.",
            value=self._not_after().timestamp(),
        )


class _Families(Collector):
    """Hands ready families to the registry, which renders them."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    @override
    def collect(self) -> Iterable[Metric]:
        return self._families


def _text(families: Iterable[Metric]) -> bytes:
    # A registry of our own and without auto_describe: with it, registering would already consume the families.
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(families))
    return generate_latest(registry)


def _families(snapshot: Snapshot) -> Iterator[Metric]:
    yield InfoMetricFamily("devicemanager_build", "What is running. Always 1.", value={"version": __version__})
    yield from _collector(snapshot)
    readings = () if snapshot.sample is None else snapshot.sample.readings
    for name, help_text, value in _CARD_GAUGES:
        yield _per_card(name, help_text, snapshot.manufacturer, readings, value)


def _collector(snapshot: Snapshot) -> Iterator[Metric]:
    labels, values = ["manufacturer"], [snapshot.manufacturer]
    status = snapshot.collector
    states = GaugeMetricFamily(
        "devicemanager_collector_state",
        "What the collector can say now: 1 for its state, 0 for every other.",
        labels=[*labels, "state"],
    )
    for state in CollectorState:
        states.add_metric([*values, state.value], int(state is status.state))
    yield states
    failures = GaugeMetricFamily(
        "devicemanager_collector_consecutive_failures",
        "Samples that failed since the last good one.",
        labels=labels,
    )
    failures.add_metric(values, status.consecutive_failures)
    yield failures
    restarts = CounterMetricFamily(
        "devicemanager_collector_restarts", "Collector processes started beyond the first.", labels=labels
    )
    restarts.add_metric(values, status.restarts)
    yield restarts
    period = GaugeMetricFamily(
        "devicemanager_sample_period_seconds", "Configured time between samples.", labels=labels
    )
    period.add_metric(values, snapshot.period_s)
    yield period
    duration = GaugeMetricFamily(
        "devicemanager_sample_duration_seconds", "How long the reading of the sample took.", labels=labels
    )
    taken = GaugeMetricFamily(
        "devicemanager_sample_timestamp_seconds",
        "When the reading of the sample began, in Unix time.",
        labels=labels,
    )
    if snapshot.sample is not None:
        duration.add_metric(values, round(snapshot.sample.duration_s, 6))
        taken.add_metric(values, snapshot.sample.taken_at.timestamp())
    yield duration
    yield taken


def _per_card(
    name: str,
    help_text: str,
    manufacturer: str,
    readings: Iterable[Reading],
    value: Callable[[Reading], float | None],
) -> Metric:
    family = GaugeMetricFamily(name, help_text, labels=_CARD_LABELS)
    for reading in readings:
        measured = value(reading)
        if measured is not None:
            card = reading.card
            family.add_metric(
                [manufacturer, card.id or "", str(card.index), card.name or "", card.pci_bus_id or ""], measured
            )
    return family


def _measured(figure: Figure, divisor: int = 1) -> float | None:
    return None if isinstance(figure, Reason) else figure / divisor if divisor != 1 else figure


def _memory_used_ratio(reading: Reading) -> float | None:
    used, total = reading.memory_used_bytes, reading.memory_total_bytes
    if isinstance(used, Reason) or isinstance(total, Reason) or total == 0:
        return None
    return used / total


_CARD_GAUGES: Final[tuple[tuple[str, str, Callable[[Reading], float | None]], ...]] = (
    (
        "accelerator_memory_total_bytes",
        "Memory capacity as the manufacturer's library reports it.",
        lambda reading: _measured(reading.memory_total_bytes),
    ),
    (
        "accelerator_memory_used_bytes",
        "Memory in use.",
        lambda reading: _measured(reading.memory_used_bytes),
    ),
    (
        "accelerator_memory_used_ratio",
        "Memory in use as a share of the capacity, 0 to 1.",
        _memory_used_ratio,
    ),
    (
        "accelerator_cores_utilization_ratio",
        "Compute utilization, 0 to 1.",
        lambda reading: _measured(reading.cores_percent, 100),
    ),
    (
        "accelerator_temperature_celsius",
        "Temperature.",
        lambda reading: _measured(reading.temperature_celsius),
    ),
    (
        "accelerator_power_watts",
        "Power drawn.",
        lambda reading: _measured(reading.power_milliwatts, 1000),
    ),
    (
        "accelerator_unhealthy",
        "1 when a health check says so, else 0.",
        lambda reading: int(reading.unhealthy_reason is not None),
    ),
)
