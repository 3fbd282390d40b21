"""The least that reads nine figures of each card with nvidia-ml-py: seven calls a card, one JSON line a sample.

It survives nothing, says nothing of who a card is, and calls every number a figure. Prints the processor
milliseconds of one sample. Runs without our packages.
"""

import json
import os
import sys
import time

import pynvml as nvml


def sample(cards: list[object]) -> str:
    """Nine figures of each card, as JSON."""
    figures = []
    for card in cards:
        memory = nvml.nvmlDeviceGetMemoryInfo(card)
        rates = nvml.nvmlDeviceGetUtilizationRates(card)
        figures.append(
            (
                memory.total,
                memory.used,
                rates.gpu,
                rates.memory,
                nvml.nvmlDeviceGetTemperature(card, nvml.NVML_TEMPERATURE_GPU),
                nvml.nvmlDeviceGetPowerUsage(card),
                nvml.nvmlDeviceGetEnforcedPowerLimit(card),
                nvml.nvmlDeviceGetCurrentClocksEventReasons(card),
                nvml.nvmlDeviceGetMemoryErrorCounter(card, 1, 0, 2),
            )
        )
    return json.dumps(figures)


def main(samples: int, period_s: float, output: int) -> None:
    """Sample that often: back to back, or once a period, each line written to ``output``."""
    nvml.nvmlInit()
    cards = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
    for _ in range(20):
        sample(cards)
    begun_s = time.process_time()
    for _ in range(samples):
        line = sample(cards)
        if period_s:
            os.write(output, line.encode())
            time.sleep(period_s)
    print((time.process_time() - begun_s) / samples * 1000)  # noqa: T201 - a program; this is its result


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), os.open(os.devnull, os.O_WRONLY))
