"""Writes the lines of the log in a thread, so that no reader that stands still holds up the program.

The queue is bounded: what does not fit is dropped and counted, and the number is logged once the reader goes on.
"""

import os
import select
import threading
from collections import deque
from collections.abc import Callable
from typing import Final

BOUND_BYTES: Final = 1 << 20
"""Some 4,000 lines: seconds of a flood, or hours of a quiet program."""

_PIECE_BYTES: Final = 1 << 16


class LogQueue:
    """Lines on their way to one descriptor."""

    def __init__(self, descriptor: int, recovered: Callable[[int], object]) -> None:
        """Start the thread.

        Args:
            descriptor: Where whole lines are written; never closed here.
            recovered: Called in the thread, with the number of lines dropped, once all that was queued is written.
        """
        self.dropped = 0
        """Lines dropped so far, because the reader stood still or is gone."""
        self._descriptor = descriptor
        self._recovered = recovered
        self._said = 0
        self._lines: deque[bytes] = deque()
        self._queued_bytes = 0
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._write_for_ever, name="log", daemon=True)
        self._thread.start()

    def put(self, line: bytes) -> None:
        """Queue a line with its break, or drop it. Does not block."""
        with self._changed:
            if self._closed or self._queued_bytes + len(line) > BOUND_BYTES:
                self.dropped += 1
                return
            self._lines.append(line)
            self._queued_bytes += len(line)
            self._changed.notify_all()

    def close(self, deadline_s: float) -> bool:
        """Take no more lines, and wait at most ``deadline_s`` seconds until those queued are written.

        Returns whether they are.
        """
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(deadline_s)
        return not self._thread.is_alive()

    def _write_for_ever(self) -> None:
        while (piece := self._next_piece()) is not None:
            lines, data = piece
            written = self._write(data)
            with self._changed:
                self._queued_bytes -= len(data)
                if not written:
                    self.dropped += lines
                dropped = self.dropped if written and not self._lines else self._said
            if dropped > self._said:
                lost, self._said = dropped - self._said, dropped
                self._recovered(lost)

    def _next_piece(self) -> tuple[int, bytes] | None:
        """Some lines as one, and how many; None at the end."""
        with self._changed:
            while not self._lines and not self._closed:
                self._changed.wait()
            if not self._lines:
                return None
            taken = [self._lines.popleft()]
            size = len(taken[0])
            while self._lines and size + len(self._lines[0]) <= _PIECE_BYTES:
                taken.append(self._lines.popleft())
                size += len(taken[-1])
        return len(taken), b"".join(taken)

    def _write(self, data: bytes) -> bool:
        """Whether all was written."""
        rest = memoryview(data)
        try:
            while rest:
                try:
                    rest = rest[os.write(self._descriptor, rest) :]
                except BlockingIOError:  # whoever shares the descriptor has made it so
                    _wait_writable(self._descriptor)
        except (OSError, ValueError):
            return False
        return True


def _wait_writable(descriptor: int) -> None:
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    poll.poll()
