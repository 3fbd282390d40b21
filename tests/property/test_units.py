"""Units stay in range, and rounding never shows more used than there is."""

from hypothesis import given
from hypothesis import strategies as st

from devicemanager.model.accelerator import Card, Reading, Reason
from devicemanager.model.figures import BY_NAME, FIGURES
from devicemanager.rules import backoff, plausibility, units
from devicemanager.rules.identity import identify

sizes = st.integers(0, (1 << 63) - 1)


@given(sizes)
def test_rounding_up_adds_less_than_a_mib(size: int) -> None:
    assert 0 <= units.mib_ceil(size) * (1 << 20) - size < 1 << 20


@given(sizes, sizes)
def test_rounding_keeps_order_so_use_never_exceeds_capacity(one: int, other: int) -> None:
    used, total = sorted((one, other))
    assert units.mib_ceil(used) <= units.mib_ceil(total)


@given(sizes, sizes)
def test_a_share_is_a_percentage(one: int, other: int) -> None:
    used, total = sorted((one, other))
    share = units.percent_used(used, total)
    if total == 0:
        assert share is Reason.INVALID_DATA
    else:
        assert isinstance(share, int)
        assert 0 <= share <= 100
        assert share * total <= 100 * used < (share + 1) * total
        assert (share == 100) == (used == total)


@given(sizes)
def test_watts_lose_less_than_one(milliwatts: int) -> None:
    power = units.on_wire(BY_NAME["power_usage"], milliwatts)
    assert 0 <= milliwatts - power * 1000 < 1000


@given(st.floats(0.001, 86_400))
def test_a_period_is_never_shorter_than_it_is(period_s: float) -> None:
    assert 0 <= units.period_seconds(period_s) - period_s < 1
    assert units.period_seconds(period_s) >= 1


@given(sizes)
def test_millicores_are_never_fewer(nanocores: int) -> None:
    assert 0 <= units.millicores_ceil(nanocores) * 1_000_000 - nanocores < 1_000_000


@given(st.integers() | st.floats() | st.booleans() | st.none() | st.text(max_size=5))
def test_no_raw_value_leaves_its_range(raw: object) -> None:
    for spec in FIGURES:
        if spec.share_of is not None:
            continue  # computed, whatever a library says
        figure = plausibility.reading({spec.name: raw})[spec.name]
        if figure is not Reason.INVALID_DATA:
            assert figure == raw
            assert type(figure) is int
            assert spec.quantity.lowest <= figure <= spec.quantity.highest


@given(st.integers(-10, 10**9), st.floats(0.001, 86_400), st.booleans())
def test_back_off_is_bounded(failures: int, period_s: float, readable: bool) -> None:
    delay_s = backoff.delay_s(failures, period_s, readable=readable)
    assert 0 < delay_s <= 60
    assert delay_s <= backoff.delay_s(failures + 1, period_s, readable=readable)
    if readable:
        assert delay_s < 2 * period_s


ids = st.none() | st.sampled_from(["GPU-0", "GPU-1", "index:0", "index:1", "index:1'", "pci:0000:01:00.0"])
addresses = st.none() | st.sampled_from(["0000:01:00.0", "0000:02:00.0"])


@given(
    st.lists(st.tuples(ids, addresses), max_size=6),
    st.lists(st.builds(Card, st.integers(0, 5), ids, st.none(), addresses), max_size=6),
    st.sets(st.sampled_from(["0000:01:00.0", "0000:02:00.0", "0000:03:00.0"])),
)
def test_every_card_is_listed_once_under_an_id_of_its_own(
    said: list[tuple[str | None, str | None]], known: list[Card], bus: set[str]
) -> None:
    readings = [
        Reading.unreadable(Card(index, card_id, None, pci), Reason.LOST, "x")
        for index, (card_id, pci) in enumerate(said)
    ]
    result = identify(readings, known, bus)
    listed = [reading.card.id for reading in result]
    assert [reading.card.index for reading in result] == list(range(len(said)))
    assert None not in listed
    assert len(set(listed)) == len(listed)
    for before, after in zip(readings, result, strict=True):
        first = next(r for r in readings if r.card.id == before.card.id)
        if before.card.id is not None and first is before:
            assert after.card.id == before.card.id
