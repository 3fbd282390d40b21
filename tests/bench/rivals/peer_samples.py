"""One sample of all cards by a peer's own code, in process. Runs in the interpreter that has the peers installed.

``python peer_samples.py nvitop-exporter|gpustack-runtime SAMPLES`` prints the processor milliseconds of one sample.
"""

import json
import sys
import time
from collections.abc import Callable


def sampler(peer: str) -> Callable[[], object]:
    """What takes one sample."""
    if peer == "nvitop-exporter":
        from nvitop import Device
        from nvitop_exporter.exporter import PrometheusExporter

        devices = Device.all()
        exporter = PrometheusExporter(devices, hostname="bench", interval=1.0)
        return lambda: [exporter.update_device(device) for device in devices]
    from gpustack_runtime.detector import detect_devices

    return lambda: json.dumps([device.to_dict() for device in detect_devices()])


def main(peer: str, samples: int) -> None:
    """Sample that often, back to back."""
    sample = sampler(peer)
    for _ in range(5):
        sample()
    begun_s = time.process_time()
    for _ in range(samples):
        sample()
    print((time.process_time() - begun_s) / samples * 1000)  # noqa: T201 - a program; this is its result


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
