"""The annotation claims no device that is known to be another pod's."""

from dataclasses import replace

import pytest

from devicemanager.model.allocation import AllocatedCard, Allocation, Mode
from devicemanager.rules.claims import UNKNOWN, Holders, confirmed

OWN, FOREIGN = "pod-uid", "another-uid"
CARD = AllocatedCard("nvidia", "GPU-a", 0, Mode.EXCLUSIVE, "main")
PARTITION = replace(CARD, mode=Mode.PARTITIONED, partition_id="MIG-a")


@pytest.mark.parametrize(
    ("card", "holders", "counts"),
    [
        (CARD, UNKNOWN, True),
        (CARD, {("nvidia", "GPU-a"): {OWN}}, True),
        (CARD, {("nvidia", "GPU-a"): {FOREIGN}}, False),
        (CARD, {("nvidia", "GPU-a"): ()}, False),
        (CARD, {("nvidia", "GPU-a"): (FOREIGN, OWN)}, True),
        (CARD, {("nvidia", "GPU-b"): {FOREIGN}}, True),
        (CARD, {("amd", "GPU-a"): {FOREIGN}}, True),
        (replace(CARD, mode=Mode.SLICED), {("nvidia", "GPU-a"): {FOREIGN}}, False),
        (PARTITION, {("nvidia", "MIG-a"): {OWN}}, True),
        (PARTITION, {("nvidia", "MIG-a"): {FOREIGN}}, False),
        (PARTITION, {("nvidia", "MIG-a"): {OWN}, ("nvidia", "GPU-a"): {FOREIGN}}, True),
        (PARTITION, {("nvidia", "MIG-a"): {FOREIGN}, ("nvidia", "GPU-a"): {OWN}}, False),
        (PARTITION, {("nvidia", "GPU-a"): {FOREIGN}}, False),
    ],
    ids=str,
)
def test_of_a_device_whose_holders_are_known_only_what_both_say_counts(
    card: AllocatedCard, holders: Holders, counts: bool
) -> None:
    found = confirmed(Allocation((card,)), OWN, holders)
    assert found.cards == ((card,) if counts else ())
    assert (found.problem is None) == counts


def test_where_nothing_is_known_the_annotation_stays_as_it_is() -> None:
    allocation = Allocation((CARD, PARTITION), "container 'x': no list")
    assert confirmed(allocation, OWN) is allocation


def test_what_is_not_confirmed_is_counted_beside_what_was_wrong_before_and_named_nowhere() -> None:
    allocation = Allocation((CARD, replace(CARD, id="GPU-b"), PARTITION), "container 'x': no list")
    found = confirmed(allocation, OWN, {("nvidia", "GPU-a"): {FOREIGN}})
    assert [card.id for card in found.cards] == ["GPU-b"]
    assert found.problem == (
        "container 'x': no list; "
        "2 of the devices that the annotation names were not given to this pod by the kubelet"
    )
