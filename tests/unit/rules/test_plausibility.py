"""What a vendor library may say, and what becomes of it when it should not have."""

import math

import pytest

from devicemanager.model.accelerator import Figure, Reason
from devicemanager.rules import plausibility

GIB = 1 << 30
INVALID = Reason.INVALID_DATA


@pytest.mark.parametrize(
    ("total", "used", "expected"),
    [
        pytest.param(80 * GIB, 20 * GIB, (80 * GIB, 20 * GIB), id="plain"),
        pytest.param(80 * GIB, 0, (80 * GIB, 0), id="a measured zero is a figure"),
        pytest.param(80 * GIB, 80 * GIB, (80 * GIB, 80 * GIB), id="full"),
        pytest.param(80 * GIB, 80 * GIB + 1, (80 * GIB, INVALID), id="more used than there is"),
        pytest.param(0, 0, (INVALID, INVALID), id="no capacity"),
        pytest.param(-1, 5, (INVALID, INVALID), id="negative capacity makes the use doubtful"),
        pytest.param(80 * GIB, -1, (80 * GIB, INVALID), id="negative use"),
        pytest.param((1 << 64) - 1, GIB, (INVALID, INVALID), id="all ones, 64 bits"),
        pytest.param(80 * GIB, (1 << 64) - 1, (80 * GIB, INVALID), id="all ones as use"),
        pytest.param(80 * GIB, (1 << 32) - 1, (80 * GIB, INVALID), id="all ones, 32 bits"),
        pytest.param(Reason.UNSUPPORTED, GIB, (Reason.UNSUPPORTED, GIB), id="use without capacity"),
        pytest.param(Reason.TIMEOUT, Reason.LOST, (Reason.TIMEOUT, Reason.LOST), id="reasons pass unchanged"),
        pytest.param(0, Reason.PERMISSION, (INVALID, Reason.PERMISSION), id="a known reason wins over doubt"),
        pytest.param(80.0 * GIB, True, (INVALID, INVALID), id="neither float nor bool is an integer"),
        pytest.param(None, "12", (INVALID, INVALID), id="neither null nor text is a number"),
    ],
)
def test_memory(total: object, used: object, expected: tuple[Figure, Figure]) -> None:
    assert plausibility.bytes_pair(total, used) == expected


@pytest.mark.parametrize(
    ("raw", "expected"),
    [(0, 0), (100, 100), (101, INVALID), (-1, INVALID), (0xFFFFFFFF, INVALID), (Reason.NOT_YET, Reason.NOT_YET)],
)
def test_percent(raw: object, expected: Figure) -> None:
    assert plausibility.percent(raw) == expected


@pytest.mark.parametrize(
    ("raw", "expected"),
    [(0, 0), (150, 150), (151, INVALID), (-1, INVALID), (3800, INVALID), (Reason.LOST, Reason.LOST)],
)
def test_temperature(raw: object, expected: Figure) -> None:
    assert plausibility.celsius(raw) == expected


@pytest.mark.parametrize(
    ("raw", "expected"),
    [(0, 0), (700_000, 700_000), (71_000_000, INVALID), (-5, INVALID), (Reason.PERMISSION, Reason.PERMISSION)],
)
def test_power(raw: object, expected: Figure) -> None:
    assert plausibility.milliwatts(raw) == expected


@pytest.mark.parametrize("raw", [math.nan, math.inf, -math.inf, 12.0, True, False, None, "12", [], {}])
def test_what_is_no_integer_is_no_figure(raw: object) -> None:
    for rule in (plausibility.percent, plausibility.celsius, plausibility.milliwatts):
        assert rule(raw) is INVALID
