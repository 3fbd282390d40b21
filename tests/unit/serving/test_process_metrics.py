"""The figures of a server's own process."""

import os

import psutil
from prometheus_client import CollectorRegistry

from devicemanager.serving.process_metrics import ProcessMetrics


def test_they_are_those_of_this_process_under_the_usual_names() -> None:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(ProcessMetrics(lambda: 3))
    process = psutil.Process()

    found = {sample.name: sample.value for family in registry.collect() for sample in family.samples}

    assert found["process_cpu_seconds_total"] <= sum(process.cpu_times()[:2]) + 1
    assert abs(found["process_resident_memory_bytes"] - process.memory_info().rss) < 64 << 20
    assert abs(found["process_start_time_seconds"] - process.create_time()) < 5
    assert abs(found["process_open_fds"] - len(os.listdir("/proc/self/fd"))) <= 2
    assert found["process_max_fds"] >= found["process_open_fds"]
    assert found["process_virtual_memory_bytes"] > found["process_resident_memory_bytes"]
    assert found["devicemanager_log_lines_dropped_total"] == 3
