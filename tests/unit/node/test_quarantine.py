"""Devices that did not answer: when they are probed, when they have recovered, and what a renumbering changes."""

from devicemanager.model.accelerator import Card, DeviceKey, Reason
from devicemanager.node.quarantine import PROBATION_SAMPLES, Quarantine
from devicemanager.rules.plausibility import CARDS_LIMIT
from devicemanager.rules.selection import Selection

PARTITION = Card(0, "MIG-1", parent="GPU-0", profile="1g.10gb")


def quarantined(*cards: Card | int, period_s: float = 15.0) -> Quarantine:
    quarantine = Quarantine(period_s)
    for card in cards:
        card = Card(card) if isinstance(card, int) else card
        assert quarantine.record_failure(card, Reason.TIMEOUT, "did not answer", now_s=100.0).failures == 1
    return quarantine


def test_a_quarantined_device_is_skipped_and_listed_with_its_reason() -> None:
    quarantine = quarantined(5, 3)
    assert [device.card.index for device in quarantine.skipped] == [3, 5]
    assert quarantine.skipped[0].reading.figures["power_usage"] is Reason.TIMEOUT
    assert quarantine.skipped[0].reading.unhealthy_reason == "did not answer"
    assert quarantine.selection == Selection(skip=frozenset({DeviceKey(index=3), DeviceKey(index=5)}))


def test_it_is_probed_ever_less_often() -> None:
    quarantine = quarantined(3)
    waits = []
    now_s = 100.0
    for failures in range(2, 11):
        device = quarantine.next
        assert device is not None
        waits.append(device.retry_at_s - now_s)
        now_s = device.retry_at_s
        assert quarantine.record_failure(device.card, Reason.TIMEOUT, "again", now_s).failures == failures
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_the_one_whose_time_comes_first_is_probed_first() -> None:
    quarantine = quarantined(1)
    quarantine.record_failure(Card(0), Reason.TIMEOUT, "x", now_s=90.0)
    assert quarantine.next is not None
    assert quarantine.next.card.index == 0


def test_a_card_that_answered_alone_is_on_probation_and_recovers_after_a_few_samples() -> None:
    quarantine = quarantined(3)
    (device,) = quarantine.skipped
    assert quarantine.probed(device, Card(3))
    assert quarantine.selection == Selection()
    assert quarantine.skipped == ()
    assert quarantine.readings == (device.reading,)
    assert quarantine.next is None
    cards = [Card(1), Card(2), Card(3)]
    for _ in range(PROBATION_SAMPLES - 1):
        assert quarantine.answered(cards) == ()
    assert quarantine.answered(cards) == (device,)
    assert not quarantine


def test_a_relapse_counts_on() -> None:
    quarantine = quarantined(3)
    quarantine.probed(quarantine.skipped[0], Card(3))
    quarantine.answered([Card(3)])
    quarantine.record_failure(Card(3), Reason.TIMEOUT, "again", now_s=200.0)
    (device,) = quarantine.skipped
    assert device.failures == 2
    assert device.retry_at_s == 202.0


def test_a_relapse_counts_on_whether_or_not_the_card_is_identified() -> None:
    quarantine = quarantined(Card(3, "GPU-3"))
    quarantine.probed(quarantine.skipped[0], Card(3, "GPU-3"))
    assert quarantine.record_failure(Card(3), Reason.TIMEOUT, "again, in a new process", now_s=200.0).failures == 2
    assert (
        quarantine.record_failure(Card(5, "GPU-3"), Reason.TIMEOUT, "again, elsewhere", now_s=300.0).failures == 3
    )
    assert [device.card.id for device in quarantine.skipped] == ["GPU-3"]


def test_a_skipped_card_that_is_mentioned_has_not_recovered_by_that() -> None:
    for card in (Card(3), Card(3, "GPU-3")):
        quarantine = quarantined(card)
        assert quarantine.answered([card]) == ()
        assert len(quarantine.skipped) == 1


def test_what_says_nothing_about_the_card_only_postpones() -> None:
    quarantine = quarantined(3)
    (device,) = quarantine.skipped
    quarantine.postpone(device, now_s=101.0)
    assert device.failures == 1
    assert device.retry_at_s == 116.0


def test_a_card_is_skipped_by_its_id_once_it_has_said_it() -> None:
    quarantine = quarantined(3)
    (device,) = quarantine.skipped
    assert quarantine.probed(device, Card(3, "GPU-3"))
    quarantine.record_failure(Card(3), Reason.TIMEOUT, "again", now_s=200.0)
    expected = Selection(skip=frozenset({DeviceKey(id="GPU-3")}), assumed={3: "GPU-3"})
    assert quarantine.selection == expected
    assert quarantine.skipped[0].alone == Selection(only=expected.skip, assumed=expected.assumed)


def test_a_renumbering_releases_cards_known_by_their_index_alone() -> None:
    quarantine = quarantined(3)
    quarantine.renumbered()
    assert not quarantine
    assert quarantine.selection == Selection()


def test_a_renumbering_leaves_a_card_skipped_by_its_id_and_by_no_index() -> None:
    quarantine = quarantined(Card(3, "GPU-3"))
    quarantine.renumbered()
    assert quarantine.selection == Selection(skip=frozenset({DeviceKey(id="GPU-3")}))
    assert Card(3) in quarantine.selection
    assert quarantine.readings == ()


def test_what_failed_after_a_renumbering_stays() -> None:
    quarantine = quarantined(3, Card(4, "GPU-4"))
    before = quarantine.selection
    quarantine.renumbered(before_s=100.0)
    assert quarantine.selection == before


def test_a_card_that_is_read_at_another_index_is_not_skipped_there() -> None:
    quarantine = quarantined(Card(3, "GPU-3"))
    assert quarantine.answered([Card(2, "GPU-3"), Card(3, "GPU-2")]) == ()
    assert quarantine.selection == Selection()
    for _ in range(PROBATION_SAMPLES - 2):
        assert quarantine.answered([Card(2, "GPU-3")]) == ()
    assert len(quarantine.answered([Card(2, "GPU-3")])) == 1


def test_a_probe_that_meets_another_card_shows_that_the_index_means_that_one_now() -> None:
    quarantine = quarantined(Card(3, "GPU-3"))
    assert not quarantine.probed(quarantine.skipped[0], Card(3, "GPU-9"))
    assert Card(3) in quarantine.selection
    assert Card(3, "GPU-3") not in quarantine.selection


def test_what_is_no_longer_counted_is_released() -> None:
    for card in (Card(3), Card(3, "GPU-3"), PARTITION):
        quarantine = quarantined(card)
        assert not quarantine.probed(quarantine.skipped[0], None)
        assert not quarantine


def test_a_probe_of_a_device_that_was_released_meanwhile_changes_nothing() -> None:
    quarantine = quarantined(3)
    (device,) = quarantine.skipped
    quarantine.clear()
    assert not quarantine.probed(device, Card(3, "GPU-3"))
    assert not quarantine


def test_another_card_at_the_index_of_a_quarantined_one_takes_it() -> None:
    quarantine = quarantined(Card(3, "GPU-3"), Card(3, "GPU-9"))
    assert quarantine.selection.assumed == {3: "GPU-9"}
    assert Card(1, "GPU-3") not in quarantine.selection


def test_a_partition_is_skipped_by_its_card_and_its_id() -> None:
    quarantine = quarantined(PARTITION)
    assert quarantine.selection == Selection(skip=frozenset({DeviceKey(id="MIG-1", parent="GPU-0")}))
    (device,) = quarantine.skipped
    assert device.alone == Selection(only=frozenset({PARTITION.key}), assumed={0: "GPU-0"})
    assert [reading.card for reading in quarantine.readings] == [PARTITION]


def test_a_partition_stays_skipped_after_a_renumbering_and_is_found_on_its_card() -> None:
    quarantine = quarantined(PARTITION)
    quarantine.renumbered()
    assert PARTITION not in quarantine.selection
    quarantine.answered([Card(2, "GPU-0")])
    assert quarantine.skipped[0].alone.assumed == {2: "GPU-0"}
    assert [reading.card.key for reading in quarantine.readings] == [PARTITION.key]


def test_a_partition_recovers_like_a_card() -> None:
    quarantine = quarantined(PARTITION)
    (device,) = quarantine.skipped
    assert quarantine.probed(device, PARTITION)
    for _ in range(PROBATION_SAMPLES - 1):
        assert quarantine.answered([Card(0, "GPU-0"), PARTITION]) == ()
    assert quarantine.answered([Card(0, "GPU-0"), PARTITION]) == (device,)


def test_a_partition_is_not_probed_while_its_card_does_not_answer() -> None:
    quarantine = quarantined(PARTITION, Card(0, "GPU-0"))
    assert quarantine.next is not None
    assert quarantine.next.card == Card(0, "GPU-0")


def test_a_partition_that_fails_leaves_its_card_alone() -> None:
    quarantine = quarantined(Card(0, "GPU-0"))
    quarantine.record_failure(PARTITION, Reason.TIMEOUT, "x", now_s=100.0)
    assert Card(0, "GPU-0") not in quarantine.selection
    assert len(quarantine.skipped) == 2


def test_quarantine_is_bounded() -> None:
    assert quarantined(*range(CARDS_LIMIT)).full
    assert not quarantined(*range(CARDS_LIMIT - 1)).full


def test_a_card_that_hangs_before_its_identity_is_read_has_every_candidate_probed() -> None:
    quarantine = quarantined(Card(3, "GPU-3"), 5)
    quarantine.record_failure(Card(1), Reason.TIMEOUT, "x", now_s=100.5)
    due = [device.card for device in quarantine.skipped if device.retry_at_s <= 100.5]
    assert due == [Card(3, "GPU-3")]


def test_a_card_that_was_met_under_another_key_is_in_quarantine_once() -> None:
    quarantine = quarantined(Card(3, "GPU-3"))
    quarantine.renumbered()
    quarantine.record_failure(Card(0), Reason.TIMEOUT, "somebody", now_s=100.0)
    (unknown,) = [device for device in quarantine.skipped if device.card.id is None]
    assert quarantine.probed(unknown, Card(0, "GPU-3"))
    assert quarantine.selection == Selection()
    quarantine.record_failure(Card(0, "GPU-3"), Reason.TIMEOUT, "again", now_s=200.0)
    assert [device.card for device in quarantine.skipped] == [Card(0, "GPU-3")]
