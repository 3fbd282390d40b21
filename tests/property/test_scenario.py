"""Whatever a scenario file holds, it is a scenario or a named mistake; whatever a scenario shows is plausible."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from collectors.scenario import parse_scenario
from collectors.scenario_values import Load, Span, Window
from collectors.simulated import SimulatedCollector
from devicemanager.errors import CollectorError
from devicemanager.model.figures import BY_NAME
from devicemanager.rules import plausibility

KEYS = st.sampled_from(
    (
        *("count", "card", "cards", "fail", "manufacturer", "id", "index", "name", "memory_mib", "load", "shape"),
        *("low", "high", "period", "absent", "power", "lost", "hang", "unhealthy", "reason", "every", "at", "for"),
        *(
            "state",
            "idle",
            "full",
            "power_watts",
            "temperature_celsius",
            "memory_used_percent",
            "partitions",
            "profile",
        ),
    )
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-3, 40)
    | st.integers()
    | st.floats()
    | st.text(max_size=6)
    | st.sampled_from(("5s", "1m", "sine", "SIM-1", "lost", "failed", "simulated"))
)
DOCUMENTS = st.dictionaries(
    KEYS,
    st.recursive(
        SCALARS,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.text(max_size=3), inner, max_size=4),
        max_leaves=12,
    ),
    max_size=5,
)


@given(DOCUMENTS)
def test_any_document_is_a_scenario_or_a_mistake(document: dict[str, Any]) -> None:
    try:
        scenario = parse_scenario(document, "simulated")
    except CollectorError:
        return
    assert len({card.id for card in scenario.cards}) == len(scenario.cards)
    assert all(card.id.startswith("SIM-") for card in scenario.cards)


@given(now_s=st.floats(0, 4e9), manufacturer=st.sampled_from(("simulated", "simulated-x")))
def test_what_simulated_cards_show_is_plausible(now_s: float, manufacturer: str) -> None:
    collector = SimulatedCollector(manufacturer, now_s=lambda: now_s)
    collector.open()
    for card in collector.cards():
        reading = collector.read(card)
        raw = {name: reading.figures[name] for name in BY_NAME}
        assert plausibility.reading(raw) == reading.figures
        assert set(reading.figures.reasons) == set()


@given(
    shape=st.sampled_from(("constant", "sine", "square", "sawtooth")),
    low=st.floats(0, 100),
    high=st.floats(0, 100),
    period_s=st.floats(0.001, 1e6),
    now_s=st.floats(0, 4e9),
    phase=st.floats(0, 1),
)
def test_load_stays_between_its_bounds(
    shape: str, low: float, high: float, period_s: float, now_s: float, phase: float
) -> None:
    percent = Load(shape, low, high, period_s).at(now_s, phase)
    assert min(low, high) - 1e-9 <= percent <= max(low, high) + 1e-9
    assert min(low, high) - 1e-9 <= Span(low, high).at(percent) <= max(low, high) + 1e-9


@given(at_s=st.integers(0, 1000), length_s=st.integers(1, 100), now_s=st.integers(0, 10**9))
def test_a_window_covers_its_share_of_every_period(at_s: int, length_s: int, now_s: int) -> None:
    window = Window(100, at_s, length_s)
    assert sum(window.covers(now_s + second) for second in range(100)) == length_s
