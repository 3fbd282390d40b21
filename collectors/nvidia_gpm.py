"""Share of time in which any streaming multiprocessor was busy, from NVIDIA's GPU performance monitoring (GPM).

Hopper and newer. The library computes the figure from two samples that must lie more than 100 ms apart. The earlier
tick's sample serves as the first of the two, so nothing ever waits, and the figure is the average since then.
"""

from collections.abc import Callable
from typing import Any, Final

LEAST_INTERVAL_S: Final = 0.11
"""The library's own limit is 100 ms; the rest is for the clocks."""

_SM_UTIL: Final = 2


class GpmUtilization:
    """The two samples of one card.

    Args:
        monotonic_s: Seconds that never go back.
    """

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        self._monotonic_s = monotonic_s
        self._samples: list[Any] = []
        self._taken_s: float | None = None
        self._percent: float | None = None
        self._request: Any = None

    def forget(self) -> None:
        """Start over with a new handle. The buffers belong to no card and are kept."""
        self._taken_s = self._percent = None

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
        if not self._samples:
            self._allocate(nvml)
        earlier, later = self._samples
        nvml.nvmlGpmSampleGet(handle, later)
        had_earlier = self._taken_s is not None
        self._samples.reverse()
        self._taken_s = now_s
        self._percent = None  # an answer of an older pair must not outlive a failure of this one
        if had_earlier:
            self._percent = self._between(nvml, earlier, later)
        return self._percent

    def _between(self, nvml: Any, earlier: Any, later: Any) -> float:
        request = self._request
        request.sample1 = earlier
        request.sample2 = later
        nvml.nvmlGpmMetricsGet(request)
        metric = request.metrics[0]
        if metric.nvmlReturn:
            raise nvml.NVMLError(metric.nvmlReturn)
        return float(metric.value)

    def _allocate(self, nvml: Any) -> None:
        """Two buffers on the library's heap, for the life of this process."""
        request = nvml.c_nvmlGpmMetricsGet_t()
        request.version = nvml.NVML_GPM_METRICS_GET_VERSION
        request.numMetrics = 1
        request.metrics[0].metricId = _SM_UTIL
        self._request = request
        first = nvml.nvmlGpmSampleAlloc()
        self._samples = [first, nvml.nvmlGpmSampleAlloc()]
