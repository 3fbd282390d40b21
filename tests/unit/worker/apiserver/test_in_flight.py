"""The limit on requests under way."""

import pytest

from devicemanager.worker.apiserver.in_flight import InFlightLimiter, TooManyInFlightError


def test_places_are_given_back_whatever_happens() -> None:
    limiter = InFlightLimiter(2)
    with limiter.slot(), limiter.slot():
        assert limiter.in_flight == 2
        with pytest.raises(TooManyInFlightError), limiter.slot():
            raise AssertionError
    with pytest.raises(KeyError), limiter.slot():
        raise KeyError
    assert limiter.in_flight == 0
