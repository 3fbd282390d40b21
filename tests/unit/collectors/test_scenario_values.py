"""What simulated cards do at a time."""

import pytest

from collectors.scenario_values import Load, Window


@pytest.mark.parametrize(
    ("now_s", "covered"), [(119.9, False), (120, True), (149.9, True), (150, False), (720, True), (750, False)]
)
def test_a_window_returns_every_period(now_s: float, covered: bool) -> None:
    assert Window(600, 120, 30).covers(now_s) is covered


def test_a_window_may_reach_over_the_end_of_its_period() -> None:
    assert [Window(60, 50, 20).covers(now_s) for now_s in (9, 10, 49, 50, 69)] == [True, False, False, True, True]


@pytest.mark.parametrize(
    ("shape", "values"),
    [("constant", [90, 90, 90]), ("square", [90, 90, 10]), ("sawtooth", [10, 30, 50])],
)
def test_shapes_of_load(shape: str, values: list[float]) -> None:
    load = Load(shape, 10, 90, 100)
    assert [load.at(now_s, 0.0) for now_s in (0, 25, 50)] == pytest.approx(values)
