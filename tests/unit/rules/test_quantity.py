"""Kubernetes quantities: every suffix, exact to the last digit, and nothing that is none."""

from fractions import Fraction

import pytest

from devicemanager.errors import DocumentError
from devicemanager.model.accelerator import Reason
from devicemanager.rules import quantity


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", Fraction(0)),
        ("20", Fraction(20)),
        ("+3", Fraction(3)),
        ("-3", Fraction(-3)),
        ("1.", Fraction(1)),
        (".5", Fraction(1, 2)),
        ("007", Fraction(7)),
        ("1n", Fraction(1, 10**9)),
        ("1u", Fraction(1, 10**6)),
        ("2000m", Fraction(2)),
        ("1k", Fraction(10**3)),
        ("1M", Fraction(10**6)),
        ("1G", Fraction(10**9)),
        ("1T", Fraction(10**12)),
        ("1P", Fraction(10**15)),
        ("1E", Fraction(10**18)),
        ("4548Ki", Fraction(4548 * 1024)),
        ("1.5Mi", Fraction(3 * 2**19)),
        ("1Gi", Fraction(2**30)),
        ("1Ti", Fraction(2**40)),
        ("1Pi", Fraction(2**50)),
        ("1Ei", Fraction(2**60)),
        ("1e3", Fraction(1000)),
        ("1E3", Fraction(1000)),
        ("1e+03", Fraction(1000)),
        ("12e-1", Fraction(6, 5)),
        ("0.1", Fraction(1, 10)),
        ("134994244n", Fraction(134994244, 10**9)),
    ],
)
def test_reads_exactly(text: str, value: Fraction) -> None:
    assert quantity.parse(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "1 ",
        " 1",
        "1\n",
        "1 Ki",
        "1KI",
        "1ki",
        "1K",
        "1mi",
        "1g",
        "Ki",
        ".",
        "-",
        "+",
        "--1",
        "1.2.3",
        "1,5",
        "1_000",
        "0x10",
        "1e",
        "1e+",
        "1e3Ki",
        "1e1.5",
        "NaN",
        "nan",
        "Infinity",
        "inf",
        "\u0661",
        "1\u00b2",
        "1e33",
        "1e-33",
        "1e999999999",
        "1" * 65,
    ],
)
def test_refuses_what_is_no_quantity(text: str) -> None:
    with pytest.raises(DocumentError):
        quantity.parse(text)


def test_an_error_quotes_little_of_a_long_text() -> None:
    with pytest.raises(DocumentError) as caught:
        quantity.parse("9" * 10_000_000)
    assert len(str(caught.value)) < 120


@pytest.mark.parametrize(
    ("text", "nanocores"),
    [("250m", 250_000_000), ("1n", 1), ("0.1n", 1), ("0", 0), ("20", 20_000_000_000), ("1u", 1000)],
)
def test_cpu_rounds_up_to_nanocores(text: str, nanocores: int) -> None:
    assert quantity.nanocores(text) == nanocores


@pytest.mark.parametrize(
    ("text", "size"), [("4548Ki", 4_657_152), ("100m", 1), ("1.5", 2), ("9223372036854775807", 2**63 - 1)]
)
def test_memory_rounds_up_to_bytes(text: str, size: int) -> None:
    assert quantity.bytes_(text) == size


@pytest.mark.parametrize("text", ["-1", "-1n", "8Ei", "9223372036854775808", "", "NaN"])
def test_a_figure_outside_an_int64_is_invalid(text: str) -> None:
    assert quantity.bytes_(text) is Reason.INVALID_DATA
    assert quantity.nanocores(text) is Reason.INVALID_DATA


def test_cpu_that_fits_only_as_cores_is_invalid() -> None:
    assert quantity.nanocores("9223372036") == 9_223_372_036_000_000_000
    assert quantity.nanocores("9223372037") is Reason.INVALID_DATA


@pytest.mark.parametrize(("cores", "millicores"), [(Fraction(1, 3), 334), (Fraction(2), 2000), (Fraction(0), 0)])
def test_millicores_round_up(cores: Fraction, millicores: int) -> None:
    assert quantity.millicores_ceil(cores) == millicores


def test_rounding_up_of_negative_values_goes_towards_zero() -> None:
    assert quantity.ceil(Fraction(-3, 2)) == -1


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0"), (1000, "1000"), (1024, "1Ki"), (80 << 20, "80Mi"), (1536 << 20, "1536Mi"), (64 << 30, "64Gi")],
)
def test_bytes_are_spelled_with_the_largest_suffix_that_is_exact(count: int, text: str) -> None:
    assert quantity.format_bytes(count) == text
    assert quantity.parse(text) == count
