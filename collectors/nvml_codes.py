"""The return codes of NVML, and of libraries built like it. The names are NVML's own."""

from typing import Final

from collectors.codes import ErrorCodes, Fault
from devicemanager.model.accelerator import CollectorState

FUNCTION_NOT_FOUND: Final = 13
"""What the library's loader says of a function that a library of another release lacks."""

_NAMES: Final = {
    1: "UNINITIALIZED",
    2: "INVALID_ARGUMENT",
    3: "NOT_SUPPORTED",
    4: "NO_PERMISSION",
    5: "ALREADY_INITIALIZED",
    6: "NOT_FOUND",
    7: "INSUFFICIENT_SIZE",
    8: "INSUFFICIENT_POWER",
    9: "DRIVER_NOT_LOADED",
    10: "TIMEOUT",
    11: "IRQ_ISSUE",
    12: "LIBRARY_NOT_FOUND",
    13: "FUNCTION_NOT_FOUND",
    14: "CORRUPTED_INFOROM",
    15: "GPU_IS_LOST",
    16: "RESET_REQUIRED",
    17: "OPERATING_SYSTEM",
    18: "LIB_RM_VERSION_MISMATCH",
    19: "IN_USE",
    20: "MEMORY",
    21: "NO_DATA",
    22: "VGPU_ECC_NOT_SUPPORTED",
    23: "INSUFFICIENT_RESOURCES",
    24: "FREQ_NOT_SUPPORTED",
    25: "ARGUMENT_VERSION_MISMATCH",
    26: "DEPRECATED",
    27: "NOT_READY",
    28: "GPU_NOT_FOUND",
    29: "INVALID_STATE",
    30: "RESET_TYPE_NOT_SUPPORTED",
    999: "UNKNOWN",
}

CODES: Final = ErrorCodes(
    names=_NAMES,
    faults={
        **dict.fromkeys((2, 3, 13, 22, 24, 25, 26), Fault.UNSUPPORTED),
        **dict.fromkeys((4, 17), Fault.PERMISSION),
        **dict.fromkeys((19, 21, 27), Fault.BUSY),
        14: Fault.DEGRADED,
        **dict.fromkeys((8, 11, 15, 16, 28), Fault.LOST),
        **dict.fromkeys((1, 9, 12, 18), Fault.DRIVER),
        999: Fault.AMBIGUOUS,
    },
    states={
        9: CollectorState.DRIVER_NOT_LOADED,
        12: CollectorState.LIBRARY_MISSING,
        18: CollectorState.VERSION_MISMATCH,
    },
)
