"""Metrics of what the worker depends on: its sources, and certificates that end."""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from typing_extensions import override

from devicemanager.worker.source_health import SourceHealth

_PREFIX: Final = "devicemanager_worker"


class SourceMetrics(Collector):
    """How the peers of each kind of source answer. A kind that was never asked has no series."""

    def __init__(self, health: SourceHealth) -> None:
        self._health = health

    @override
    def collect(self) -> Iterator[Metric]:
        up = GaugeMetricFamily(
            f"{_PREFIX}_source_up",
            "Whether the newest answer of any peer of the source was good.",
            labels=("source",),
        )
        for source, good in sorted(self._health.up.items()):
            up.add_metric((source,), int(good))
        yield up
        failures = CounterMetricFamily(
            f"{_PREFIX}_source_failures",
            "Reads of peers that failed, or brought no figures, by the state that the sample then names.",
            labels=("source", "state"),
        )
        for key, count in sorted(self._health.failures.items()):
            failures.add_metric(key, count)
        yield failures
        failing = GaugeMetricFamily(
            f"{_PREFIX}_source_peers_failing",
            "Peers whose last answer was no good one, by its state.",
            labels=("source", "state"),
        )
        for key, count in sorted(self._health.failing().items()):
            failing.add_metric(key, count)
        yield failing
        in_backoff = GaugeMetricFamily(
            f"{_PREFIX}_source_peers_in_backoff",
            "Peers that are not asked for a while, because what they answered could not be used, or came too late.",
            labels=("source",),
        )
        for source, count in sorted(self._health.in_backoff().items()):
            in_backoff.add_metric((source,), count)
        yield in_backoff


class CertificateMetrics(Collector):
    """When certificates end that are used beside the serving one.

    Args:
        client: End of the certificate that device managers are shown; None without one.
        cas: Use -> end of the first authority trusted or shown for it; None where it is not known.
    """

    def __init__(
        self, client: Callable[[], datetime | None], cas: Callable[[], Mapping[str, datetime | None]]
    ) -> None:
        self._client = client
        self._cas = cas

    @override
    def collect(self) -> Iterator[Metric]:
        client = GaugeMetricFamily(
            f"{_PREFIX}_client_certificate_not_after_timestamp_seconds",
            "When the certificate ends that device managers are shown, in Unix time.",
        )
        ends = self._client()
        if ends is not None:
            client.add_metric((), ends.timestamp())
        yield client
        authorities = GaugeMetricFamily(
            f"{_PREFIX}_ca_not_after_timestamp_seconds",
            "When the first of the authorities ends that are trusted for a use, in Unix time.",
            labels=("use",),
        )
        for use, ends in sorted(self._cas().items()):
            if ends is not None:
                authorities.add_metric((use,), ends.timestamp())
        yield authorities
