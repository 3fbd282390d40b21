"""A device manager whose log nobody reads: it serves, ends, and says later what was lost."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.e2e.device_manager import DEADLINE_S, environment, trusting_anyone


@dataclass
class Unread:
    """A running device manager that logs into a pipe, which was full before it started."""

    process: subprocess.Popen[bytes]
    port: int
    reading: int
    padding: int
    lines: list[bytes] = field(default_factory=list)

    def ask(self, path: str) -> bytes:
        """The answer; waits until there is one."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            try:
                with urllib.request.urlopen(
                    f"https://127.0.0.1:{self.port}{path}", timeout=5, context=trusting_anyone()
                ) as answer:
                    body: bytes = answer.read()
                    return body
            except OSError:
                assert self.process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.02)

    def read(self) -> None:
        """Read what there is to the end of the log."""
        with os.fdopen(self.reading, "rb") as stream:
            stream.read(self.padding)
            self.lines.extend(stream)


def full_pipe() -> tuple[int, int, int]:
    """Both ends, and how many bytes are in it."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    filled = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            filled += os.write(writing, b"x" * 4096)
    os.set_blocking(writing, True)
    return reading, writing, filled


@pytest.fixture
def unread(tmp_path: Path) -> Iterator[Unread]:
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        port = chosen.getsockname()[1]
    reading, writing, filled = full_pipe()
    flags = ["--manufacturer=simulated", "--monitor-period=1s", "--log-level=debug", f"--secure-port={port}"]
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "devicemanager.cli", "serve", *flags],
        stdout=writing,
        stderr=subprocess.DEVNULL,
        env=environment({}),
        cwd=tmp_path,
    ) as process:
        os.close(writing)
        yield Unread(process, port, reading, filled)
        process.kill()


def test_a_full_unread_log_pipe_delays_neither_answers_nor_the_end(unread: Unread) -> None:
    assert unread.ask("/livez") == b"ok"
    while b'"state":"ok"' not in unread.ask("/monitor/snapshot"):
        time.sleep(0.02)
    assert b"devicemanager_log_lines_dropped_total 0.0" in unread.ask("/metrics")

    unread.process.send_signal(signal.SIGTERM)

    assert unread.process.wait(DEADLINE_S) == 0
    os.close(unread.reading)


def test_what_was_queued_is_written_when_the_reader_goes_on(unread: Unread) -> None:
    assert unread.ask("/livez") == b"ok"
    reader = threading.Thread(target=unread.read)
    reader.start()
    unread.process.send_signal(signal.SIGTERM)
    assert unread.process.wait(DEADLINE_S) == 0
    reader.join(DEADLINE_S)

    events = [json.loads(line)["event"] for line in unread.lines]
    assert events[0] == "program_started"
    assert events[-1] == "shutdown_complete"
    assert "server_listening" in events
