"""Lines on their way to a reader: whole and in order, or dropped and counted, and never waited for."""

import fcntl
import os
import threading
from collections.abc import Iterator

import pytest

from devicemanager.log_queue import BOUND_BYTES, LogQueue

DEADLINE_S = 20.0


class Pipe:
    """A pipe and a queue that writes to it; what is said of dropped lines is kept."""

    def __init__(self) -> None:
        self.reading, self.writing = os.pipe()
        self.said: list[int] = []
        self.recovered = threading.Event()
        self.read: list[bytes] = []
        self.ended = self.left = False
        self._reader: threading.Thread | None = None
        self.queue = LogQueue(self.writing, self._recovered)

    def _recovered(self, lines: int) -> None:
        self.said.append(lines)
        self.queue.put(b"dropped some\n")
        self.recovered.set()

    def read_in_the_background(self) -> None:
        """Read to the end, into ``self.read``."""

        def read() -> None:
            with open(self.reading, "rb", closefd=False) as stream:
                self.read.extend(stream)

        self._reader = threading.Thread(target=read)
        self._reader.start()

    def lines(self) -> list[bytes]:
        """All lines that were written."""
        if self._reader is None:
            self.read_in_the_background()
        assert self.queue.close(DEADLINE_S)
        self.end()
        return self.read

    def leave(self) -> None:
        """Read nothing, ever."""
        self.left = True
        os.close(self.reading)

    def end(self) -> None:
        """Let no thread use a descriptor that is closed, and may be another test's then."""
        if self._reader is None and not self.left:
            self.leave()
        self.queue.close(DEADLINE_S)
        os.close(self.writing)
        if self._reader is not None:
            self._reader.join(DEADLINE_S)
            os.close(self.reading)
        self.ended = True


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    if not made.ended:
        made.end()


def test_lines_arrive_whole_and_in_order(pipe: Pipe) -> None:
    lines = [b"line %d\n" % number for number in range(500)]
    for line in lines:
        pipe.queue.put(line)

    assert pipe.lines() == lines
    assert pipe.queue.dropped == 0


def test_a_reader_that_stands_still_costs_lines_and_no_time(pipe: Pipe) -> None:
    line = b"x" * 1023 + b"\n"
    count = 3 * BOUND_BYTES // len(line)
    for _ in range(count):
        pipe.queue.put(line)  # returns, though nobody reads

    assert count // 2 < pipe.queue.dropped < count
    assert pipe.said == []
    lost = pipe.queue.dropped
    pipe.read_in_the_background()
    assert pipe.recovered.wait(DEADLINE_S)
    assert pipe.said == [lost]


def test_the_first_lines_are_kept_and_the_later_ones_dropped(pipe: Pipe) -> None:
    """They say how it began."""
    for number in range(4000):
        pipe.queue.put(b"%01023d\n" % number)
    pipe.read_in_the_background()
    assert pipe.recovered.wait(DEADLINE_S)
    kept = pipe.lines()

    numbers = [int(line) for line in kept[:-1]]
    first = BOUND_BYTES // 1024
    assert numbers[:first] == list(range(first))
    assert numbers == sorted(set(numbers))  # what the writer took meanwhile made room for a later one
    assert kept[-1] == b"dropped some\n"
    assert len(kept) - 1 + pipe.queue.dropped == 4000


def test_the_end_does_not_wait_for_a_reader_that_stands_still(pipe: Pipe) -> None:
    for _ in range(2000):
        pipe.queue.put(b"x" * 1023 + b"\n")

    assert not pipe.queue.close(0.05)
    dropped = pipe.queue.dropped
    pipe.queue.put(b"too late\n")
    assert pipe.queue.dropped == dropped + 1


def test_a_reader_that_is_gone_costs_the_lines_alone(pipe: Pipe) -> None:
    pipe.leave()
    for _ in range(10):
        pipe.queue.put(b"unheard\n")

    assert pipe.queue.close(DEADLINE_S)
    assert pipe.queue.dropped == 10
    assert pipe.said == []


def test_a_descriptor_that_does_not_block_is_waited_for(pipe: Pipe) -> None:
    """Whoever shares it may have set that: a terminal after another program."""
    os.set_blocking(pipe.writing, False)
    fcntl.fcntl(pipe.writing, fcntl.F_SETPIPE_SZ, 4096)
    lines = [b"%0511d\n" % number for number in range(200)]
    for line in lines:
        pipe.queue.put(line)

    assert pipe.lines() == lines


def test_one_line_above_the_bound_is_dropped_and_others_are_not(pipe: Pipe) -> None:
    pipe.queue.put(b"x" * BOUND_BYTES + b"\n")
    pipe.queue.put(b"short\n")

    assert pipe.recovered.wait(DEADLINE_S)
    assert pipe.lines() == [b"short\n", b"dropped some\n"]
    assert pipe.said == [1]
