"""All limits multiplied stay below the chart's memory limits."""

from dataclasses import replace
from pathlib import Path

import pytest

from devicemanager.programs import serve
from devicemanager.serving.limits import MIB, Limits, VerifiedLimits, head_cost, memory_bytes, within_descriptors
from devicemanager.worker.apiserver import limits as worker
from tests.floods import chart_limit_bytes

THREAT_MODEL = Path(__file__).parents[3] / "docs" / "threat-model.md"

AT_REST_MIB = {"deviceManager": 63, "worker": 70}
"""Resident before the first connection, measured on both programs."""

LEFT_FOR_READS_MIB = {"deviceManager": 0, "worker": 128}
"""A device manager keeps one snapshot, which is in what it takes at rest; a worker reads documents of its peers."""

PROGRAMS = [("deviceManager", serve.LIMITS), ("worker", worker.LIMITS)]


@pytest.mark.parametrize(("part", "limits"), PROGRAMS, ids=["device-manager", "worker"])
def test_all_limits_reached_at_once_stay_below_the_charts_memory_limit(part: str, limits: Limits) -> None:
    """Connections x (TLS, kernel buffers, held bytes, a head) + unfinished heads + answers not taken."""
    total = AT_REST_MIB[part] * MIB + memory_bytes(limits) + LEFT_FOR_READS_MIB[part] * MIB

    assert total < chart_limit_bytes(part)


@pytest.mark.parametrize(("part", "limits"), PROGRAMS, ids=["device-manager", "worker"])
def test_the_threat_model_shows_that_sum(part: str, limits: Limits) -> None:
    row = next(
        line for line in THREAT_MODEL.read_text(encoding="utf-8").splitlines() if line.startswith("| **sum**")
    )
    cell = row.split("|")[2 if part == "deviceManager" else 3]

    assert cell.split()[0] == f"{(AT_REST_MIB[part] * MIB + memory_bytes(limits)) / MIB:.0f}"


@pytest.mark.parametrize(
    "more",
    [
        {"connections": 257},
        {"receive_buffer": 17 * 1024},
        {"send_buffer": 65 * 1024},
        {"head_bytes": 17 * 1024},
        {"headers": 129},
        {"heads_cost": 5 * MIB},
        {"undelivered_bytes": 9 * MIB},
        {"verified": VerifiedLimits(1, 1, 1, 1)},
    ],
    ids=lambda more: next(iter(more)),
)
def test_every_limit_that_costs_memory_counts(more: dict[str, int]) -> None:
    assert memory_bytes(replace(Limits(), **more)) > memory_bytes(Limits())  # type: ignore[arg-type]  # one field each


def test_a_head_of_many_short_lines_costs_more_than_its_bytes() -> None:
    assert head_cost(1000, 100) > head_cost(1000, 1) > 1000


def test_a_worker_refuses_reads_before_it_runs_out_of_connections() -> None:
    assert worker.LIMITS.connections - worker.LIMITS.reserved_for_probes >= 400  # the default of --max-reads


class TestAffordable:
    def test_with_enough_descriptors_nothing_changes(self) -> None:
        assert within_descriptors(serve.LIMITS, 1024, 128) is serve.LIMITS

    @pytest.mark.parametrize("descriptors", [8, 64, 200, 447])
    def test_with_fewer_there_are_fewer_connections_and_a_reserve(self, descriptors: int) -> None:
        """Never more connections than descriptors, whatever the reserve."""
        limits = within_descriptors(serve.LIMITS, descriptors, 128)

        assert limits.verified is not None
        assert 0 < limits.total_connections <= descriptors - min(128, descriptors // 2)
        assert limits.connections >= limits.connections_per_peer >= 1
        assert limits.verified.connections >= 1
