"""Connections never outnumber the descriptors there are."""

import pytest

from devicemanager.serving.budget import DEVICE_MANAGER
from devicemanager.serving.limits import within_descriptors

LIMITS = DEVICE_MANAGER.limits


def test_with_enough_descriptors_nothing_changes() -> None:
    assert within_descriptors(LIMITS, 1024, 128) is LIMITS


@pytest.mark.parametrize("descriptors", [8, 64, 200, 447])
def test_with_fewer_there_are_fewer_connections_and_a_reserve(descriptors: int) -> None:
    """Never more connections than descriptors, whatever the reserve."""
    limits = within_descriptors(LIMITS, descriptors, 128)

    assert limits.verified is not None
    assert 0 < limits.total_connections <= descriptors - min(128, descriptors // 2)
    assert limits.connections >= limits.connections_per_peer >= 1
    assert limits.verified.connections >= 1
