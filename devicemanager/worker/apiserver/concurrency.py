"""How much is done at once: beyond the cap a caller is told to come back, instead of queueing without end."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

DEFAULT_CAP: Final = 400
"""Reads under way; what a kube-apiserver allows itself for all its readers."""


class AtCapacityError(Exception):
    """The cap is reached; nothing was begun."""


class Cap:
    """Counts what is under way. Discovery, OpenAPI and health never pass through it."""

    def __init__(self, limit: int = DEFAULT_CAP) -> None:
        self._limit = limit
        self.under_way = 0

    @contextmanager
    def slot(self) -> Iterator[None]:
        """One of the places, for the length of the block.

        Raises:
            AtCapacityError: All are taken.
        """
        if self.under_way >= self._limit:
            raise AtCapacityError
        self.under_way += 1
        try:
            yield
        finally:
            self.under_way -= 1
