"""What a decoded document takes in memory, counted and not estimated from the length of its JSON.

A card of 12 bytes of JSON takes 300, and one of 400 bytes 600, so no factor fits both.
"""

import sys
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Final

import msgspec

from devicemanager.wire.steps import Steps

_STEP: Final = 512
"""Values counted in one step: less than a millisecond."""


def size_in_steps(document: object) -> Steps[int]:
    """Bytes of a document and everything in it, in steps; what is in it twice counts twice."""
    total = count = 0
    left = [document]
    while left:
        value = left.pop()
        if value is None or isinstance(value, bool | Enum | type):
            continue  # there is one of each
        total += sys.getsizeof(value)
        left += _parts(value)
        count += 1
        if count % _STEP == 0:
            yield
    return total


def _parts(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return (*value, *value.values())
    if isinstance(value, list | tuple):
        return value
    if isinstance(value, msgspec.Struct):
        return [getattr(value, name) for name in value.__struct_fields__]
    if is_dataclass(value):
        return [getattr(value, each.name) for each in fields(value)]
    return ()
