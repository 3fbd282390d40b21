import logging

from devicemanager.serving.log_rate import RateLimitedLog
from tests.timing import FakeClock
from tests.tls_peers import Logged


def test_alike_lines_are_counted_and_the_count_is_said() -> None:
    clock, logged = FakeClock(), Logged()
    rated = RateLimitedLog(logged.log, clock.monotonic, interval_s=10)
    for peer in ("a", "b", "c"):
        rated.write(logging.WARNING, "handshake_refused", cause="too slow", peer=peer)
    clock.monotonic_s += 10
    rated.write(logging.WARNING, "handshake_refused", cause="too slow", peer="d")

    assert logged.events("handshake_refused") == [
        {"log_level": "warning", "reason": "too slow", "peer": "a"},
        {"log_level": "warning", "reason": "too slow", "peer": "d", "left_out": 2},
    ]


def test_another_cause_has_its_own_line() -> None:
    logged = Logged()
    rated = RateLimitedLog(logged.log, FakeClock().monotonic)
    rated.write(logging.INFO, "handshake_refused", cause="one")
    rated.write(logging.INFO, "handshake_refused", cause="two")

    assert [line["reason"] for line in logged.events("handshake_refused")] == ["one", "two"]


def test_peers_that_invent_causes_share_one_line() -> None:
    logged = Logged()
    rated = RateLimitedLog(logged.log, FakeClock().monotonic)
    for number in range(1000):
        rated.write(logging.INFO, "handshake_refused", cause=f"invented {number}")

    assert 60 < len(logged.events("handshake_refused")) < 70
