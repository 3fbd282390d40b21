"""Cards that did not answer: when they are tried, and when they are trusted again."""

from devicemanager.model.accelerator import Card, Reason
from devicemanager.node.suspects import TRIAL_SAMPLES, Suspects
from devicemanager.rules.plausibility import CARDS_LIMIT


def accused(*indexes: int, period_s: float = 15.0) -> Suspects:
    suspects = Suspects(period_s)
    for index in indexes:
        assert suspects.blame(Card(index), Reason.TIMEOUT, "did not answer", now_s=100.0)
    return suspects


def test_a_suspect_is_skipped_and_listed_with_its_reason() -> None:
    suspects = accused(5, 3)
    assert [suspect.card.index for suspect in suspects.skipped] == [3, 5]
    assert suspects.skipped[0].reading.figures["power_usage"] is Reason.TIMEOUT
    assert suspects.skipped[0].reading.unhealthy_reason == "did not answer"


def test_it_is_tried_ever_less_often() -> None:
    suspects = accused(3)
    waits = []
    now_s = 100.0
    for _ in range(9):
        suspect = suspects.next
        assert suspect is not None
        waits.append(suspect.retry_at_s - now_s)
        now_s = suspect.retry_at_s
        assert not suspects.blame(suspect.card, Reason.TIMEOUT, "again", now_s)
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_the_one_whose_time_comes_first_is_tried_first() -> None:
    suspects = accused(1)
    suspects.blame(Card(0), Reason.TIMEOUT, "x", now_s=90.0)
    assert suspects.next is not None
    assert suspects.next.card.index == 0


def test_a_card_that_answered_alone_is_on_trial_and_trusted_after_a_few_samples() -> None:
    suspects = accused(3)
    (suspect,) = suspects.skipped
    assert not suspects.may_rejoin([3])
    suspects.let_back(suspect)
    assert suspects.may_rejoin([3])
    assert suspects.skipped == ()
    assert suspects.readings == (suspect.reading,)
    assert suspects.next is None
    for _ in range(TRIAL_SAMPLES - 1):
        assert suspects.answered([1, 2, 3]) == ()
    assert suspects.answered([1, 2, 3]) == (suspect,)
    assert not suspects


def test_a_relapse_counts_on() -> None:
    suspects = accused(3)
    suspects.let_back(suspects.skipped[0])
    suspects.answered([3])
    assert not suspects.blame(Card(3), Reason.TIMEOUT, "again", now_s=200.0)
    (suspect,) = suspects.skipped
    assert suspect.failures == 2
    assert suspect.retry_at_s == 202.0


def test_a_skipped_card_that_is_mentioned_is_not_trusted_by_that() -> None:
    suspects = accused(3)
    assert suspects.answered([3]) == ()
    assert len(suspects.skipped) == 1


def test_what_says_nothing_about_the_card_only_postpones() -> None:
    suspects = accused(3)
    (suspect,) = suspects.skipped
    suspects.postpone(suspect, now_s=101.0)
    assert suspect.failures == 1
    assert suspect.retry_at_s == 116.0


def test_when_indexes_mean_other_cards_all_are_read_again() -> None:
    suspects = accused(3)
    suspects.clear()
    assert suspects.may_rejoin([3])
    assert suspects.skipped == ()


def test_accusations_are_bounded() -> None:
    assert accused(*range(CARDS_LIMIT)).full
    assert not accused(*range(CARDS_LIMIT - 1)).full
