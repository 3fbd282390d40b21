"""What a code of NVML blames, and for what reason a figure is then absent."""

import pytest

from collectors import nvml_codes
from devicemanager.model.accelerator import CollectorState, Reason


@pytest.mark.parametrize(
    ("codes", "reason"),
    [
        ((2, 3, 13, 22, 24, 25, 26), Reason.UNSUPPORTED),
        ((4, 17), Reason.PERMISSION),
        ((8, 11, 15, 16, 28), Reason.LOST),
        ((6, 7, 10, 19, 20, 21, 23, 27, 29, 30, 999, 1234), Reason.TRANSIENT_DRIVER_ERROR),
    ],
)
def test_reasons(codes: tuple[int, ...], reason: Reason) -> None:
    assert {code: nvml_codes.reason(code) for code in codes} == dict.fromkeys(codes, reason)


def test_codes_of_a_card_in_good_health() -> None:
    assert [code for code in range(1000) if nvml_codes.passes(code)] == [19, 21, 27]


def test_a_code_blames_the_driver_or_the_card_or_neither() -> None:
    codes = [*range(1, 31), 999]
    assert [code for code in codes if nvml_codes.blames_driver(code)] == [1, 9, 12, 18]
    assert [code for code in codes if nvml_codes.blames_card(code)] == [8, 11, 15, 16, 28]


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
def test_verdicts_name_the_call_and_the_code(code: int, state: CollectorState) -> None:
    verdict = nvml_codes.verdict(code, "nvmlInit")
    assert verdict.state is state
    assert verdict.detail.startswith("nvmlInit answered ")
    assert verdict.detail.endswith(f"({code})")


def test_names_are_the_librarys_own() -> None:
    pynvml = pytest.importorskip("pynvml")
    for code in (*range(1, 31), 999):
        name = nvml_codes.named(code).removesuffix(f" ({code})")
        assert getattr(pynvml, f"NVML_ERROR_{name}") == code
