"""The worker's own metrics: closed labels, whatever comes in."""

import re

import pytest

from devicemanager.model.usage import SourceReport, SourceState
from devicemanager.worker.apiserver.attributes import parse_attributes
from devicemanager.worker.apiserver.metrics import WorkerMetrics
from devicemanager.worker.single_flight import Statistics
from devicemanager.worker.workloads.instance.workload import INSTANCE
from tests.unit.worker.apiserver.api_server import NOW, usage

RESOURCES = [INSTANCE.resource]


def test_shared_reads_and_reads_under_way() -> None:
    statistics = {"kubelet": Statistics(started=3, joined=2, reused=1)}
    metrics = WorkerMetrics(lambda: NOW, lambda: 7, RESOURCES, lambda: statistics)
    text = metrics.exposition().decode()
    for outcome, count in (("started", 3), ("joined", 2), ("reused", 1), ("failed", 0)):
        expected = f'devicemanager_worker_shared_reads_total{{outcome="{outcome}",source="kubelet"}} {count}.0'
        assert expected in text
    assert "devicemanager_worker_reads_under_way 7.0" in text
    assert 'devicemanager_worker_build_info{version="' in text


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/apis/g.example/v1/namespaces/ns/instances/web/metrics", "instances/metrics"),
        ("/apis/g.example/v1/instancemetrics", "instancemetrics"),
        ("/apis/g.example/v1/anything", "other"),
        ("/apis", "apis"),
        ("/openapi/v3", "openapi"),
        ("/readyz/ping", "readyz"),
        ("/", "other"),
        ("/whatever", "other"),
    ],
)
def test_the_resource_label(path: str, expected: str) -> None:
    metrics = WorkerMetrics(lambda: NOW, lambda: 0, RESOURCES)
    metrics.observe_request(parse_attributes("GET", path, {}), 200, 0.001)
    assert f'resource="{expected}"' in metrics.exposition().decode()


def test_no_caller_and_no_annotation_makes_series() -> None:
    metrics = WorkerMetrics(lambda: NOW, lambda: 0, RESOURCES)
    for number in range(50):
        attributes = parse_attributes(f"METHOD{number}", f"/path{number}", {})
        metrics.observe_request(attributes, 404, 0.001)
        metrics.observe_usages([usage(sources=[SourceReport(f"device-manager/{number}", SourceState.OK)])])
    text = metrics.exposition().decode()
    for series in ("request_duration_seconds_count", "source_outcomes_total"):
        assert len(re.findall(rf"^devicemanager_worker_{series}", text, re.MULTILINE)) == 1
    assert not metrics._known
