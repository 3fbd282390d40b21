"""Quantities: exact for every spelling, and no other error than our own."""

import contextlib
from decimal import Decimal, localcontext
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from devicemanager.errors import DocumentError
from devicemanager.model.accelerator import Reason
from devicemanager.rules import quantity

SUFFIXES = {
    "": "1",
    "n": "1e-9",
    "u": "1e-6",
    "m": "1e-3",
    "k": "1e3",
    "M": "1e6",
    "G": "1e9",
    "T": "1e12",
    "P": "1e15",
    "E": "1e18",
    "Ki": "1024",
    "Mi": str(1024**2),
    "Gi": str(1024**3),
    "Ti": str(1024**4),
    "Pi": str(1024**5),
    "Ei": str(1024**6),
    "e0": "1",
    "e-7": "1e-7",
    "E+12": "1e12",
}

numbers = st.from_regex(
    r"[+-]?([0-9]{1,20}(\.[0-9]{0,12})?|\.[0-9]{1,12})", fullmatch=True, alphabet="0123456789+-."
)


@given(number=numbers, suffix=st.sampled_from(sorted(SUFFIXES)))
def test_agrees_with_decimal_arithmetic(number: str, suffix: str) -> None:
    with localcontext(prec=100):
        expected = Decimal(number) * Decimal(SUFFIXES[suffix])
    value = quantity.parse(number + suffix)
    assert value == Fraction(expected)
    whole = quantity.bytes_(number + suffix)
    if 0 <= value <= 2**63 - 1:
        assert not isinstance(whole, Reason)
        assert whole - 1 < value <= whole
    else:
        assert whole is Reason.INVALID_DATA


@given(st.text() | st.text(alphabet="0123456789.+-eEnumkMGTPKi", max_size=80))
def test_raises_only_our_own_error_and_the_figures_never(text: str) -> None:
    for figure in (quantity.nanocores(text), quantity.bytes_(text)):
        if isinstance(figure, Reason):
            assert figure is Reason.INVALID_DATA
        else:
            assert 0 <= figure <= 2**63 - 1
    with contextlib.suppress(DocumentError):
        quantity.parse(text)
