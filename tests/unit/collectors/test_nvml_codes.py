"""What the codes of NVML mean."""

import pytest

from collectors.codes import Fault
from collectors.nvml_codes import CODES
from devicemanager.model.accelerator import CollectorState


@pytest.mark.parametrize(
    ("codes", "fault"),
    [
        ((2, 3, 13, 22, 24, 25, 26), Fault.UNSUPPORTED),
        ((4, 17), Fault.PERMISSION),
        ((19, 21, 27), Fault.BUSY),
        ((5, 6, 7, 10, 20, 23, 29, 30, 1234), Fault.TRANSIENT),
        ((14,), Fault.DEGRADED),
        ((8, 11, 15, 16, 28), Fault.LOST),
        ((1, 9, 12, 18), Fault.DRIVER),
        ((999,), Fault.AMBIGUOUS),
    ],
)
def test_faults(codes: tuple[int, ...], fault: Fault) -> None:
    assert {code: CODES.fault(code) for code in codes} == dict.fromkeys(codes, fault)


@pytest.mark.parametrize(
    ("code", "state"),
    [
        (9, CollectorState.DRIVER_NOT_LOADED),
        (12, CollectorState.LIBRARY_MISSING),
        (18, CollectorState.VERSION_MISMATCH),
        (4, CollectorState.NO_PERMISSION),
        (17, CollectorState.NO_PERMISSION),
        (999, CollectorState.FAILED),
        (1234, CollectorState.FAILED),
    ],
)
def test_states(code: int, state: CollectorState) -> None:
    assert CODES.failure(code, "nvmlInit").state is state


def test_names_are_the_librarys_own() -> None:
    pynvml = pytest.importorskip("pynvml")
    for code in (*range(1, 31), 999):
        name = CODES.named(code).removesuffix(f" ({code})")
        assert getattr(pynvml, f"NVML_ERROR_{name}") == code
