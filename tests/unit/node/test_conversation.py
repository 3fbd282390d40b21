"""The order in which a collector process may speak."""

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from devicemanager.errors import DocumentError
from devicemanager.model.accelerator import Card, CollectorState, Reading, Reason
from devicemanager.node.conversation import Conversation, Patience, Phase, card_deadline_s
from devicemanager.wire.collector_lines import Announced, Begin, End, Failed, Hello, Line, Read


def announced(index: int) -> Announced:
    return Announced(Card(index))


def read(index: int) -> Read:
    return Read(Reading.unreadable(Card(index, "GPU"), Reason.LOST, "gone"))


HELLO = Hello("nvidia")
BEGIN = Begin(100.0, datetime(2026, 8, 12, 9, 0, tzinfo=UTC))
NOW_S = 200.0


def after(*lines: Line, skipped: Sequence[int] = ()) -> Conversation:
    talk = Conversation("nvidia", skipped, started_s=90.0)
    for line in lines:
        talk.accept(line, NOW_S)
    return talk


def test_two_samples() -> None:
    one = (BEGIN, announced(0), read(0), announced(1), read(1), End(2))
    talk = after(HELLO, *one, *one)
    assert talk.phase is Phase.RESTING
    assert talk.announced is None


def test_the_announced_card_is_the_one_being_read() -> None:
    talk = after(HELLO, BEGIN, announced(4))
    assert talk.phase is Phase.READING
    assert talk.announced == Card(4)


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
    with pytest.raises(DocumentError, match="card 3"):
        after(HELLO, BEGIN, announced(3), skipped=[3])


def test_each_phase_has_its_patience() -> None:
    patience = Patience(open_s=10.0, card_s=0.5, period_s=15.0)
    assert patience.deadline_s(Phase.OPENING) == 10.0
    assert patience.deadline_s(Phase.COUNTING) == 0.5
    assert patience.deadline_s(Phase.READING) == 0.5
    assert patience.deadline_s(Phase.RESTING) > 15.0


@pytest.mark.parametrize(
    ("period_s", "expected"), [(15.0, 2.0), (3.0, 1.5), (1.0, 0.5), (0.01, 0.5), (3600.0, 2.0)]
)
def test_a_card_gets_half_a_period(period_s: float, expected: float) -> None:
    assert card_deadline_s(period_s) == expected
