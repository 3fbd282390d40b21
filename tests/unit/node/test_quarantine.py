"""Cards that did not answer: when they are tried, and when they are trusted again."""

from devicemanager.model.accelerator import Card, Reason
from devicemanager.node.quarantine import PROBATION_SAMPLES, Quarantine
from devicemanager.rules.plausibility import CARDS_LIMIT


def accused(*indexes: int, period_s: float = 15.0) -> Quarantine:
    quarantine = Quarantine(period_s)
    for index in indexes:
        assert quarantine.blame(Card(index), Reason.TIMEOUT, "did not answer", now_s=100.0)
    return quarantine


def test_a_suspect_is_skipped_and_listed_with_its_reason() -> None:
    quarantine = accused(5, 3)
    assert [device.card.index for device in quarantine.skipped] == [3, 5]
    assert quarantine.skipped[0].reading.power_milliwatts is Reason.TIMEOUT
    assert quarantine.skipped[0].reading.unhealthy_reason == "did not answer"


def test_it_is_tried_ever_less_often() -> None:
    quarantine = accused(3)
    waits = []
    now_s = 100.0
    for _ in range(9):
        device = quarantine.next
        assert device is not None
        waits.append(device.retry_at_s - now_s)
        now_s = device.retry_at_s
        assert not quarantine.blame(device.card, Reason.TIMEOUT, "again", now_s)
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_the_one_whose_time_comes_first_is_tried_first() -> None:
    quarantine = accused(1)
    quarantine.blame(Card(0), Reason.TIMEOUT, "x", now_s=90.0)
    assert quarantine.next is not None
    assert quarantine.next.card.index == 0


def test_a_card_that_answered_alone_is_on_trial_and_trusted_after_a_few_samples() -> None:
    quarantine = accused(3)
    (device,) = quarantine.skipped
    assert not quarantine.may_rejoin([3])
    quarantine.readmit(device)
    assert quarantine.may_rejoin([3])
    assert quarantine.skipped == ()
    assert quarantine.readings == (device.reading,)
    assert quarantine.next is None
    for _ in range(PROBATION_SAMPLES - 1):
        assert quarantine.answered([1, 2, 3]) == ()
    assert quarantine.answered([1, 2, 3]) == (device,)
    assert not quarantine


def test_a_relapse_counts_on() -> None:
    quarantine = accused(3)
    quarantine.readmit(quarantine.skipped[0])
    quarantine.answered([3])
    assert not quarantine.blame(Card(3), Reason.TIMEOUT, "again", now_s=200.0)
    (device,) = quarantine.skipped
    assert device.failures == 2
    assert device.retry_at_s == 202.0


def test_a_skipped_card_that_is_mentioned_is_not_trusted_by_that() -> None:
    quarantine = accused(3)
    assert quarantine.answered([3]) == ()
    assert len(quarantine.skipped) == 1


def test_what_says_nothing_about_the_card_only_postpones() -> None:
    quarantine = accused(3)
    (device,) = quarantine.skipped
    quarantine.postpone(device, now_s=101.0)
    assert device.failures == 1
    assert device.retry_at_s == 116.0


def test_when_indexes_mean_other_cards_all_are_read_again() -> None:
    quarantine = accused(3)
    quarantine.clear()
    assert quarantine.may_rejoin([3])
    assert quarantine.skipped == ()


def test_accusations_are_bounded() -> None:
    assert accused(*range(CARDS_LIMIT)).full
    assert not accused(*range(CARDS_LIMIT - 1)).full
