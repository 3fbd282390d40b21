"""The health of peers: what is logged of it, and what is counted."""

import pytest
from structlog.testing import capture_logs

from devicemanager.model.usage import SourceFailure, SourceState
from devicemanager.worker import source_health
from devicemanager.worker.source_health import SourceHealth
from tests.timing import FakeClock

LATE = SourceFailure(SourceState.TIMEOUT, "late")
REFUSED = SourceFailure(SourceState.FORBIDDEN, "no")


def test_what_is_remembered_of_faults_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_health, "REMEMBERED_FAULTS", 2)
    health = SourceHealth(FakeClock())
    with capture_logs() as logs:
        for node in ("a", "b", "c", "c", "b", "a"):
            health.note("kubelet", node, LATE)

    assert [entry["node"] for entry in logs] == ["a", "b", "c", "a"]
    assert sum(health.failing().values()) == 2


def test_failures_are_counted_and_peers_that_fail_are_those_that_fail_now() -> None:
    health = SourceHealth(FakeClock())
    for node, fault in (("a", LATE), ("a", LATE), ("b", LATE), ("b", REFUSED), ("c", None)):
        health.note("kubelet", node, fault)

    assert health.failures == {("kubelet", "timeout"): 3, ("kubelet", "forbidden"): 1}
    assert health.failing() == {("kubelet", "timeout"): 1, ("kubelet", "forbidden"): 1}
    assert health.up == {"kubelet": True}
    health.note("kubelet", "b", None)
    assert health.failing() == {("kubelet", "timeout"): 1, ("kubelet", "forbidden"): 0}


def test_a_source_without_a_node_is_logged_without_one() -> None:
    health = SourceHealth(FakeClock())
    with capture_logs() as logs:
        health.note("metrics.k8s.io", None, REFUSED)
        health.note("metrics.k8s.io", None, None)

    assert [(line["event"], "node" in line) for line in logs] == [
        ("source_failed", False),
        ("source_recovered", False),
    ]


def test_no_annotation_and_no_node_makes_a_kind() -> None:
    health = SourceHealth(FakeClock())
    for number in range(50):
        health.note(f"device-manager/{number}", f"node-{number}", LATE)

    assert set(health.up) == {"device-manager"}
    assert health.failing() == {("device-manager", "timeout"): 50}


def test_lines_about_ever_more_manufacturers_are_limited_and_hide_no_kubelet() -> None:
    """A pod's annotation may name any manufacturer, and another one tomorrow."""
    clock = FakeClock()
    health = SourceHealth(clock)
    with capture_logs() as logs:
        for number in range(1000):
            health.note(f"device-manager/{number}", "node-a", LATE)
        health.note("kubelet", "node-a", LATE)
        clock.advance(10.0)
        health.note("device-manager/0", "node-a", None)
        health.note("device-manager/1", "node-a", None)

    assert len(logs) == 258
    assert [entry["source"] for entry in logs[255:]] == ["device-manager/255", "kubelet", "device-manager/0"]
    assert logs[-1] == {
        "event": "source_recovered",
        "log_level": "info",
        "source": "device-manager/0",
        "node": "node-a",
        "left_out": 744,
    }
    assert health.failures["device-manager", "timeout"] == 1000


def test_a_backoff_is_logged_with_what_the_peer_said_when_it_begins_and_when_it_ends() -> None:
    clock = FakeClock()
    health = SourceHealth(clock)
    said = SourceFailure(SourceState.INVALID, "it cannot be read", "no JSON at byte 7")
    with capture_logs() as logs:
        for failures in (1, 2, 3):
            health.backed_off("kubelet", "a", said, failures=failures, backoff_s=2.0)
            clock.advance(2.0)
        health.note("kubelet", "a", None)
        health.note("kubelet", "a", None)
        health.backed_off("kubelet", "a", said, failures=1, backoff_s=2.0)

    began = {
        "event": "source_backed_off",
        "log_level": "warning",
        "source": "kubelet",
        "node": "a",
        "state": "invalid",
        "error": said.said,
    }
    ended = {"event": "source_backoff_ended", "log_level": "info", "source": "kubelet", "node": "a"}
    assert logs == [began, ended, began]
    assert said.said == "it cannot be read: no JSON at byte 7"


def test_lines_about_backoff_push_out_none_that_names_a_reason() -> None:
    health = SourceHealth(FakeClock())
    with capture_logs() as logs:
        for number in range(1000):
            health.backed_off("kubelet", f"node-{number}", LATE, failures=1, backoff_s=2.0)
        health.note("kubelet", "another", REFUSED)

    assert [line["node"] for line in logs if line["event"] == "source_failed"] == ["another"]
    assert "left_out" not in logs[-1]
    assert len(logs) == 257


def test_peers_in_backoff_are_counted_until_they_may_be_asked_again() -> None:
    clock = FakeClock()
    health = SourceHealth(clock)
    health.backed_off("kubelet", "a", LATE, failures=2, backoff_s=2.0)
    health.backed_off("device-manager/nvidia", "a", LATE, failures=1, backoff_s=1.0)

    assert health.in_backoff() == {"kubelet": 1, "device-manager": 1}
    clock.advance(1.5)
    assert health.in_backoff() == {"kubelet": 1, "device-manager": 0}
    health.note("kubelet", "a", REFUSED)  # it was asked, as another answers for it now
    assert health.in_backoff() == {"kubelet": 0, "device-manager": 0}


def test_what_is_remembered_of_peers_in_backoff_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_health, "REMEMBERED_FAULTS", 2)
    health = SourceHealth(FakeClock())
    for node in ("a", "b", "c"):
        health.backed_off("kubelet", node, LATE, failures=1, backoff_s=60)

    assert health.in_backoff() == {"kubelet": 2}
