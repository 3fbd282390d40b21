"""The health checks of an NVIDIA card. Each is read on its own; one that cannot be read says nothing."""

from typing import Any, Final

from collectors.device import Device
from collectors.vendor_library import Health
from devicemanager.model.reasons import Reason
from devicemanager.rules.plausibility import number

ECC: Final = "ecc"
REMAPPED_ROWS: Final = "remapped_rows"

_UNCORRECTED, _VOLATILE, _DRAM = 1, 0, 2
_HIGHEST_COUNT: Final = (1 << 32) - 1

_UNTOLD: Final = frozenset({Reason.TRANSIENT_DRIVER_ERROR, Reason.INVALID_DATA})
"""Reasons for which a check says nothing, neither good nor bad."""


def check(nvml: Any, device: Device) -> Health:
    """The health checks of a card; ``nvml`` is the ``pynvml`` module."""
    errors = device.query(
        ECC, lambda handle: nvml.nvmlDeviceGetMemoryErrorCounter(handle, _UNCORRECTED, _VOLATILE, _DRAM)
    )
    errors = number(errors, _HIGHEST_COUNT)
    rows = device.query(REMAPPED_ROWS, lambda handle: nvml.nvmlDeviceGetRemappedRows(handle))
    if not isinstance(rows, Reason) and Reason.INVALID_DATA in [number(flag, 1) for flag in rows[2:]]:
        rows = Reason.INVALID_DATA
    decides = errors if isinstance(rows, Reason) and rows not in _UNTOLD else rows
    if decides not in _UNTOLD:  # else what it last said stays
        device.kept["memory_faults"] = _memory_faults(errors, rows)
    unread = {ECC: errors} if isinstance(errors, Reason) else {}
    if isinstance(rows, Reason) and rows is not Reason.UNSUPPORTED:  # cards before Ampere have no such rows
        unread[REMAPPED_ROWS] = rows
    return Health(device.kept.get("memory_faults", ()), unread)


def _memory_faults(errors: Any, rows: Any) -> list[str]:
    """What is wrong with the memory.

    Where the card remaps rows, an error after which no remapping is pending or has failed was contained: it is a
    count, and the card goes on working. Where the card does not say, any error since the driver was loaded counts.
    """
    if isinstance(rows, Reason):
        uncontained = not isinstance(errors, Reason) and errors > 0
        return [f"{errors} uncorrected ECC errors in device memory"] if uncontained else []
    _, _, pending, failed = rows
    faults = ["the remapping of a row of device memory failed"] if failed else []
    return [*faults, "a row of device memory waits to be remapped, by a reset"] if pending else faults
