"""How much time a read has given its peer: what it waits for us, or for somebody in between, is not the peer's."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

ENOUGH_S: Final = 1.0
"""A peer that has had less before time ran out may be in order; shares of a deadline are seldom shorter."""

_current: ContextVar["PeerTime | None"] = ContextVar("peer_time", default=None)


class PeerTime:
    """A stopwatch, in the loop's time."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._total_s = 0.0
        self._since_s: float | None = None

    @property
    def total_s(self) -> float:
        """Seconds until now."""
        return self._total_s + (0.0 if self._since_s is None else self._loop.time() - self._since_s)

    def run(self) -> bool:
        """Go on, and say whether it stood still."""
        stood = self._since_s is None
        if stood:
            self._since_s = self._loop.time()
        return stood

    def stop(self) -> bool:
        """Stand still, and say whether it was running."""
        self._total_s = self.total_s
        ran, self._since_s = self._since_s is not None, None
        return ran


@contextmanager
def measured() -> Iterator[None]:
    """A block that is one read of one peer."""
    token = _current.set(PeerTime())
    try:
        yield
    finally:
        _current.reset(token)


def begin() -> None:
    """From now on it is the peer that we wait for."""
    if (time := _current.get()) is not None:
        time.run()


def end() -> None:
    """From now on it is not."""
    if (time := _current.get()) is not None:
        time.stop()


@contextmanager
def not_counted() -> Iterator[None]:
    """A block in which it is us that the peer waits for."""
    time = _current.get()
    ran = time is not None and time.stop()
    try:
        yield
    finally:
        if time is not None and ran:
            time.run()


def was_enough() -> bool:
    """Whether the peer has had so much time that it is to blame if there is no answer."""
    time = _current.get()
    return time is not None and time.total_s >= ENOUGH_S
