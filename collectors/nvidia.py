"""NVIDIA cards through NVML and its own Python binding, ``nvidia-ml-py``: calls and units.

Health checks are in :mod:`collectors.nvidia_health`. What is done with failures is in :mod:`collectors.base` and
:mod:`collectors.device`, what codes mean in :mod:`collectors.nvml_codes`.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

from collectors import nvidia_binding, nvidia_fields, nvidia_health, nvml_codes
from collectors.base import LibraryCollector
from collectors.device import Device
from collectors.nvidia_gpm import GpmBuffers, GpmUtilization
from collectors.vendor_library import CallNames, Health
from devicemanager.model.accelerator import Versions
from devicemanager.model.reasons import Reason
from devicemanager.rules.plausibility import number

_GPU_SENSOR: Final = 0
_HIGHEST_MASK: Final = (1 << 63) - 1

_ROUNDING: Final = 1e-3
"""By how much a percentage that was computed from counters may miss 0 or 100."""

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


def collector() -> LibraryCollector:
    """The collector for NVIDIA cards, not opened yet."""
    return LibraryCollector(NvidiaLibrary())


class NvidiaLibrary:
    """NVML: a :class:`collectors.vendor_library.VendorLibrary`.

    Args:
        monotonic_s: Seconds that never go back.
    """

    codes = nvml_codes.CODES
    call_names = CallNames("nvmlInit", "nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex")

    def __init__(self, *, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self.found: str | None = None
        self.found_fault: str | None = None
        self.versions = Versions()
        self._monotonic_s = monotonic_s
        self._nvml: Any = None
        self._gpm_buffers: defaultdict[int, GpmBuffers] = defaultdict(GpmBuffers)

    def open(self) -> None:
        binding = nvidia_binding.load()
        self.found, self.found_fault = binding.name, binding.fault
        self._nvml = binding.module
        self._nvml.nvmlInit()
        self.versions = Versions(
            self._version("nvmlSystemGetDriverVersion"), self._version("nvmlSystemGetNVMLVersion")
        )

    def _version(self, call: str) -> str | None:
        """What the library says of itself, for a person: that it says nothing keeps no card from being read."""
        try:
            answer = getattr(self._nvml, call)()
            return answer.decode() if isinstance(answer, bytes) else str(answer)
        except Exception as error:
            if self.code_of(error) is None and not isinstance(error, AttributeError | UnicodeDecodeError):
                raise
            return None

    def close(self) -> None:
        self._nvml.nvmlShutdown()

    def code_of(self, error: Exception) -> int | None:
        """The error is never turned into text: for an unknown code, that would call the library."""
        if isinstance(error, self._nvml.NVMLError):
            return int(error.value)
        # Raised for symbols that a library of another release lacks; older bindings do not know it.
        mismatch = getattr(self._nvml, "NVMLLibraryMismatchError", ())
        return nvml_codes.FUNCTION_NOT_FOUND if isinstance(error, mismatch) else None

    def count(self) -> int:
        return int(self._nvml.nvmlDeviceGetCount())

    def handle(self, index: int) -> Any:
        return self._nvml.nvmlDeviceGetHandleByIndex(index)

    def release(self, handle: Any) -> None:
        """A handle is a pointer into the library, which keeps it until it is shut down."""

    def uuid(self, handle: Any) -> Any:
        return self._nvml.nvmlDeviceGetUUID(handle)

    def name(self, handle: Any) -> Any:
        return self._nvml.nvmlDeviceGetName(handle)

    def serial(self, handle: Any) -> Any:
        return self._nvml.nvmlDeviceGetSerial(handle)

    def pci_address(self, handle: Any) -> Any:
        return self._nvml.nvmlDeviceGetPciInfo(handle).busId

    def figures(self, device: Device) -> Mapping[str, Any]:
        nvml = self._nvml
        # The older call counts the driver's reserve as used.
        memory = device.query(
            "memory",
            lambda handle: nvml.nvmlDeviceGetMemoryInfo(handle, nvml.nvmlMemory_v2),
            lambda handle: nvml.nvmlDeviceGetMemoryInfo(handle),
            keep=True,
        )
        if not isinstance(memory, Reason) and not hasattr(memory, "version"):
            device.notes["memory_used"] = "with what the driver reserves for itself (older call)"
        total, used = (memory, memory) if isinstance(memory, Reason) else (memory.total, memory.used)
        utilization = self._utilization(device)
        # The call with a version replaces one that is going away; drivers before it know only the other.
        temperature = device.query(
            "temperature",
            lambda handle: nvml.nvmlDeviceGetTemperatureV(handle, _GPU_SENSOR),
            lambda handle: nvml.nvmlDeviceGetTemperature(handle, _GPU_SENSOR),
        )
        return {
            "memory_total": total,
            "memory_used": used,
            "compute_utilization": utilization,
            "temperature": temperature,
            "power_usage": self._power(device),
            "power_limit": device.ask("power_limit", lambda handle: nvml.nvmlDeviceGetEnforcedPowerLimit(handle)),
            "clock_reduction_reasons": self._clock_reductions(device),
        }

    def _power(self, device: Device) -> Any:
        """An average of a second on most cards; where there is none, the power of the instant, which is noted."""
        nvml = self._nvml
        power = device.query("power", lambda handle: nvml.nvmlDeviceGetPowerUsage(handle))
        if power is not Reason.UNSUPPORTED:
            return power
        power = device.query(
            "instant_power", lambda handle: nvidia_fields.integer(nvml, handle, nvidia_fields.POWER_INSTANT)
        )
        if not isinstance(power, Reason):
            device.notes["power_usage"] = f"of the instant (field {nvidia_fields.POWER_INSTANT})"
        return power

    def _clock_reductions(self, device: Device) -> Any:
        """Names of the bits that are set; drivers before 530 know only the older call.

        A bit that has no name here is a reason all the same: ``other``.
        """
        nvml = self._nvml
        mask = device.ask("clocks", lambda handle: nvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
        if isinstance(mask, Reason):
            older = device.ask(
                "older_clocks", lambda handle: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
            )
            mask = mask if older is Reason.UNSUPPORTED else older
        mask = number(mask, _HIGHEST_MASK)
        return _reductions(mask) if isinstance(mask, int) else mask

    def _utilization(self, device: Device) -> Any:
        """The parent of a partitioned card has no utilization of its own. A pending change of mode is none yet."""
        nvml = self._nvml
        gpm = self._gpm(device)
        percent = device.query(
            "utilization",
            lambda handle: gpm.percent(nvml, handle) if gpm else None,
            lambda handle: nvml.nvmlDeviceGetUtilizationRates(handle).gpu,
        )
        if isinstance(percent, Reason) or percent == 0:  # some drivers answer 0 for the parent
            mode = device.ask("mig", lambda handle: nvml.nvmlDeviceGetMigMode(handle))
            if not isinstance(mode, Reason) and mode[0] == 1:
                return device.excuse("utilization", Reason.PARTITIONED)
        if isinstance(percent, Reason):
            return percent
        if gpm and isinstance(percent, int):
            device.notes["compute_utilization"] = "the share of time in which any kernel ran (no answer of GPM)"
        return _whole_percent(percent)

    def _gpm(self, device: Device) -> GpmUtilization | None:
        """None where the card does not support it, or has not said yet whether it does."""
        if "gpm" not in device.kept:
            support = device.ask("gpm_support", lambda handle: self._nvml.nvmlGpmQueryDeviceSupport(handle))
            if isinstance(support, Reason) and support is not Reason.UNSUPPORTED:
                return None
            supported = support is not Reason.UNSUPPORTED and support.isSupportedDevice
            buffers = self._gpm_buffers[device.index]
            device.kept["gpm"] = GpmUtilization(buffers, self._monotonic_s) if supported else None
        gpm: GpmUtilization | None = device.kept["gpm"]
        return gpm

    def health(self, device: Device) -> Health:
        return nvidia_health.check(self._nvml, device)


def _whole_percent(percent: float) -> int | Reason:
    """Truncated. GPM computes in floating point, and around a reset may answer with what is no number."""
    if not -_ROUNDING <= percent <= 100 + _ROUNDING:
        return Reason.INVALID_DATA
    return min(100, max(0, int(percent)))


@lru_cache(maxsize=64)
def _reductions(mask: int) -> tuple[str, ...]:
    names = tuple(name for bit, name in enumerate(_CLOCK_REDUCTIONS) if mask >> bit & 1)
    return (*names, "other") if mask >> len(_CLOCK_REDUCTIONS) else names
