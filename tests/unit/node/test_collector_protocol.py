"""The order in which a collector process may speak."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from devicemanager.errors import DocumentError
from devicemanager.model.accelerator import Card, CollectorState, DeviceKey, Reading, Reason
from devicemanager.node.collector_protocol import CollectorProtocol
from devicemanager.node.deadlines import Phase
from devicemanager.rules.plausibility import CARDS_LIMIT, PARTITIONS_LIMIT
from devicemanager.rules.selection import Selection
from devicemanager.wire.collector_lines import Announced, Begin, End, Failed, Hello, Line, Read
from tests import devices


def announced(index: int) -> Announced:
    return Announced(Card(index))


def read(index: int) -> Read:
    return Read(Reading.unreadable(Card(index, "GPU"), Reason.LOST, "gone"))


HELLO = Hello("nvidia")
BEGIN = Begin(100.0, datetime(2026, 8, 12, 9, 0, tzinfo=UTC))
NOW_S = 200.0


def after(*lines: Line, selection: Selection | None = None) -> CollectorProtocol:
    protocol = CollectorProtocol("nvidia", selection or Selection(), started_s=90.0)
    for line in lines:
        protocol.accept(line, NOW_S)
    return protocol


def test_two_samples() -> None:
    one = (BEGIN, announced(0), read(0), announced(1), read(1), End(2))
    protocol = after(HELLO, *one, *one)
    assert protocol.phase is Phase.RESTING
    assert protocol.announced is None


def test_the_announced_card_is_the_one_being_read() -> None:
    protocol = after(HELLO, BEGIN, announced(4))
    assert protocol.phase is Phase.READING
    assert protocol.announced == Card(4)


def test_failing_is_always_in_order() -> None:
    failed = Failed(CollectorState.FAILED, "x")
    for lines in ((), (HELLO,), (HELLO, BEGIN), (HELLO, BEGIN, announced(0)), (HELLO, BEGIN, End(0))):
        after(*lines, failed)


@pytest.mark.parametrize(
    "lines",
    [
        (BEGIN,),
        (End(0),),
        (HELLO, HELLO),
        (HELLO, announced(0)),
        (HELLO, End(0)),
        (HELLO, BEGIN, BEGIN),
        (HELLO, BEGIN, read(0)),
        (HELLO, BEGIN, announced(0), announced(1)),
        (HELLO, BEGIN, announced(0), read(1)),
        (HELLO, BEGIN, announced(0), End(1)),
        (HELLO, BEGIN, announced(0), read(0), read(0)),
        (HELLO, BEGIN, announced(0), read(0), announced(0)),
        (HELLO, BEGIN, End(1), End(1)),
        (Hello("amd"),),
    ],
)
def test_anything_out_of_order_is_refused(lines: tuple[Line, ...]) -> None:
    after(*lines[:-1])
    with pytest.raises(DocumentError):
        after(*lines)


def test_a_skipped_card_must_not_be_touched() -> None:
    selection = Selection(skip=frozenset({DeviceKey(index=3)}))
    with pytest.raises(DocumentError, match="card 3"):
        after(HELLO, BEGIN, announced(3), selection=selection)


def test_a_skipped_card_is_skipped_by_its_id_and_by_its_index_only_until_it_is_known() -> None:
    selection = Selection(skip=frozenset({DeviceKey(id="GPU-3")}), assumed={3: "GPU-3"})
    for touched in (announced(3), Announced(Card(1, "GPU-3"))):
        with pytest.raises(DocumentError, match="which it should not touch"):
            after(HELLO, BEGIN, touched, selection=selection)
    for touched in (announced(1), Announced(Card(3, "GPU-1"))):
        assert after(HELLO, BEGIN, touched, selection=selection).announced == touched.card


def partition(card_id: str = "GPU", own: str = "MIG-1", index: int = 0) -> Card:
    return Card(index, own, parent=card_id, profile="1g.10gb")


LISTED = Read(Reading.unreadable(Card(0, "GPU"), Reason.PARTITIONED, "x"), (partition(), partition(own="MIG-2")))


def partition_read(card: Card) -> Read:
    return Read(devices.partition(card))


def test_a_partition_is_announced_and_read_after_its_card() -> None:
    lines: list[Line] = [HELLO, BEGIN, announced(0), LISTED]
    for own in ("MIG-1", "MIG-2"):
        lines += [Announced(partition(own=own)), partition_read(partition(own=own))]
    assert after(*lines, announced(1)).announced == Card(1)


def test_a_partition_has_a_first_touch_of_its_own() -> None:
    """By its own key, not that of its card."""
    first = (announced(0), LISTED, Announced(partition()))
    assert after(HELLO, BEGIN, *first).first_touch
    assert not after(HELLO, BEGIN, *first, partition_read(partition()), End(1), BEGIN, *first).first_touch


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param((Announced(partition()),), id="before its card"),
        pytest.param((announced(0), LISTED, Announced(partition("OTHER"))), id="of another card"),
        pytest.param((announced(0), LISTED, Announced(partition(own="MIG-9"))), id="that the card does not have"),
        pytest.param((announced(0), LISTED, Announced(partition(index=1))), id="at another index"),
        pytest.param(
            (announced(0), LISTED, Announced(partition()), partition_read(partition()), Announced(partition())),
            id="twice",
        ),
        pytest.param(
            (announced(0), LISTED, Announced(partition()), partition_read(partition(own="MIG-2"))),
            id="another one's figures",
        ),
        pytest.param((announced(0), LISTED, Announced(partition()), read(0)), id="the card's figures"),
        pytest.param((announced(0), partition_read(partition())), id="figures of a partition for its card"),
    ],
)
def test_a_partition_out_of_order_is_refused(lines: tuple[Line, ...]) -> None:
    after(HELLO, BEGIN, *lines[:-1])
    with pytest.raises(DocumentError):
        after(HELLO, BEGIN, *lines)


def test_partitions_are_bounded() -> None:
    many = tuple(partition(own=f"MIG-{n}") for n in range(PARTITIONS_LIMIT + 1))
    after(HELLO, BEGIN, announced(0), replace(LISTED, partitions=many[1:]))
    with pytest.raises(DocumentError, match="more than 1024 partitions"):
        after(HELLO, BEGIN, announced(0), replace(LISTED, partitions=many))


def test_the_first_figure_of_a_card_in_a_process_may_take_longer() -> None:
    well = Read(devices.reading(Card(0, "GPU")))
    protocol = after(HELLO, BEGIN, announced(0))
    assert protocol.first_touch
    protocol = after(HELLO, BEGIN, announced(0), well, announced(1))
    assert protocol.first_touch
    protocol = after(HELLO, BEGIN, announced(0), well, End(1), BEGIN, announced(0))
    assert not protocol.first_touch
    protocol = after(HELLO, BEGIN, announced(0), read(0), End(1), BEGIN, announced(0))
    assert protocol.first_touch, "a card that gave no figure has still to be woken up"


def test_cards_with_another_id_at_every_sample_are_not_remembered_for_ever() -> None:
    protocol = after(HELLO)
    for number in range(5000):
        for line in (BEGIN, announced(0), Read(devices.reading(Card(0, f"GPU-{number}"))), End(1)):
            protocol.accept(line, NOW_S)
    assert len(protocol._opened) <= 2 * (CARDS_LIMIT + PARTITIONS_LIMIT) + 2
    protocol.accept(BEGIN, NOW_S)
    protocol.accept(announced(0), NOW_S)
    assert not protocol.first_touch


@pytest.mark.parametrize(
    ("began", "fine"),
    [
        pytest.param([89.9], False, id="before its process was started"),
        pytest.param([90.0], True, id="as it was started"),
        pytest.param([NOW_S], True, id="now"),
        pytest.param([NOW_S + 0.001], False, id="in the future"),
        pytest.param([150.0, 150.0], True, id="twice at once"),
        pytest.param([150.0, 149.9], False, id="before the sample before"),
    ],
)
def test_a_sample_cannot_have_begun_before_its_process_or_later_than_now(
    began: Sequence[float], fine: bool
) -> None:
    """Figures are never younger than they are, whatever a process says."""
    samples = [line for moment in began for line in (replace(BEGIN, monotonic_s=moment), End(0))]
    if fine:
        after(HELLO, *samples)
    else:
        with pytest.raises(DocumentError, match="began before its process, or is still to begin"):
            after(HELLO, *samples)
