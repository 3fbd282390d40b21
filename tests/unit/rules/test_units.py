"""Rounding: never more used than there is, never nothing where something is."""

import pytest

from devicemanager.model.accelerator import Figure, Reason
from devicemanager.model.figures import Figures
from devicemanager.rules import units

MIB = 1 << 20


@pytest.mark.parametrize(
    ("size_bytes", "expected"),
    [(0, 0), (1, 1), (MIB, 1), (MIB + 1, 2), (81559 * MIB, 81559), ((1 << 63) - 1, 1 << 43)],
)
def test_bytes_round_up_to_mib(size_bytes: int, expected: int) -> None:
    assert units.mib_ceil(size_bytes) == expected
    assert units.mib(size_bytes) == expected


@pytest.mark.parametrize(
    ("used", "total", "expected"),
    [
        pytest.param(0, 100, 0, id="idle"),
        pytest.param(1, 3, 33, id="truncated"),
        pytest.param(2, 3, 66, id="truncated, not rounded"),
        pytest.param(80 << 30, 80 << 30, 100, id="full"),
        pytest.param((1 << 53) - 1, 1 << 53, 99, id="exact where a float would say 100"),
        pytest.param(5, 0, Reason.INVALID_DATA, id="of nothing"),
        pytest.param(5, 4, Reason.INVALID_DATA, id="more than there is"),
        pytest.param(-1, 4, Reason.INVALID_DATA, id="negative"),
        pytest.param(Reason.LOST, Reason.UNSUPPORTED, Reason.LOST, id="the use's reason first"),
        pytest.param(5, Reason.UNSUPPORTED, Reason.UNSUPPORTED, id="no capacity"),
    ],
)
def test_share_in_use(used: Figure, total: Figure, expected: Figure) -> None:
    assert units.percent_used(used, total) == expected


def test_a_reading_is_published_in_the_units_of_the_wire() -> None:
    """Milliwatts truncate to watts, bytes round up to MiB, and the rest stays."""
    read = Figures(
        memory_total=80 << 30,
        memory_used=1,
        memory_utilization=0,
        compute_utilization=7,
        temperature=Reason.TIMEOUT,
        power_usage=699_999,
        power_limit=999,
        clock_reduction_reasons=("sw_power_cap",),
    )
    assert units.published(read) == Figures(
        memory_total=81920,
        memory_used=1,
        memory_utilization=0,
        compute_utilization=7,
        temperature=Reason.TIMEOUT,
        power_usage=699,
        power_limit=0,
        clock_reduction_reasons=("sw_power_cap",),
    )
    assert units.published(Figures(Reason.PERMISSION)) == Figures(Reason.PERMISSION)


@pytest.mark.parametrize(("period_s", "expected"), [(15.0, 15), (1.5, 2), (12.3, 13), (0.01, 1), (3600.0, 3600)])
def test_periods_round_up(period_s: float, expected: int) -> None:
    assert units.period_seconds(period_s) == expected


@pytest.mark.parametrize(("nanocores", "expected"), [(0, 0), (1, 1), (1_000_000, 1), (1_000_001, 2)])
def test_nanocores_round_up_to_millicores(nanocores: int, expected: int) -> None:
    assert units.millicores_ceil(nanocores) == expected
    assert units.millicores(nanocores) == expected
    assert units.millicores(Reason.NOT_YET) is Reason.NOT_YET


def test_an_absent_size_stays_absent() -> None:
    assert units.mib(Reason.TIMEOUT) is Reason.TIMEOUT
