"""A limit on requests in flight. Beyond it a request is refused with 429."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

MAX_IN_FLIGHT: Final = 400
"""Reads under way; what a kube-apiserver allows itself for all its readers."""


class TooManyInFlightError(Exception):
    """The limit is reached; nothing was begun."""


class InFlightLimiter:
    """Counts what is under way. Discovery, OpenAPI and health never pass through it."""

    def __init__(self, limit: int = MAX_IN_FLIGHT) -> None:
        self._limit = limit
        self.in_flight = 0

    @contextmanager
    def slot(self) -> Iterator[None]:
        """One of the places, for the length of the block.

        Raises:
            TooManyInFlightError: All are taken.
        """
        if self.in_flight >= self._limit:
            raise TooManyInFlightError
        self.in_flight += 1
        try:
            yield
        finally:
            self.in_flight -= 1
