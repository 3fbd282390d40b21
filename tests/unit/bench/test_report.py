"""The benches are not run here, but each can be, and what they print is right."""

import importlib
import io
import math

import pytest

from tests.bench.__main__ import BENCHES
from tests.bench.measure import interleaved, percentile
from tests.bench.report import Budget, Report, Spread, figure, ratios

PROGRAMS = ("composed", "cluster", "rivals.minimal_server", "rivals.peer_samples")


@pytest.mark.parametrize("name", BENCHES)
def test_every_bench_can_be_run_by_its_name(name: str) -> None:
    assert callable(importlib.import_module(f"tests.bench.{name}").run)


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_of_the_bench_can_be_loaded(name: str) -> None:
    assert callable(importlib.import_module(f"tests.bench.{name}").main)


def test_a_report_is_markdown_with_each_result_and_remembers_what_was_missed() -> None:
    out = io.StringIO()
    report = Report(out)
    report.section("Title", "How it was measured.")
    report.table(("what", "ms"), [("a|b", Spread.of([3.0, 1.0, 2.0])), ("n", 12345)])
    report.budgets(
        Budget("in time: ms", Spread.of([1.0, 2.0, 9.0]), at_most=2),
        Budget("enough", 1499.0, at_least=1500),
    )
    report.note("Done.")

    assert out.getvalue() == (
        "\n## Title\n\nHow it was measured.\n"
        "\n| what | ms |\n|---|---|\n"
        "| a\\|b | 1.00 / 2.00 / 3.00 |\n| n | 12,345 |\n"
        "\n| budget | limit | measured | result |\n|---|---|---|---|\n"
        "| in time: ms | at most 2 | 1.00 / 2.00 / 9.00 | ok |\n"
        "| enough | at least 1,500 | 1,499 | **over** |\n"
        "\nDone.\n"
    )
    assert report.missed == ["enough"]


@pytest.mark.parametrize("budget", [Budget("x", math.nan, at_most=1), Budget("x", math.nan, at_least=1)])
def test_what_is_no_number_keeps_no_budget(budget: Budget) -> None:
    assert not budget.kept


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.000"),
        (0.0444, "0.044"),
        (1.234, "1.23"),
        (12.34, "12.3"),
        (1234.5, "1,234"),
        (7, "7"),
        (-0.5, "-0.500"),
    ],
)
def test_figures_have_three_digits(value: float, text: str) -> None:
    assert figure(value) == text


def test_ratios_are_taken_round_by_round() -> None:
    assert ratios([2.0, 30.0, 8.0], [1.0, 10.0, 2.0]) == Spread(2.0, 3.0, 4.0)


def test_rounds_are_interleaved() -> None:
    order: list[str] = []

    def subject(name: str) -> float:
        order.append(name)
        return float(len(order))

    found = interleaved({"a": lambda: subject("a"), "b": lambda: subject("b")}, 2)

    assert order == ["a", "b", "a", "b"]
    assert found == {"a": [1.0, 3.0], "b": [2.0, 4.0]}


def test_a_percentile_is_a_value_that_was_measured() -> None:
    assert percentile(range(1, 101), 99) == 100
    assert percentile([5.0], 99) == 5.0
