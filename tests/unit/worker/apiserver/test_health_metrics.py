"""Metrics of sources and certificates: closed labels, and no series for what is not known."""

from datetime import UTC, datetime

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.registry import Collector

from devicemanager.model.usage import SourceFailure, SourceState
from devicemanager.worker.apiserver.health_metrics import CertificateMetrics, SourceMetrics
from devicemanager.worker.source_health import SourceHealth
from tests.timing import FakeClock

END = datetime(2027, 1, 1, tzinfo=UTC)


def samples(collector: Collector) -> list[str]:
    registry = CollectorRegistry()
    registry.register(collector)
    return [line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")]


def test_sources_that_answer_and_those_that_do_not() -> None:
    health = SourceHealth(FakeClock())
    assert samples(SourceMetrics(health)) == []
    health.note("kubelet", "a", None)
    health.note("device-manager/nvidia", "a", SourceFailure(SourceState.STALE, "old"))
    health.note("device-manager/amd", "a", SourceFailure(SourceState.STALE, "old"))
    health.note("metrics.k8s.io", None, SourceFailure(SourceState.FORBIDDEN, "no"))
    health.note("metrics.k8s.io", None, None)

    assert samples(SourceMetrics(health)) == [
        'devicemanager_worker_source_up{source="device-manager"} 0.0',
        'devicemanager_worker_source_up{source="kubelet"} 1.0',
        'devicemanager_worker_source_up{source="metrics.k8s.io"} 1.0',
        'devicemanager_worker_source_failures_total{source="device-manager",state="stale"} 2.0',
        'devicemanager_worker_source_failures_total{source="metrics.k8s.io",state="forbidden"} 1.0',
        'devicemanager_worker_source_peers_failing{source="device-manager",state="stale"} 2.0',
        'devicemanager_worker_source_peers_failing{source="metrics.k8s.io",state="forbidden"} 0.0',
    ]


def test_when_certificates_end_as_far_as_that_is_known() -> None:
    metrics = CertificateMetrics(lambda: END, lambda: {"front-proxy": END, "kubelets": None})
    assert samples(metrics) == [
        "devicemanager_worker_client_certificate_not_after_timestamp_seconds 1.7987616e+09",
        'devicemanager_worker_ca_not_after_timestamp_seconds{use="front-proxy"} 1.7987616e+09',
    ]
    assert samples(CertificateMetrics(lambda: None, dict)) == []
