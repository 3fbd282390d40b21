"""Every figure of every recorded card, from the collector process, against what the vendor's own tool printed."""

import os
from pathlib import Path

import pytest

from tests.e2e.recorded_machines import FOLDER_VARIABLE, ExpectedCard, RecordedMachine, machines
from tests.standins.child import CollectorChild, Line
from tests.standins.nvml import NvmlStandin

_FOLDER = os.environ.get(FOLDER_VARIABLE)
_MACHINES = machines(Path(_FOLDER)) if _FOLDER else []

pytestmark = [
    pytest.mark.recorded,
    pytest.mark.skipif(not _FOLDER, reason=f"{FOLDER_VARIABLE} is not set"),
]


def reading_of(card: ExpectedCard, index: int) -> Line:
    """The reading that this card must give."""

    def or_unsupported(figure: object) -> object:
        return "unsupported" if figure is None else figure

    no_utilization = "partitioned" if card.partitioned else "unsupported"
    errors = card.ecc_uncorrected
    return {
        "index": index,
        "id": card.id,
        "name": card.name,
        "pci": card.pci,
        "memory": or_unsupported(card.memory_bytes),
        "memoryUsed": or_unsupported(card.memory_used_bytes),
        "cores": no_utilization if card.utilization_percent is None else card.utilization_percent,
        "temperature": or_unsupported(card.temperature_celsius),
        "power": or_unsupported(card.power_milliwatts),
        "powerLimit": or_unsupported(card.limit_milliwatts),
        "clockReductionReasons": or_unsupported(card.clock_reductions),
        "unhealthy": f"{errors} uncorrected ECC errors in device memory" if errors else None,
        "unread": {"ecc": "unsupported"} if errors is None else {},
    }


@pytest.mark.parametrize("machine", _MACHINES, ids=[machine.name for machine in _MACHINES])
def test_every_figure_is_what_the_vendors_tool_printed(machine: RecordedMachine, nvml: NvmlStandin) -> None:
    nvml.play(machine.scenario)
    with CollectorChild(("nvidia", "--once"), nvml.environment) as child:
        sample = child.sample()
    assert sample.count == len(machine.expected_cards) > 0
    for reading in sample.readings.values():
        reading.pop("notes", None)  # which call it was is none of what the tool prints
    assert [sample.readings[index] for index in range(sample.count)] == [
        reading_of(card, index) for index, card in enumerate(machine.expected_cards)
    ]


def test_every_kind_of_record_is_there() -> None:
    assert {len(machine.expected_cards) for machine in _MACHINES} >= {1, 8}
    cards = [card for machine in _MACHINES for card in machine.expected_cards]
    assert any(card.partitioned for card in cards)
    assert any(card.power_milliwatts is None for card in cards)
    assert any(card.ecc_uncorrected is None for card in cards)
    assert any((card.utilization_percent or 0) > 50 for card in cards)
