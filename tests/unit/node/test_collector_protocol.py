"""The order in which a collector process may speak."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from devicemanager.errors import DocumentError
from devicemanager.model.accelerator import Card, CollectorState, Reading, Reason
from devicemanager.node.collector_protocol import CollectorProtocol
from devicemanager.node.deadlines import Phase
from devicemanager.wire.collector_lines import Announced, Begin, End, Failed, Hello, Line, Read


def announced(index: int) -> Announced:
    return Announced(Card(index))


def read(index: int) -> Read:
    return Read(Reading.unreadable(Card(index, "GPU"), Reason.LOST, "gone"))


HELLO = Hello("nvidia")
BEGIN = Begin(100.0, datetime(2026, 8, 12, 9, 0, tzinfo=UTC))
NOW_S = 200.0


def after(*lines: Line, skipped: Sequence[int] = ()) -> CollectorProtocol:
    protocol = CollectorProtocol("nvidia", skipped, started_s=90.0)
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
    with pytest.raises(DocumentError, match="card 3"):
        after(HELLO, BEGIN, announced(3), skipped=[3])


def test_the_first_figure_of_a_card_in_a_process_may_take_longer() -> None:
    """F11."""
    well = Read(Reading(Card(0, "GPU"), 8, 4, 5, 40, 1000))
    protocol = after(HELLO, BEGIN, announced(0))
    assert protocol.first_touch
    protocol = after(HELLO, BEGIN, announced(0), well, announced(1))
    assert protocol.first_touch
    protocol = after(HELLO, BEGIN, announced(0), well, End(1), BEGIN, announced(0))
    assert not protocol.first_touch
    protocol = after(HELLO, BEGIN, announced(0), read(0), End(1), BEGIN, announced(0))
    assert protocol.first_touch, "a card that gave no figure has still to be woken up"


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
def test_a_sample_can_only_have_begun_in_the_life_of_its_process(began: Sequence[float], fine: bool) -> None:
    """F02: figures are never younger than they are, whatever a process says."""
    samples = [line for moment in began for line in (replace(BEGIN, monotonic_s=moment), End(0))]
    if fine:
        after(HELLO, *samples)
    else:
        with pytest.raises(DocumentError, match="began before its process, or is still to begin"):
            after(HELLO, *samples)
