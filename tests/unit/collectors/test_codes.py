"""Error codes of any vendor library: reasons, names and states by a table."""

import pytest

from collectors.codes import ErrorCodes, Fault
from devicemanager.model.accelerator import CollectorState, Reason

CODES = ErrorCodes(
    names={-7: "GONE", -9: "REFUSED"},
    faults={-index: fault for index, fault in enumerate(Fault, 1)},
    states={-7: CollectorState.DRIVER_NOT_LOADED},
)


def test_the_reason_follows_from_the_fault() -> None:
    reasons = {fault: CODES.reason(code) for code, fault in CODES.faults.items()}
    assert reasons == dict.fromkeys(Fault, Reason.TRANSIENT_DRIVER_ERROR) | {
        Fault.UNSUPPORTED: Reason.UNSUPPORTED,
        Fault.PERMISSION: Reason.PERMISSION,
        Fault.LOST: Reason.LOST,
    }


def test_a_code_that_the_table_does_not_name_may_pass() -> None:
    assert CODES.fault(-1000) is Fault.TRANSIENT
    assert CODES.named(-1000) == "code (-1000)"


@pytest.mark.parametrize(
    ("code", "state", "detail"),
    [
        (-7, CollectorState.DRIVER_NOT_LOADED, "init answered GONE (-7)"),
        (-2, CollectorState.NO_PERMISSION, "init answered code (-2)"),
        (-9, CollectorState.FAILED, "init answered REFUSED (-9)"),
    ],
)
def test_a_failure_of_the_whole_library_names_the_call_and_the_code(
    code: int, state: CollectorState, detail: str
) -> None:
    failure = CODES.failure(code, "init")
    assert (failure.state, failure.detail) == (state, detail)
