"""Makes wrong inputs of right ones. Much further into a parser than random bytes."""

import random
from collections.abc import Callable, Sequence
from typing import Final

MOST_BYTES: Final = 16 * 1024
"""Of one input: what is longer is refused by its length alone, which other tests show."""

_TOKENS: Final = (
    b"{}", b"[]", b"null", b"true", b"-1", b"0", b"1e999", b"-0.0", b"NaN", b"Infinity", b'""', b'"\\ud800"',
    b"18446744073709551616", b"9" * 400, b"1" * 5000, b"\\u0000", b"\x00", b"\xff\xfe", b"\xc3\x28", b"\r\n", b"\n",
    b":", b",", b";", b"=", b"%", b"%zz", b"%c0%af", b"(", b")", b"!", b"\x1b[31m", b"\x1b]0;x\x07", b"[" * 3000,
    b'{"a":' * 3000, b"]" * 30, b"}" * 30, b"(" * 300, b"0001-01-01T00:00:00Z", b"2026-13-45T99:99:99Z",
    b"9999-12-31T23:59:59.999999999+23:59", b"1e400m", b"1Ei", b"-5Gi", b"GPU-1", b"&a", b"*a", b"!!python/name:a",
    b"-----BEGIN CERTIFICATE-----", b"\xe2\x80\xae", b"\xf0\x9f\x92\xa9", b"q=0.5", b"*/*", b"2147483648",
)  # fmt: skip

_Mutation = Callable[[random.Random, bytearray, Sequence[bytes]], None]


def mutated(dice: random.Random, corpus: Sequence[bytes]) -> bytes:
    """One input: one of the corpus, changed in a few places."""
    data = bytearray(dice.choice(corpus))
    for _ in range(dice.choice((1, 1, 1, 2, 2, 3, 4, 8))):
        dice.choice(_MUTATIONS)(dice, data, corpus)
    return bytes(data[:MOST_BYTES])


def _span(dice: random.Random, data: bytearray) -> slice:
    start = dice.randint(0, len(data))
    return slice(start, min(len(data), start + dice.choice((1, 1, 2, 4, 16, 64, 256))))


def _flip_a_bit(dice: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    if data:
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)


def _set_a_byte(dice: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    if data:
        data[dice.randrange(len(data))] = dice.randrange(256)


def _remove(dice: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    del data[_span(dice, data)]


def _cut_off(dice: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    del data[dice.randint(0, len(data)) :]


def _repeat(dice: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    span = _span(dice, data)
    data[span] = data[span] * dice.choice((2, 2, 3, 20))


def _move(dice: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    piece = data[_span(dice, data)]
    at = dice.randint(0, len(data))
    data[at:at] = piece


def _insert_a_token(dice: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    at = dice.randint(0, len(data))
    data[at:at] = dice.choice(_TOKENS)


def _replace_by_a_token(dice: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    data[_span(dice, data)] = dice.choice(_TOKENS)


def _replace_a_value(dice: random.Random, data: bytearray, _: Sequence[bytes]) -> None:
    """What stands between two marks of the language, so that the rest stays well-formed."""
    marks = [at for at, byte in enumerate(data) if byte in b':,[{"=&\n ']
    if len(marks) > 1:
        first = dice.randrange(len(marks) - 1)
        data[marks[first] + 1 : marks[first + 1]] = dice.choice(_TOKENS)


def _splice(dice: random.Random, data: bytearray, corpus: Sequence[bytes]) -> None:
    other = dice.choice(corpus)
    start = dice.randint(0, len(other))
    data[_span(dice, data)] = other[start : start + dice.choice((4, 32, 256))]


_MUTATIONS: Final[Sequence[_Mutation]] = (
    _flip_a_bit,
    _set_a_byte,
    _remove,
    _cut_off,
    _repeat,
    _move,
    _insert_a_token,
    _replace_by_a_token,
    _replace_a_value,
    _replace_a_value,
    _splice,
)
