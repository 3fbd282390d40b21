"""PodMetrics documents, case M01 among them."""

import json
from datetime import UTC, datetime

import pytest

from devicemanager.errors import DocumentError, ExcessError
from devicemanager.model.accelerator import Figure, Reason
from devicemanager.model.usage import ContainerMetrics, PodMetrics, PodUsage, SourceFailure
from devicemanager.rules.pod_metrics import pod_usage
from devicemanager.wire import pod_metrics

TIME = "2026-01-01T10:01:00Z"
MOMENT = datetime(2026, 1, 1, 10, 1, tzinfo=UTC)


def body(*usages: object, **keys: object) -> bytes:
    containers = [{"name": f"c{index}", "usage": usage} for index, usage in enumerate(usages)]
    return json.dumps({"kind": "PodMetrics", "timestamp": TIME, "containers": containers, **keys}).encode()


def test_reads_time_and_containers() -> None:
    parsed = pod_metrics.parse(body({"cpu": "250m", "memory": "4548Ki"}, {"cpu": "134994244n", "memory": "20Mi"}))
    assert parsed == PodMetrics(
        MOMENT, (ContainerMetrics("c0", 250_000_000, 4_657_152), ContainerMetrics("c1", 134_994_244, 20_971_520))
    )


@pytest.mark.parametrize(
    ("written", "figure"),
    [
        ("0", 0),
        (20, 20_000_000_000),
        ("-1", Reason.INVALID_DATA),
        ("", Reason.INVALID_DATA),
        ("NaN", Reason.INVALID_DATA),
        (None, Reason.NOT_REPORTED),
        (True, Reason.INVALID_DATA),
        ([], Reason.INVALID_DATA),
        (0.5, 500_000_000),
    ],
)
def test_cpu_is_a_quantity_or_absent(written: object, figure: Figure) -> None:
    (container,) = pod_metrics.parse(body({"cpu": written, "memory": "1"})).containers
    assert (container.cpu_nanocores, container.memory_bytes) == (figure, 1)


def test_an_empty_answer_is_a_failure_and_a_partial_one_makes_its_sums_absent() -> None:
    metadata = {"name": "web-0", "namespace": "team-a", "creationTimestamp": "2026-01-01T10:00:30Z"}
    empty = pod_metrics.parse(
        json.dumps(
            {
                "kind": "PodMetrics",
                "apiVersion": "metrics.k8s.io/v1beta1",
                "metadata": metadata,
                "timestamp": None,
                "window": "30s",
                "containers": [],
            }
        ).encode()
    )
    assert empty == PodMetrics(None, ())
    assert isinstance(pod_usage(empty, pod_created_at=None), SourceFailure)
    partial = pod_metrics.parse(
        json.dumps(
            {
                "kind": "PodMetrics",
                "apiVersion": "metrics.k8s.io/v1beta1",
                "metadata": metadata,
                "timestamp": TIME,
                "window": "1m0.5s",
                "containers": [
                    {"name": "app", "usage": {"cpu": "0", "memory": "4548Ki"}},
                    {"name": "side", "usage": {}},
                ],
            }
        ).encode()
    )
    usage = pod_usage(partial, pod_created_at=None)
    assert isinstance(usage, PodUsage)
    assert (usage.cpu_nanocores, usage.memory_working_set_bytes) == (Reason.NOT_REPORTED, Reason.NOT_REPORTED)


def test_an_error_document_is_no_measurement() -> None:
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
    with pytest.raises(DocumentError, match="PodMetrics"):
        pod_metrics.parse(json.dumps(status).encode())


@pytest.mark.parametrize("containers", [None, 5, {}, "x"])
def test_containers_that_are_no_array_are_none(containers: object) -> None:
    assert pod_metrics.parse(body(containers=containers)).containers == ()


def test_a_container_that_is_no_object_is_an_unknown() -> None:
    parsed = pod_metrics.parse(body(containers=[5]))
    assert parsed.containers == (ContainerMetrics("", Reason.NOT_REPORTED, Reason.NOT_REPORTED),)


@pytest.mark.parametrize("garbage", [b"", b"<html>", b"[]", b"null", b"\xff"])
def test_what_is_no_document_is_refused(garbage: bytes) -> None:
    with pytest.raises(DocumentError):
        pod_metrics.parse(garbage)


def test_containers_without_end_are_refused_before_one_is_read() -> None:
    usage = {"cpu": "1n", "memory": "1Ki"}
    assert len(pod_metrics.parse(body(*[usage] * 256)).containers) == 256
    with pytest.raises(ExcessError, match="more than 256 containers"):
        pod_metrics.parse(body(*[usage] * 257))
