"""Long work in short steps: a generator that yields wherever somebody else may get a turn, and returns the result.

So that decoding needs no event loop, and whoever runs one decides how long it may be held.
"""

from collections.abc import Generator
from typing import TypeAlias, TypeVar

T = TypeVar("T")

Steps: TypeAlias = Generator[None, None, T]


def at_once(steps: Steps[T]) -> T:
    """The result, without a pause between the steps."""
    try:
        while True:
            next(steps)
    except StopIteration as ended:
        result: T = ended.value
        return result
