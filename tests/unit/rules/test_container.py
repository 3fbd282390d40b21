"""When only a new container has what a program needs."""

import pytest

from devicemanager.model.accelerator import CollectorState
from devicemanager.rules.container import DriverFiles, lacking

BARE = DriverFiles("nvidia", loaded=True, device_node="/dev/nvidiactl", node_present=False)
GIVEN = DriverFiles("nvidia", loaded=True, device_node="/dev/nvidiactl", node_present=True)
ABSENT = DriverFiles("nvidia", loaded=False, device_node="/dev/nvidiactl", node_present=False)


@pytest.mark.parametrize(
    ("state", "driver", "expected"),
    [
        (CollectorState.LIBRARY_MISSING, BARE, "the manufacturer's library"),
        (CollectorState.LIBRARY_MISSING, GIVEN, "the manufacturer's library"),
        (CollectorState.FAILED, BARE, "/dev/nvidiactl"),
        (CollectorState.DRIVER_NOT_LOADED, BARE, "/dev/nvidiactl"),
        (CollectorState.UNRESPONSIVE, GIVEN, None),
        (CollectorState.FAILED, GIVEN, None),
        (CollectorState.LIBRARY_MISSING, ABSENT, None),
        (CollectorState.LIBRARY_MISSING, None, None),
    ],
)
def test_what_a_container_lacks(state: CollectorState, driver: DriverFiles | None, expected: str | None) -> None:
    assert lacking(state, driver, ever_sampled=False) == expected
    assert lacking(state, driver, ever_sampled=True) is None
