"""The same peers as the worker's."""

from tests.unit.worker.conftest import blocking_calls_fail, device_manager, start_peer

__all__ = ["blocking_calls_fail", "device_manager", "start_peer"]
