"""Machines recorded by others, served over HTTPS: every figure against what the vendor's own tool printed."""

import os
from pathlib import Path

import pytest

from tests.e2e.device_manager import Document, Serve, bus, cards
from tests.e2e.recorded_machines import FOLDER_VARIABLE, ExpectedCard, RecordedMachine, machines
from tests.standins.nvml import MIB, NvmlStandin

_FOLDER = os.environ.get(FOLDER_VARIABLE)
_MACHINES = machines(Path(_FOLDER)) if _FOLDER else []

pytestmark = [
    pytest.mark.recorded,
    pytest.mark.skipif(not _FOLDER, reason=f"{FOLDER_VARIABLE} is not set"),
]


def shown(card: ExpectedCard, index: int) -> Document:
    """The card as the snapshot must show it; worked out from what was printed, without the product's own rules."""
    total, used = card.memory_bytes, card.memory_used_bytes
    figures = {
        "memory": None if total is None else -(-total // MIB),
        "memoryUsage": None if used is None else -(-used // MIB),
        "memoryUtilization": None if total is None or used is None else int(100 * used / total),
        "coresUtilization": card.utilization_percent,
        "temperature": card.temperature_celsius,
        "powerUsage": None if card.power_milliwatts is None else card.power_milliwatts // 1000,
        "powerLimit": None if card.limit_milliwatts is None else card.limit_milliwatts // 1000,
        "clockReductionReasons": card.clock_reductions,
    }
    absent = {key: "unsupported" for key, figure in figures.items() if figure is None}
    if card.partitioned and card.utilization_percent is None:
        absent["coresUtilization"] = "partitioned"
    if card.ecc_uncorrected is None:
        absent["ecc"] = "unsupported"
    faults = card.ecc_uncorrected
    return {
        "id": card.id,
        "index": index,
        "name": card.name,
        "pciBusId": card.pci,
        **{key: figure for key, figure in figures.items() if figure is not None},
        "unhealthy": bool(faults),
        **({"unhealthyReason": f"{faults} uncorrected ECC errors in device memory"} if faults else {}),
        "absent": absent,
    }


@pytest.mark.parametrize("machine", _MACHINES, ids=[machine.name for machine in _MACHINES])
def test_every_figure_served_is_what_the_vendors_tool_printed(
    machine: RecordedMachine, serve: Serve, nvml: NvmlStandin, tmp_path: Path
) -> None:
    nvml.play(machine.scenario)
    manager = serve("--manufacturer=nvidia", bus(tmp_path / "sys"), environment=nvml.environment)

    seen = cards(manager.until_state("ok"))

    without_notes = [{key: value for key, value in card.items() if key != "notes"} for card in seen]
    assert without_notes == [shown(card, index) for index, card in enumerate(machine.expected_cards)]
