"""How long each line of a collector process may take."""

import pytest

from devicemanager.node.deadlines import Deadlines, Phase, card_deadline_s


def test_each_phase_has_its_deadline() -> None:
    deadlines = Deadlines(open_s=10.0, card_s=0.5, period_s=15.0)
    assert deadlines.deadline_s(Phase.OPENING) == 10.0
    assert deadlines.deadline_s(Phase.COUNTING) == 2.0
    assert deadlines.deadline_s(Phase.READING) == 0.5
    assert deadlines.deadline_s(Phase.RESTING) > 15.0


@pytest.mark.parametrize(
    ("open_s", "card_s", "unanswered_s", "expected"),
    [
        pytest.param(30.0, 2.0, 0.0, 10.0, id="ten seconds"),
        pytest.param(4.0, 2.0, 0.0, 4.0, id="no longer than the opening"),
        pytest.param(0.5, 2.0, 0.0, 2.0, id="no shorter than any other touch"),
        pytest.param(30.0, 2.0, 10.0, 10.0, id="after one in vain"),
        pytest.param(30.0, 2.0, 17.0, 3.0, id="what is left"),
        pytest.param(30.0, 2.0, 20.0, 0.5, id="after two in vain"),
        pytest.param(3.0, 2.0, 6.0, 2.0, id="after two short ones in vain"),
        pytest.param(30.0, 0.2, 60.0, 0.2, id="no longer than the usual time of a card"),
    ],
)
def test_first_touches_in_vain_do_not_add_up(
    open_s: float, card_s: float, unanswered_s: float, expected: float
) -> None:
    """Sixteen cards that never answer hold up a tick for half a minute at most."""
    assert Deadlines(open_s, card_s, 15.0).first_touch_deadline_s(unanswered_s) == expected


@pytest.mark.parametrize(
    ("period_s", "card_s", "unanswered_s", "expected"),
    [
        pytest.param(15.0, 2.0, 0.0, 2.0, id="none in vain"),
        pytest.param(15.0, 2.0, 13.0, 2.0, id="as long as a period was not waited in vain"),
        pytest.param(15.0, 2.0, 14.0, 1.0, id="what is left"),
        pytest.param(15.0, 2.0, 15.0, 0.5, id="a whole period in vain"),
        pytest.param(5.0, 2.0, 100.0, 0.5, id="and never less"),
        pytest.param(5.0, 4.0, 5.0, 3.0, id="but two cards in any case"),
        pytest.param(1.0, 0.3, 100.0, 0.3, id="unless a card has less"),
    ],
)
def test_cards_that_never_answer_share_a_period(
    period_s: float, card_s: float, unanswered_s: float, expected: float
) -> None:
    assert Deadlines(10.0, card_s, period_s).deadline_s(Phase.READING, unanswered_s) == expected


def test_sixteen_cards_that_hang_at_once_cost_a_sample_less_than_three_periods() -> None:
    """After which its figures would be stale as soon as they are published."""
    deadlines = Deadlines(open_s=30.0, card_s=2.0, period_s=5.0)
    waited_s = 0.0
    for _ in range(16):
        waited_s += deadlines.deadline_s(Phase.READING, waited_s)
    assert waited_s < 15.0


@pytest.mark.parametrize(
    ("period_s", "expected"), [(15.0, 2.0), (3.0, 1.5), (1.0, 0.5), (0.01, 0.5), (3600.0, 2.0)]
)
def test_a_card_gets_half_a_period(period_s: float, expected: float) -> None:
    assert card_deadline_s(period_s) == expected
