"""Who gets a place, and who gives way."""

from dataclasses import dataclass

import pytest

from devicemanager.serving.admission import (
    IN_ALL,
    PER_PEER,
    VERIFIED,
    Admission,
    InFlightRequests,
    admit,
    admit_verified,
    eviction_candidate,
)
from devicemanager.serving.limits import Limits, VerifiedLimits

LIMITS = Limits(
    connections=4, connections_per_peer=2, reserved_for_probes=1, verified=VerifiedLimits(2, 1024, 16, 1024)
)


@dataclass(frozen=True)
class One:
    peer: str
    since: float = 0.0
    verified: bool = False
    evictable: bool = True


def test_below_the_limits_nothing_is_evicted() -> None:
    assert admit([One("a")], "b", LIMITS) == Admission(admitted=True)


def test_an_address_at_its_limit_evicts_its_own_connection() -> None:
    held = [One("a", 2.0), One("a", 1.0), One("b", 0.0)]

    assert admit(held, "a", LIMITS) == Admission(admitted=True, evicted=held[1], limit=PER_PEER)


def test_the_address_with_the_most_connections_is_evicted_first() -> None:
    """A connection from another address is safe, however fast one address reconnects."""
    held = [One("probe", 0.0), One("a", 1.0), One("a", 2.0), One("b", 0.5)]

    assert admit(held, "c", LIMITS) == Admission(admitted=True, evicted=held[1], limit=IN_ALL)


def test_no_connection_with_a_request_in_flight_is_evicted() -> None:
    held = [One(peer, evictable=False) for peer in "abcd"]

    assert admit(held, "e", LIMITS) == Admission(admitted=False, limit=IN_ALL)


def test_verified_connections_are_counted_apart() -> None:
    """Unverified connections neither use their slots nor are evicted for them."""
    held = [One(peer, verified=True) for peer in "aa"] + [One("a")]

    assert admit(held, "a", LIMITS) == Admission(admitted=True)
    assert admit_verified(held, LIMITS) == Admission(admitted=True, evicted=held[0], limit=VERIFIED)
    assert admit_verified(held[1:], LIMITS) == Admission(admitted=True)
    assert admit_verified(held, Limits()) == Admission(admitted=False)


def test_verified_connections_are_evicted_last() -> None:
    held = [One("a", 0.0, verified=True), One("b", 5.0), One("c", 9.0, evictable=False)]

    assert eviction_candidate(held) is held[1]
    assert eviction_candidate([held[0]]) is held[0]
    assert eviction_candidate([held[2]]) is None


class TestUnderWay:
    @pytest.mark.parametrize("limits", [LIMITS])
    def test_slots_are_reserved_for_probes_of_each_address_and_of_all(self, limits: Limits) -> None:
        """Requests under way never take the last places, which are the probes'."""
        under_way = InFlightRequests(limits)

        assert [under_way.begin(peer) for peer in "aabcd"] == [True, False, True, True, False]
        under_way.end("b")
        assert under_way.begin("d")
