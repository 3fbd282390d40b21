"""What the return codes of NVML, and of libraries built like it, say about a figure, a card or a driver.

An error of the Python binding is never turned into text: for a code that it does not know, that calls the library
again, which after a loss may not come back. The names here are NVML's own.
"""

from typing import Final

from devicemanager.errors import CollectorError
from devicemanager.model.accelerator import CollectorState, Reason

CORRUPTED_INFOROM: Final = 14
UNKNOWN: Final = 999
"""The ambiguous one: of a figure, of a card or of the driver, depending on how many say it and how often."""

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

_OF_THE_DRIVER: Final = frozenset({1, 9, 12, 18})
_OF_A_LOST_CARD: Final = frozenset({8, 11, 15, 16, 28})

_OF_A_MOMENT: Final = frozenset({19, 21, 27})
"""In use, no data yet, not ready yet: what a card in good health says too, and perhaps for long."""

_REASONS: Final = {
    **dict.fromkeys((2, 3, 13, 22, 24, 25, 26), Reason.UNSUPPORTED),
    **dict.fromkeys((4, 17), Reason.PERMISSION),
    **dict.fromkeys(_OF_A_LOST_CARD, Reason.LOST),
}

_STATES: Final = {
    4: CollectorState.NO_PERMISSION,
    9: CollectorState.DRIVER_NOT_LOADED,
    12: CollectorState.LIBRARY_MISSING,
    17: CollectorState.NO_PERMISSION,
    18: CollectorState.VERSION_MISMATCH,
}


def named(code: int) -> str:
    """The code as a person can look it up: ``GPU_IS_LOST (15)``."""
    return f"{_NAMES.get(code, 'code')} ({code})"


def blames_driver(code: int) -> bool:
    """Whether the whole library or driver is unusable, whichever card was asked."""
    return code in _OF_THE_DRIVER


def blames_card(code: int) -> bool:
    """Whether the card is gone or needs a reset, whichever figure was asked for."""
    return code in _OF_A_LOST_CARD


def passes(code: int) -> bool:
    """Whether a card in good health may return this code for as long as it likes."""
    return code in _OF_A_MOMENT


def reason(code: int) -> Reason:
    """Why a figure is absent when its call returned this code. Codes without a class of their own may pass."""
    return _REASONS.get(code, Reason.TRANSIENT_DRIVER_ERROR)


def verdict(code: int, call: str) -> CollectorError:
    """What to say of the library as a whole when ``call`` returned this code."""
    return CollectorError(_STATES.get(code, CollectorState.FAILED), f"{call} answered {named(code)}")
