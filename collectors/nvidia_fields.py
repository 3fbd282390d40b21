"""Values that NVML has as numbered fields of one call, each with a type and a return code of its own."""

from typing import Any, Final

from devicemanager.model.reasons import Reason

POWER_INSTANT: Final = 186
"""Milliwatts drawn at this moment."""

_MEMBERS: Final = {1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}
"""Type of a value -> where it lies. Type 0 is a float, which no figure is."""


def integer(nvml: Any, handle: Any, field: int) -> int | Reason:
    """One field of a card, unchecked.

    Args:
        nvml: The ``pynvml`` module.
        handle: Of the card.
        field: Its number.

    Raises:
        pynvml.NVMLError: The library refused the call, or the field.
    """
    (value,) = nvml.nvmlDeviceGetFieldValues(handle, [field])
    if value.nvmlReturn:
        raise nvml.NVMLError(value.nvmlReturn)
    member = _MEMBERS.get(value.valueType)
    return Reason.INVALID_DATA if member is None else int(getattr(value.value, member))
