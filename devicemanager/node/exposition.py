"""The snapshot as Prometheus text.

Base units, no figure for what was not measured: an absent figure has no series. The text of a snapshot is rendered
once and kept until the snapshot changes; the age of the sample is rendered for each scrape
and appended. ``docs/metrics.md`` explains every metric.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from typing_extensions import override

from devicemanager import __version__
from devicemanager.clock import Clock
from devicemanager.model.accelerator import CollectorState, Reading, Reason, RestartReason, Snapshot
from devicemanager.model.figures import FIGURES, Figures, FigureSpec
from devicemanager.node.snapshot_store import SnapshotStore
from devicemanager.rules import health
from devicemanager.wire.snapshot import PARTITION_FIGURES

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class Exposition:
    """Renders ``/metrics`` of the node program."""

    def __init__(
        self,
        store: SnapshotStore,
        not_after: Callable[[], datetime],
        clock: Clock,
        process: Collector | None = None,
    ) -> None:
        """Prepare.

        Args:
            store: Whose snapshot is rendered.
            not_after: End of the validity of the certificate now served.
            clock: Ages the sample.
            process: Metrics of this process.
        """
        self._store = store
        self._not_after = not_after
        self._clock = clock
        self._process = process
        self._rendered: tuple[int, bytes] | None = None

    def render(self) -> bytes:
        """The text at this moment, :data:`CONTENT_TYPE`."""
        return self._of_snapshot() + _text(self._live())

    def _of_snapshot(self) -> bytes:
        # The version is read first, so a snapshot that is replaced meanwhile is rendered again.
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
        if self._process is not None:
            yield from self._process.collect()


class _Families(Collector):
    """Adapts finished families to a registry, which renders them."""

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
    if snapshot.sample is not None:
        yield from _devices(snapshot, snapshot.sample.readings)


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
        "devicemanager_collector_restarts",
        "Collector processes started beyond the first, by why the one before ended.",
        labels=[*labels, "reason"],
    )
    for why in RestartReason:
        restarts.add_metric([*values, why.value], status.restarts.get(why, 0))
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


def _devices(snapshot: Snapshot, readings: Sequence[Reading]) -> Iterator[Metric]:
    """Of cards, and apart from them of their partitions: a sum over one metric counts nothing twice."""
    labels = {"manufacturer": snapshot.manufacturer}
    cards = [_Device({**labels, "id": reading.card.id or ""}, reading) for reading in readings]
    versions = snapshot.collector.versions
    shared = {"driver_version": versions.driver or "", "library_version": versions.library or ""}
    yield _info(
        "accelerator", "What a card is. Always 1.", ("index", "name", "pci_bus_id", "serial"), cards, shared
    )
    yield from _of_devices("accelerator", FIGURES, cards)
    partitions = [
        _Device({**card.labels, "id": one.card.id or "", "parent": card.labels["id"]}, one)
        for card in cards
        for one in card.reading.partitions
    ]
    if partitions:
        yield _info("accelerator_partition", "What a partition of a card is. Always 1.", ("profile",), partitions)
        yield from _of_devices("accelerator_partition", PARTITION_FIGURES, partitions)


class _Device(NamedTuple):
    """A device and the labels that identify it."""

    labels: dict[str, str]
    reading: Reading

    def of_card(self, attribute: str) -> str:
        """What the library says of it, as a label; empty where it does not."""
        value = getattr(self.reading.card, attribute)
        return "" if value is None else str(value)


def _info(
    prefix: str,
    what: str,
    attributes: Sequence[str],
    devices: Sequence[_Device],
    shared: Mapping[str, str] = MappingProxyType({}),
) -> Metric:
    family = InfoMetricFamily(prefix, what, labels=_label_names(devices))
    for device in devices:
        own = {name: device.of_card(name) for name in attributes}
        family.add_metric([*device.labels.values()], {**own, **shared})
    return family


def _of_devices(prefix: str, specs: Iterable[FigureSpec], devices: Sequence[_Device]) -> Iterator[Metric]:
    names = _label_names(devices)
    for spec in specs:
        yield from _of_figure(spec, prefix, devices, names)
    unhealthy = GaugeMetricFamily(f"{prefix}_unhealthy", "1 when a health check says so, else 0.", labels=names)
    causes = GaugeMetricFamily(
        f"{prefix}_unhealthy_reason",
        "1 for why a device is unhealthy.",
        labels=[*names, "reason"],
    )
    for device in devices:
        labels, cause = [*device.labels.values()], health.cause(device.reading)
        unhealthy.add_metric(labels, int(cause is not None))
        if cause is not None:
            causes.add_metric([*labels, cause], 1)
    yield unhealthy
    yield causes


def _label_names(devices: Sequence[_Device]) -> list[str]:
    return list(devices[0].labels) if devices else []


def _of_figure(
    spec: FigureSpec, prefix: str, devices: Iterable[_Device], label_names: Sequence[str]
) -> Iterator[Metric]:
    family = GaugeMetricFamily(_metric(prefix, spec.metric), f"{spec.description}.", labels=label_names)
    members = []
    for device in devices:
        labels, figures = [*device.labels.values()], device.reading.figures
        value = _ratio(figures, *spec.share_of) if spec.share_of else figures[spec.name]
        if isinstance(value, tuple):
            members += [[*labels, name] for name in value]
            family.add_metric(labels, len(value))
        elif not isinstance(value, Reason):
            divisor = spec.quantity.base_divisor
            family.add_metric(labels, value if spec.share_of or divisor == 1 else value / divisor)
    yield family
    if spec.member is not None:
        metric, label = spec.member
        each = GaugeMetricFamily(
            _metric(prefix, metric), f"{spec.description}. 1 for each.", labels=[*label_names, label]
        )
        for labels in members:
            each.add_metric(labels, 1)
        yield each


def _metric(prefix: str, metric: str) -> str:
    """The name of a card's metric, or of the same one for partitions."""
    return prefix + metric.removeprefix("accelerator")


def _ratio(figures: Figures, part: str, whole: str) -> float | Reason:
    """The quotient of two figures, not of rounded ones."""
    used, total = figures.number(part), figures.number(whole)
    if isinstance(used, Reason) or isinstance(total, Reason) or total == 0:
        return Reason.INVALID_DATA
    return used / total
