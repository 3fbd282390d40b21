"""A real collector process with a real pipe, as the supervisor starts it, for tests that look at its lines."""

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

DEADLINE_S = 15.0
"""Far more than a process needs here, so that only a fault meets it."""

Line = dict[str, Any]


@dataclass(frozen=True)
class ReadSample:
    """One closed sample, as lines: index -> its reading, the indices announced, and the count."""

    readings: Mapping[int, Line]
    announced: tuple[int, ...]
    count: int


@dataclass
class CollectorChild:
    """``python -m collectors`` with a pipe. Use as a context manager: the process never outlives it.

    Attributes:
        arguments: After ``python -m collectors``; ``--fd`` is added.
        environment: On top of this process's own.
    """

    arguments: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)

    def __enter__(self) -> Self:
        self._reader, writer = os.pipe()
        self._buffer = b""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "collectors", *self.arguments, "--fd", str(writer)],
            pass_fds=[writer],
            env={**os.environ, **self.environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        os.close(writer)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.communicate()
        self.close_pipe()

    def close_pipe(self) -> None:
        """Stop reading, as a supervisor that has ended."""
        if self._reader >= 0:
            os.close(self._reader)
            self._reader = -1

    def line(self) -> Line | None:
        """The next line; None at the end of the pipe.

        Raises:
            TimeoutError: None came in time.
        """
        until = time.monotonic() + DEADLINE_S
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([self._reader], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                raise TimeoutError("the collector process wrote no line")
            data = os.read(self._reader, 65536)
            if not data:
                assert self._buffer == b"", "half a line at the end"
                return None
            self._buffer += data
        raw, _, self._buffer = self._buffer.partition(b"\n")
        line = json.loads(raw)
        assert isinstance(line, dict)
        return line

    def sample(self) -> ReadSample:
        """The next sample that is closed.

        Raises:
            AssertionError: The process failed, or what it wrote is no sample.
        """
        readings: dict[int, Line] = {}
        announced: list[int] = []
        began = False
        while (line := self.line()) is not None:
            match line:
                case {"hello": _}:
                    assert not began
                case {"begin": _}:
                    assert not began
                    began = True
                case {"card": {"index": index}}:
                    announced.append(index)
                case {"reading": reading}:
                    assert reading["index"] == announced[-1], "read without being announced"
                    readings[reading["index"]] = reading
                case {"end": {"count": count}}:
                    assert began
                    return ReadSample(readings, tuple(announced), count)
                case _:
                    raise AssertionError(f"not part of a sample: {line}")
        raise AssertionError("the process ended before a sample was closed")

    def sample_where(self, wanted: Callable[[ReadSample], bool]) -> ReadSample:
        """The first sample that is as wanted.

        Raises:
            AssertionError: None was, in time.
        """
        until = time.monotonic() + DEADLINE_S
        while time.monotonic() < until:
            sample = self.sample()
            if wanted(sample):
                return sample
        raise AssertionError("no sample was as wanted")

    def failure(self) -> tuple[str, str, int]:
        """State, detail and exit code of a process that gives up; whole samples before that are passed over."""
        last: Line | None = None
        while (line := self.line()) is not None:
            last = line
        assert last is not None
        assert "failed" in last, f"the last line is {last}"
        return last["failed"]["state"], last["failed"]["detail"], self.process.wait(DEADLINE_S)

    def end(self) -> int:
        """How the process ends, its lines unread."""
        return self.process.wait(DEADLINE_S)
