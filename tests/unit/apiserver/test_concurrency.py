"""The cap."""

import pytest

from devicemanager.worker.apiserver.concurrency import AtCapacityError, Cap


def test_places_are_given_back_whatever_happens() -> None:
    cap = Cap(2)
    with cap.slot(), cap.slot():
        assert cap.under_way == 2
        with pytest.raises(AtCapacityError), cap.slot():
            raise AssertionError
    with pytest.raises(KeyError), cap.slot():
        raise KeyError
    assert cap.under_way == 0
