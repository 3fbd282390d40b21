"""What a server's own process uses, under the names that every Prometheus client has for it."""

from collections.abc import Callable, Iterator

from prometheus_client import ProcessCollector
from prometheus_client.core import CounterMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from typing_extensions import override


class ProcessMetrics(Collector):
    """CPU time, memory, descriptors and the start of this process, and how many lines its log has lost.

    Args:
        lines_dropped: How many lines of the log could not be written.
    """

    def __init__(self, lines_dropped: Callable[[], int]) -> None:
        self._lines_dropped = lines_dropped
        self._process = ProcessCollector(registry=None)

    @override
    def collect(self) -> Iterator[Metric]:
        yield from self._process.collect()
        yield CounterMetricFamily(
            "devicemanager_log_lines_dropped",
            "Lines of the log that could not be written, because its reader stood still or is gone.",
            value=self._lines_dropped(),
        )
