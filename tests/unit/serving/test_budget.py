"""Whatever the budget: all limits multiplied stay below it, and more memory admits more."""

from dataclasses import replace
from pathlib import Path

import pytest

from devicemanager.node.launcher import most_bytes
from devicemanager.serving.budget import (
    DEVICE_MANAGER,
    WORKER,
    Budget,
    BudgetError,
    Program,
    head_cost,
    listener_bytes,
    split,
)
from devicemanager.serving.limits import MIB, Limits, VerifiedLimits
from devicemanager.settings.node import ServeSettings
from devicemanager.transport.document_limits import documents_bytes
from tests.floods import chart_limit_bytes

THREAT_MODEL = Path(__file__).parents[3] / "docs" / "threat-model.md"

PROGRAMS = [
    pytest.param("deviceManager", DEVICE_MANAGER, id="device-manager"),
    pytest.param("worker", WORKER, id="worker"),
]


def total_bytes(program: Program, budget: Budget) -> int:
    """Everything at once."""
    own = program.at_rest_bytes + listener_bytes(budget.limits) + documents_bytes(budget.documents)
    return own + budget.children_bytes


def smallest_bytes(program: Program) -> int:
    """The smallest budget that works, as the refusal of a smaller one says."""
    with pytest.raises(BudgetError) as refused:
        split(program, 1 * MIB)
    return refused.value.smallest_bytes


@pytest.mark.parametrize("memory_mib", [97, 100, 128, 191, 192, 226, 256, 400, 512, 1000, 2048, 65_536])
@pytest.mark.parametrize(("part", "program"), PROGRAMS)
def test_all_limits_reached_at_once_stay_below_the_budget(part: str, program: Program, memory_mib: int) -> None:
    """Connections x (TLS, kernel buffers, held bytes, a head) + heads + answers + documents + children."""
    budget_bytes = max(memory_mib * MIB, smallest_bytes(program))

    assert total_bytes(program, split(program, budget_bytes)) <= budget_bytes * 31 / 32


@pytest.mark.parametrize(("part", "program"), PROGRAMS)
def test_the_charts_limit_admits_what_the_program_was_designed_for(part: str, program: Program) -> None:
    budget = split(program, chart_limit_bytes(part))

    assert (budget.limits, budget.documents) == (program.limits, program.documents)


@pytest.mark.parametrize(("part", "program"), PROGRAMS)
def test_more_memory_admits_more_and_less_admits_less(part: str, program: Program) -> None:
    smaller, larger = (split(program, size) for size in (smallest_bytes(program), program.designed_bytes * 3 // 2))

    assert smaller.limits.connections < program.limits.connections < larger.limits.connections
    assert smaller.limits.undelivered_bytes < program.limits.undelivered_bytes < larger.limits.undelivered_bytes
    assert smaller.limits.verified is not None
    assert program.limits.verified is not None
    assert larger.limits.verified is not None
    assert smaller.limits.verified.connections < program.limits.verified.connections
    assert program.limits.verified.connections < larger.limits.verified.connections
    if program.documents is not None and smaller.documents is not None and larger.documents is not None:
        assert smaller.documents.arriving_bytes < program.documents.arriving_bytes
        assert program.documents.summaries_bytes < larger.documents.summaries_bytes


@pytest.mark.parametrize(("part", "program"), PROGRAMS)
def test_the_smallest_budget_still_has_room_beside_probes_and_for_a_whole_head(part: str, program: Program) -> None:
    limits = split(program, smallest_bytes(program)).limits

    assert limits.connections >= limits.connections_per_peer > limits.reserved_for_probes
    assert limits.heads_cost_per_peer >= head_cost(limits.head_bytes, limits.headers)
    assert limits.verified is not None
    assert limits.verified.heads_cost >= head_cost(limits.verified.head_bytes, limits.verified.headers)


@pytest.mark.parametrize(("part", "program"), PROGRAMS)
def test_a_budget_below_the_smallest_is_refused_and_the_smallest_is_named(part: str, program: Program) -> None:
    smallest = smallest_bytes(program)

    split(program, smallest)
    with pytest.raises(BudgetError, match=rf"the smallest limit that works is {smallest // MIB}Mi"):
        split(program, smallest - 1 * MIB)


@pytest.mark.parametrize(("part", "program"), PROGRAMS)
def test_the_threat_model_shows_the_sum(part: str, program: Program) -> None:
    row = next(
        line for line in THREAT_MODEL.read_text(encoding="utf-8").splitlines() if line.startswith("| **sum**")
    )
    cell = row.split("|")[2 if part == "deviceManager" else 3]
    designed = split(program, program.designed_bytes)

    assert cell.split()[0] == f"{total_bytes(program, designed) / MIB:.0f}"


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
    assert listener_bytes(replace(Limits(), **more)) > listener_bytes(Limits())  # type: ignore[arg-type]  # one field each


def test_kernel_buffers_count_for_verified_connections_too() -> None:
    """Tenants make an API server open these, and read slowly through it."""
    verified, larger = (
        replace(Limits(verified=VerifiedLimits(1000, 1, 1, 1)), send_buffer=size * 1024) for size in (32, 33)
    )

    of_unverified = Limits().connections * 2 * 1024
    assert listener_bytes(larger) - listener_bytes(verified) == of_unverified + 1000 * 2 * 1024


def test_the_device_manager_was_designed_for_collector_processes_that_have_grown_to_their_limit() -> None:
    settings = ServeSettings.model_fields["collector_memory_limit"].default

    assert DEVICE_MANAGER.children_bytes == most_bytes(settings)


@pytest.mark.parametrize("memory_mib", [97, 128, 192, 256, 384, 480])
def test_a_small_limit_leaves_collectors_less_before_anybody_is_served_less(memory_mib: int) -> None:
    budget = split(DEVICE_MANAGER, memory_mib * MIB)

    assert 16 * MIB <= budget.children_bytes <= DEVICE_MANAGER.children_bytes
    if budget.children_bytes > 16 * MIB:
        assert budget.limits == DEVICE_MANAGER.limits


def test_a_head_of_many_short_lines_costs_more_than_its_bytes() -> None:
    assert head_cost(1000, 100) > head_cost(1000, 1) > 1000


def test_a_worker_refuses_reads_before_it_runs_out_of_connections() -> None:
    assert WORKER.limits.connections - WORKER.limits.reserved_for_probes >= 400  # the default of --max-reads
