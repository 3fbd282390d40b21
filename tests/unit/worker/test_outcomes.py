"""Each outcome is the status that a caller gets."""

import pytest

from devicemanager.model.usage import WorkloadUsage
from devicemanager.worker.outcomes import Answer, DeadlineExceeded, ListOutcome, NotFound, Outcome, Unavailable


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        (Answer(WorkloadUsage("a", "b", "c", None)), 200),
        (NotFound("m"), 404),
        (Unavailable("m"), 503),
        (DeadlineExceeded("m"), 504),
    ],
)
def test_each_has_its_status(outcome: Outcome, status: int) -> None:
    assert outcome.status == status


def test_a_list_is_good() -> None:
    assert ListOutcome(()).status == 200
