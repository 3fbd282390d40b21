"""Share of time in which any streaming multiprocessor was in use, from NVIDIA's GPU performance monitoring (GPM).

Hopper and newer. The library computes the figure from two samples that must lie more than 100 ms apart. The earlier
tick's sample serves as the first of the two, so nothing ever waits, and the figure is the average since then.
"""

from collections.abc import Callable
from typing import Any, Final

LEAST_INTERVAL_S: Final = 0.11
"""The library's own limit is 100 ms; the rest is for the clocks."""

_SM_UTIL: Final = 2


class GpmBuffers:
    """Two samples and a request on the library's heap, allocated when they are first needed and never freed.

    They belong to no card, so whatever card comes to an index uses those of the one before.
    """

    def __init__(self) -> None:
        self.samples: list[Any] = []
        self.request: Any = None

    def allocate(self, nvml: Any) -> None:
        """Allocate once. May raise the library's errors."""
        if self.samples:
            return
        request = nvml.c_nvmlGpmMetricsGet_t()
        request.version = nvml.NVML_GPM_METRICS_GET_VERSION
        request.numMetrics = 1
        request.metrics[0].metricId = _SM_UTIL
        self.request = request
        first = nvml.nvmlGpmSampleAlloc()
        self.samples = [first, nvml.nvmlGpmSampleAlloc()]


class GpmUtilization:
    """The average of one card, from tick to tick.

    Args:
        buffers: Used by no other card meanwhile.
        monotonic_s: Seconds that never go back.
    """

    def __init__(self, buffers: GpmBuffers, monotonic_s: Callable[[], float]) -> None:
        self._buffers = buffers
        self._monotonic_s = monotonic_s
        self._taken_s: float | None = None
        self._percent: float | None = None

    def percent(self, nvml: Any, handle: Any) -> float | None:
        """The average since the earlier call, in percent; None while there is only one sample.

        Asked again within the least interval, it repeats the last answer. The figure is whatever the library
        computed: also not a number, or above 100.

        Args:
            nvml: The ``pynvml`` module.
            handle: Of the card.

        Raises:
            pynvml.NVMLError: The library refused.
        """
        now_s = self._monotonic_s()
        if self._taken_s is not None and now_s - self._taken_s < LEAST_INTERVAL_S:
            return self._percent
        self._buffers.allocate(nvml)
        earlier, later = self._buffers.samples
        nvml.nvmlGpmSampleGet(handle, later)
        had_earlier = self._taken_s is not None
        self._buffers.samples.reverse()
        self._taken_s = now_s
        self._percent = None  # an answer of an older pair must not outlive a failure of this one
        if had_earlier:
            self._percent = self._between(nvml, earlier, later)
        return self._percent

    def _between(self, nvml: Any, earlier: Any, later: Any) -> float:
        request = self._buffers.request
        request.sample1 = earlier
        request.sample2 = later
        nvml.nvmlGpmMetricsGet(request)
        metric = request.metrics[0]
        if metric.nvmlReturn:
            raise nvml.NVMLError(metric.nvmlReturn)
        return float(metric.value)
