"""The figures of one NVIDIA card: which call gives each, and which older one where the preferred call fails.

Any failure of a preferred call leads to the older one, unless it says that the card is lost.
"""

from collections.abc import Callable
from typing import Any, Final

from collectors.nvidia_card import NvidiaCard
from collectors.nvidia_gpm import GpmUtilization
from devicemanager.model.figures import Figure, Figures
from devicemanager.model.reasons import Reason
from devicemanager.rules import plausibility

MEMORY_FAILURES: Final = 3
"""Ticks in a row in which the newer memory call must fail, after it had answered, before the older one is taken."""

_GPU_SENSOR: Final = 0


_CLOCK_REDUCTIONS: Final = (
    "gpu_idle",
    "applications_clocks_setting",
    "sw_power_cap",
    "hw_slowdown",
    "sync_boost",
    "sw_thermal_slowdown",
    "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
    "display_clocks_setting",
    "board_limit",
    "reliability",
)
"""The bits of the library's mask from the lowest, in the words of ``nvidia-smi``."""


def read(card: NvidiaCard, monotonic_s: Callable[[], float]) -> Figures:
    """Ask for every figure.

    Raises:
        CardFaultError: The card is lost.
    """
    total, used = _memory(card)
    return plausibility.reading(
        {
            "memory_total": total,
            "memory_used": used,
            "compute_utilization": _compute(card, monotonic_s),
            "temperature": _temperature(card),
            "power_usage": card.ask("power", lambda nvml, handle: nvml.nvmlDeviceGetPowerUsage(handle)),
            "power_limit": card.ask("limit", lambda nvml, handle: nvml.nvmlDeviceGetEnforcedPowerLimit(handle)),
            "clock_reduction_reasons": _clock_reductions(card),
        }
    )


def _memory(card: NvidiaCard) -> tuple[Any, Any]:
    """Total and used.

    The older call counts the driver's reserve as used, so the two must not alternate: a card that has answered the
    newer one gives no figure while that fails, and the older call's only when it keeps failing. The newer call is
    tried at every tick, or where it is not supported, every so often, and is taken again once it answers.
    """
    info = card.ask("memory_v2", lambda nvml, handle: nvml.nvmlDeviceGetMemoryInfo(handle, nvml.nvmlMemory_v2))
    if not isinstance(info, Reason):
        card.memory_version, card.memory_failures = 2, 0
        return info.total, info.used
    if card.memory_version == 2:
        card.memory_failures += 1
        if card.memory_failures < MEMORY_FAILURES:
            return info, info
    older = card.ask("memory_v1", lambda nvml, handle: nvml.nvmlDeviceGetMemoryInfo(handle))
    if isinstance(older, Reason):
        why = info if older is Reason.UNSUPPORTED else older
        return why, why
    card.memory_version = 1
    return older.total, older.used


def _compute(card: NvidiaCard, monotonic_s: Callable[[], float]) -> Any:
    average = _gpm(card, monotonic_s)
    if average is not None and not isinstance(average, Reason):
        return _whole_percent(average)
    rates = card.ask("utilization", lambda nvml, handle: nvml.nvmlDeviceGetUtilizationRates(handle))
    if rates is Reason.UNSUPPORTED:
        return _why_no_utilization(card, average)
    return rates if isinstance(rates, Reason) else rates.gpu


def _gpm(card: NvidiaCard, monotonic_s: Callable[[], float]) -> Any:
    """The average since the last tick; None where there is no such figure, or none yet."""
    if card.gpm is None:
        support = card.ask("gpm_support", lambda nvml, handle: nvml.nvmlGpmQueryDeviceSupport(handle))
        if support is Reason.UNSUPPORTED:
            card.gpm = False
        elif not isinstance(support, Reason):
            card.gpm = GpmUtilization(monotonic_s) if support.isSupportedDevice else False
    if not isinstance(card.gpm, GpmUtilization):
        return None
    return card.ask("gpm", card.gpm.percent)


def _why_no_utilization(card: NvidiaCard, average: Any) -> Reason:
    """The parent of a partitioned card has no utilization of its own. A pending change of mode is none yet."""
    mode = card.ask("mig", lambda nvml, handle: nvml.nvmlDeviceGetMigMode(handle))
    if not isinstance(mode, Reason) and mode[0] == 1:
        return Reason.PARTITIONED
    return average if isinstance(average, Reason) else Reason.UNSUPPORTED


def _temperature(card: NvidiaCard) -> Any:
    """The call with a version replaces one that is going away; drivers before it know only the other."""
    newer = card.ask("temperature_v", lambda nvml, handle: nvml.nvmlDeviceGetTemperatureV(handle, _GPU_SENSOR))
    if not isinstance(newer, Reason):
        return newer
    older = card.ask("temperature", lambda nvml, handle: nvml.nvmlDeviceGetTemperature(handle, _GPU_SENSOR))
    return newer if older is Reason.UNSUPPORTED else older


def _clock_reductions(card: NvidiaCard) -> Any:
    """Names of the bits that are set; drivers before 530 know only the older call.

    A bit that has no name here is a reason all the same: ``other``.
    """
    mask = card.ask("clocks", lambda nvml, handle: nvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
    if isinstance(mask, Reason):
        older = card.ask(
            "clocks_older", lambda nvml, handle: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
        )
        mask = mask if older is Reason.UNSUPPORTED else older
    if not isinstance(mask, int):
        return mask
    names = [name for bit, name in enumerate(_CLOCK_REDUCTIONS) if mask >> bit & 1]
    return [*names, "other"] if mask >> len(_CLOCK_REDUCTIONS) else names


def _whole_percent(average: float) -> Figure:
    """Truncated. The library may answer with what is no number around a reset; a comparison with that is false."""
    return int(average) if 0.0 <= average <= 100.0 else Reason.INVALID_DATA
