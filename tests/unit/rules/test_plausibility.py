"""What a vendor library may say, and what becomes of it when it should not have."""

import math

import pytest

from devicemanager.model.accelerator import Figure, Reason
from devicemanager.model.figures import FIGURES, Figures
from devicemanager.rules import plausibility, units

GIB = 1 << 30
INVALID = Reason.INVALID_DATA


def one(name: str, raw: object) -> object:
    return plausibility.reading({name: raw})[name]


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
    found = plausibility.reading({"memory_total": total, "memory_used": used})
    assert (found["memory_total"], found["memory_used"]) == expected


@pytest.mark.parametrize(
    ("raw", "expected"),
    [(0, 0), (100, 100), (101, INVALID), (-1, INVALID), (0xFFFFFFFF, INVALID), (Reason.NOT_YET, Reason.NOT_YET)],
)
def test_percent(raw: object, expected: Figure) -> None:
    assert one("compute_utilization", raw) == expected


@pytest.mark.parametrize(
    ("raw", "expected"),
    [(0, 0), (150, 150), (151, INVALID), (-1, INVALID), (3800, INVALID), (Reason.LOST, Reason.LOST)],
)
def test_temperature(raw: object, expected: Figure) -> None:
    assert one("temperature", raw) == expected


@pytest.mark.parametrize(
    ("raw", "expected"),
    [(0, 0), (700_000, 700_000), (71_000_000, INVALID), (-5, INVALID), (Reason.PERMISSION, Reason.PERMISSION)],
)
def test_power(raw: object, expected: Figure) -> None:
    assert one("power_usage", raw) == expected


@pytest.mark.parametrize(
    ("power", "limit", "expected"),
    [
        pytest.param(3_700_000, 300_000, INVALID, id="twelve times the limit"),
        pytest.param(600_000, 300_000, 600_000, id="a moment above the limit"),
        pytest.param(600_001, 300_000, INVALID, id="just implausible"),
        pytest.param(0, 300_000, 0, id="a measured zero"),
        pytest.param(3_700_000, Reason.UNSUPPORTED, 3_700_000, id="no limit known"),
        pytest.param(3_700_000, 0, 3_700_000, id="no card has a limit of nothing, so it limits nothing"),
        pytest.param(3_700_000, 0xFFFF_FFFF, 3_700_000, id="a limit that is none"),
        pytest.param(Reason.LOST, 300_000, Reason.LOST, id="reasons pass unchanged"),
        pytest.param(-1, 300_000, INVALID, id="negative"),
    ],
)
def test_power_is_held_against_the_limit_of_the_card_itself(power: object, limit: object, expected: Figure) -> None:
    found = plausibility.reading({"power_usage": power, "power_limit": limit})
    assert found["power_usage"] == expected
    if limit in (0, 0xFFFF_FFFF):
        assert found["power_limit"] is INVALID


@pytest.mark.parametrize(("power", "expected"), [(601, 601), (602, INVALID), (3_700, INVALID)])
def test_a_published_limit_may_have_lost_its_fraction(power: int, expected: Figure) -> None:
    """600.9 W and 300.5 W are published as 600 and 300; so are 601.0 and 300.5."""
    assert plausibility.published({"power_usage": power, "power_limit": 300})["power_usage"] == expected


@pytest.mark.parametrize("raw", [math.nan, math.inf, -math.inf, 12.0, True, False, None, "12", [], {}])
def test_what_is_no_integer_is_no_figure(raw: object) -> None:
    for spec in FIGURES:
        if spec.line_key and not spec.quantity.names:
            assert one(spec.name, raw) is INVALID


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ([], ()),
        (["sw_power_cap", "gpu_idle"], ("sw_power_cap", "gpu_idle")),
        (("a",), ("a",)),
        (["a", "a"], INVALID),
        (["A"], INVALID),
        (["a\n"], INVALID),
        ([""], INVALID),
        ([5], INVALID),
        ([["a"]], INVALID),
        ([f"a{n}" for n in range(33)], INVALID),
        ("sw_power_cap", INVALID),
        (0, INVALID),
        ({}, INVALID),
        (None, INVALID),
        (Reason.UNSUPPORTED, Reason.UNSUPPORTED),
    ],
)
def test_names(raw: object, expected: object) -> None:
    assert one("clock_reduction_reasons", raw) == expected


def test_what_another_program_published_is_held_to_the_same_ranges_in_its_units() -> None:
    most = {spec.name: units.on_wire(spec, spec.quantity.highest) for spec in FIGURES if not spec.quantity.names}
    assert plausibility.published(most) == Figures(**most)
    for name, highest in most.items():
        assert plausibility.published({name: highest + 1})[name] is INVALID
    assert plausibility.published({"memory_total": 0})["memory_total"] is INVALID


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (0, 0),
        (1 << 33, 1 << 33),
        (0x7FFF_FFFF, INVALID),
        (0xFFFF_FFFF, INVALID),
        ((1 << 33) + 1, INVALID),
        ((1 << 63) - 1, INVALID),
        ((1 << 64) - 1, INVALID),
        (-1, INVALID),
        (True, INVALID),
        (1.0, INVALID),
        ("1", INVALID),
        (None, INVALID),
        (Reason.PERMISSION, Reason.PERMISSION),
    ],
)
def test_a_number_that_is_no_figure(raw: object, expected: object) -> None:
    assert plausibility.number(raw, 1 << 33) == expected


@pytest.mark.parametrize(
    ("total", "used", "capacity", "expected"),
    [
        pytest.param(10 * GIB, 5 * GIB, 80 * GIB, (10 * GIB, 5 * GIB, 50), id="plain"),
        pytest.param(80 * GIB, 80 * GIB, 80 * GIB, (80 * GIB, 80 * GIB, 100), id="the whole card"),
        pytest.param(81 * GIB, 5 * GIB, 80 * GIB, (INVALID, INVALID, INVALID), id="larger than its card"),
        pytest.param(81 * GIB, Reason.LOST, 80 * GIB, (INVALID, Reason.LOST, Reason.LOST), id="reasons pass"),
        pytest.param(
            Reason.LOST, 81 * GIB, 80 * GIB, (Reason.LOST, INVALID, INVALID), id="uses more than its card has"
        ),
        pytest.param(81 * GIB, 0, Reason.PERMISSION, (81 * GIB, 0, 0), id="nobody knows how large the card is"),
    ],
)
def test_what_lies_on_a_card_is_not_larger_than_it(
    total: object, used: object, capacity: object, expected: tuple[object, ...]
) -> None:
    part = plausibility.reading({"memory_total": total, "memory_used": used, "compute_utilization": 7})
    found = plausibility.on_card(part, plausibility.reading({"memory_total": capacity}))
    assert (found["memory_total"], found["memory_used"]) == expected[:2]
    if not isinstance(part["memory_utilization"], Reason):
        assert found["memory_utilization"] == expected[2]
    assert found["compute_utilization"] == 7


def test_a_share_of_what_is_not_plausible_is_not_plausible() -> None:
    found = plausibility.published({"memory_total": 4, "memory_used": 5, "memory_utilization": 25})
    assert found["memory_utilization"] is INVALID
