"""One numbered field: where its value lies depends on its type."""

import pynvml
import pytest

from collectors import nvidia_fields
from devicemanager.model.reasons import Reason


class Library:
    """Answers one field."""

    NVMLError = pynvml.NVMLError

    def __init__(self, kind: int, value: float, code: int = 0) -> None:
        self.field = pynvml.c_nvmlFieldValue_t()
        self.field.valueType = kind
        self.field.nvmlReturn = code
        member = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")[kind if kind < 7 else 3]
        setattr(self.field.value, member, value)

    def nvmlDeviceGetFieldValues(self, handle: object, fields: list[int]) -> list[object]:  # noqa: N802 - NVML's name
        assert (handle, fields) == ("card", [186])
        return [self.field]


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (1, 87_000, 87_000),
        (2, 87_000, 87_000),
        (3, 1 << 40, 1 << 40),
        (4, -5, -5),
        (5, -5, -5),
        (6, 65_535, 65_535),
        (0, 87_000.5, Reason.INVALID_DATA),
        (7, 87_000, Reason.INVALID_DATA),
        (99, 87_000, Reason.INVALID_DATA),
    ],
)
def test_a_value_is_read_by_its_type(kind: int, value: float, expected: object) -> None:
    assert nvidia_fields.integer(Library(kind, value), "card", 186) == expected


@pytest.mark.parametrize("code", [3, 4, 15, 999])
def test_a_field_has_a_return_code_of_its_own(code: int) -> None:
    with pytest.raises(pynvml.NVMLError) as caught:
        nvidia_fields.integer(Library(3, 87_000, code), "card", 186)
    assert caught.value.value == code
