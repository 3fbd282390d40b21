"""When the next sample is due."""

import pytest

from collectors.pacing import next_due_s


@pytest.mark.parametrize(
    ("now_s", "expected_s"),
    [
        pytest.param(100.2, 115.0, id="quick"),
        pytest.param(114.9, 115.0, id="just in time"),
        pytest.param(115.0, 115.0, id="exactly one period"),
        pytest.param(116.0, 130.0, id="one tick missed: the grid stays"),
        pytest.param(191.0, 205.0, id="six ticks missed and none caught up on"),
    ],
)
def test_next_due(now_s: float, expected_s: float) -> None:
    assert next_due_s(100.0, now_s, 15.0) == pytest.approx(expected_s)
