"""Which queries of one device keep failing, and what that means for its health. The same for every vendor."""

from typing import Final

from collectors.codes import ErrorCodes, Fault

UNHEALTHY_FAILURES: Final = 3
"""Readings in a row in which a query must fail before the device counts as unhealthy. One answer ends it."""

_COUNTED: Final = frozenset({Fault.TRANSIENT, Fault.DEGRADED, Fault.DRIVER, Fault.AMBIGUOUS})
"""Faults that a device in good health does not have in reading after reading."""


class QueryFailures:
    """Of one device.

    Args:
        codes: Of the library.
    """

    def __init__(self, codes: ErrorCodes) -> None:
        self._codes = codes
        self._in_a_row: dict[str, int] = {}
        self.begin()

    def begin(self) -> None:
        """A tick begins."""
        self._now: dict[str, int] = {}
        self._degraded: int | None = None

    def forget(self) -> None:
        """The next failure is the first: this is, or may be, another device."""
        self._in_a_row.clear()

    def record(self, query: str, code: int | None) -> None:
        """How a query ended: the code of its failure, None if it answered or there is none."""
        if code is not None and self._codes.fault(code) in _COUNTED:
            self._now[query] = code
        elif self._in_a_row or self._now:
            self._in_a_row.pop(query, None)
            self._now.pop(query, None)

    def degraded(self, code: int) -> None:
        """Some call said that the device is damaged."""
        self._degraded = code

    @property
    def any(self) -> bool:
        """Whether anything has failed in this tick that counts."""
        return bool(self._now) or self._degraded is not None

    def faults(self) -> list[str]:
        """A line for each fault, by this tick and those before. Called once a reading, after all queries."""
        said = []
        for query, code in self._now.items():
            self._in_a_row[query] = self._in_a_row.get(query, 0) + 1
            if self._codes.fault(code) is Fault.DRIVER:
                said.append(f"{query}: {self._codes.named(code)}")
            elif self._in_a_row[query] >= UNHEALTHY_FAILURES:
                said.append(f"{query} keeps failing: {self._codes.named(code)}")
        return said if self._degraded is None else [*said, self._codes.named(self._degraded)]
