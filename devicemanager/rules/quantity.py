"""Kubernetes quantities by a strict grammar: exact arithmetic, no float, bounded work.

The grammar is that of ``k8s.io/apimachinery/pkg/api/resource``: an optional sign, decimal digits with at most one
point, and a binary suffix, a decimal suffix or a decimal exponent. Where the Go type rounds to nanos or caps at
2^63-1, this one stays exact and leaves both to the caller.
"""

import re
from collections.abc import Callable
from fractions import Fraction
from typing import Final

from devicemanager.errors import DocumentError, excerpt
from devicemanager.model.accelerator import Figure, Reason

INT64_MAX: Final = 2**63 - 1
"""The largest figure that the wire's int64 carries."""

TEXT_LIMIT: Final = 64
"""Characters of a quantity; the longest useful (20 digits, a point, 9 decimals, a suffix) has half as many."""

EXPONENT_LIMIT: Final = 32
"""Powers of ten in an exponent: ``1e32`` is beyond every figure, and ``1e999999999`` would eat the memory."""

_GRAMMAR: Final = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))"
    r"(?:(?P<suffix>[numkMGTPE]|[KMGTPE]i)|[eE](?P<exponent>[+-]?[0-9]+))?"
)

_SCALES: Final = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 10**3),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
    "Pi": Fraction(2**50),
    "Ei": Fraction(2**60),
}


def parse(text: str) -> Fraction:
    """The exact value of a quantity.

    Raises:
        DocumentError: The text is no quantity (``""``, ``NaN``, ``1 Ki``, ``1KI``), or is absurdly long or large.
    """
    match = _GRAMMAR.fullmatch(text) if len(text) <= TEXT_LIMIT else None
    if match is None:
        raise DocumentError(f"not a quantity: {excerpt(text, TEXT_LIMIT)!r}")
    number = Fraction(match["number"])
    if match["suffix"]:
        return number * _SCALES[match["suffix"]]
    exponent = int(match["exponent"] or 0)
    if abs(exponent) > EXPONENT_LIMIT:
        raise DocumentError(f"exponent out of range in quantity {excerpt(text, TEXT_LIMIT)!r}")
    return number * Fraction(10) ** exponent


def ceil(value: Fraction) -> int:
    """The smallest integer that is not below ``value``."""
    return -(-value.numerator // value.denominator)


def nanocores_ceil(value: Fraction) -> int:
    """Cores to billionths of a core, rounded up."""
    return ceil(value * 10**9)


def millicores_ceil(value: Fraction) -> int:
    """Cores to thousandths of a core, rounded up."""
    return ceil(value * 10**3)


def bytes_ceil(value: Fraction) -> int:
    """Bytes, a fraction of one rounded up."""
    return ceil(value)


def nanocores(text: str) -> Figure:
    """A CPU quantity in nanocores, rounded up; ``invalid_data`` unless it is one in 0..2^63-1."""
    return _figure(text, nanocores_ceil)


def bytes_(text: str) -> Figure:
    """A memory quantity in bytes, rounded up; ``invalid_data`` unless it is one in 0..2^63-1."""
    return _figure(text, bytes_ceil)


def _figure(text: str, convert: Callable[[Fraction], int]) -> Figure:
    try:
        value = parse(text)
    except DocumentError:
        return Reason.INVALID_DATA
    scaled = convert(value)
    return scaled if value >= 0 and scaled <= INT64_MAX else Reason.INVALID_DATA


def format_bytes(value: int) -> str:
    """Bytes as a quantity, with the largest binary suffix that leaves a whole number: ``80Mi``."""
    for suffix, scale in (("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)):
        if value and value % scale == 0:
            return f"{value // scale}{suffix}"
    return str(value)
