"""Whatever a library counts, in whatever order and with whatever calls failing, no figure is under a wrong id."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from devicemanager.model.accelerator import Card, Reading, Reason
from devicemanager.node.tick import assemble, remember
from devicemanager.rules.device_ids import is_provisional
from devicemanager.rules.identity import NO_ORDER
from tests import devices

BOARDS = 4
"""Boards that exist; each has an id, an address and a use of memory of its own."""


@dataclass(frozen=True)
class Seen:
    """How the library shows one board in one sample: which calls answer, and whether it is touched at all."""

    board: int
    says_id: bool
    says_address: bool
    gives_figures: bool
    touched: bool


@dataclass(frozen=True)
class Shown:
    """One sample of the library: its boards in its order, what the bus shows, and whether it came to its end."""

    boards: Sequence[Seen]
    bus: Sequence[int]
    complete: bool


def card_id(board: int) -> str:
    return f"GPU-{board}"


def address(board: int) -> str:
    return f"0000:0{board}:00.0"


def reading(index: int, seen: Seen) -> Reading:
    card = Card(
        index,
        card_id(seen.board) if seen.says_id else None,
        None,
        address(seen.board) if seen.says_address else None,
    )
    if seen.gives_figures:
        return devices.reading(card, memory_used=seen.board + 1)
    return Reading.unreadable(card, Reason.TRANSIENT_DRIVER_ERROR, "answers nothing")


boards = st.permutations(range(BOARDS)).flatmap(lambda order: st.integers(1, BOARDS).map(lambda n: order[:n]))


@st.composite
def samples(draw: st.DrawFn) -> Shown:
    flags = st.tuples(st.booleans(), st.booleans(), st.booleans(), st.booleans())
    seen = [Seen(board, *draw(flags)) for board in draw(boards)]
    return Shown(seen, draw(st.just([]) | boards), draw(st.booleans()))


def publish(
    shown: Shown, known: Sequence[Card], order: Mapping[int, str], count: int | None
) -> tuple[Reading, ...]:
    """As the record of a device manager does it."""
    read = {i: reading(i, seen) for i, seen in enumerate(shown.boards) if seen.touched}
    hung = [
        Reading.unreadable(Card(i), Reason.TIMEOUT, "did not answer")
        for i, seen in enumerate(shown.boards)
        if not seen.touched
    ]
    return assemble(
        read,
        hung,
        count=len(shown.boards) if shown.complete else None,
        known=known,
        bus_addresses=[address(board) for board in shown.bus],
        order=order if count in (None, len(shown.boards)) else NO_ORDER,
    ).readings


@given(st.lists(samples(), min_size=1, max_size=6))
def test_no_figure_is_ever_published_under_another_cards_id(life: Sequence[Shown]) -> None:
    """An index is never an identity, in a process that goes on and in one that was started anew."""
    known: tuple[Card, ...] = ()
    order: Mapping[int, str] = NO_ORDER
    count: int | None = None
    for shown in life:
        said = {card_id(s.board) for s in shown.boards if s.touched and (s.says_id or s.says_address)}
        listing = publish(shown, known, order, count)
        ids = [one.card.id for one in listing]
        assert len(set(ids)) == len(ids)
        assert {card.id for card in known} <= set(ids), "a card that is known stays listed"
        for one in listing:
            assert one.card.id is not None
            if one.answered and not is_provisional(one.card.id):
                assert one.card.id in said
                assert one.card.id == card_id(int(one.figures.number("memory_used")) - 1)
            if not one.answered:
                assert one.unhealthy_reason is not None
        shown_figures = {one.figures["memory_used"] for one in listing if one.answered}
        assert shown_figures == {s.board + 1 for s in shown.boards if s.touched and s.gives_figures}
        known = remember(listing)
        order = {i: str(one.card.id) for i, one in enumerate(listing[: len(shown.boards)])}
        order = {i: name for i, name in order.items() if not is_provisional(name)}
        count = len(shown.boards) if shown.complete else count
