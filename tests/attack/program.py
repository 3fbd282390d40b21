"""A program under attack: as the chart starts it, with the chart's memory limit, on a core of its own."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import psutil

from devicemanager.serving.descriptors import MOST
from tests.attack.memory_caps import MemoryCap, memory_cap
from tests.e2e.device_manager import environment
from tests.floods import chart_limit_bytes
from tests.timing import wait_until

Document = Mapping[str, Any]

CORES: Final = sorted(os.sched_getaffinity(0))
PROGRAM_CORE: Final = CORES[0]
ATTACKER_CORE: Final = CORES[-1]
"""All attackers share it. A machine with one core has no other."""


class Program:
    """One running program.

    Attributes:
        cap: Its memory limit.
        pid: Its process id.
    """

    def __init__(self, arguments: Sequence[str], cap: MemoryCap, folder: Path, ulimit: str | None) -> None:
        self.cap = cap
        self._log = folder / f"log-{arguments[0]}"
        prefix = ["taskset", "-c", str(PROGRAM_CORE), *cap.prefix]
        if ulimit is not None:
            prefix += ["/bin/sh", "-c", f'ulimit {ulimit} && exec "$@"', "sh"]
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(
                [*prefix, sys.executable, "-P", "-m", "devicemanager.cli", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment({}),
                cwd=folder,
            )
        self.pid = self._process.pid
        self._port: int | None = None

    @property
    def port(self) -> int:
        """Where it listens; waits for that."""
        if self._port is None:
            self._port = int(self.event("server_listening")["port"])
        return self._port

    def log(self) -> str:
        """All that it has written so far."""
        return self._log.read_text(encoding="utf-8")

    def events(self, name: str) -> list[Document]:
        """The lines of one event so far."""
        lines = (json.loads(line) for line in self.log().splitlines() if line.startswith("{"))
        return [line for line in lines if line.get("event") == name]

    def event(self, name: str) -> Document:
        """Waits for a line of this event."""

        def found() -> list[Document]:
            assert self.running, self.log()
            return self.events(name)

        return wait_until(found, f"the event {name}")[0]

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def memory_bytes(self) -> int:
        """What it and its children take now."""
        return self.cap.now_bytes(self.pid)

    def resident_bytes(self) -> int:
        """What it has in memory now, without its children, and without the kernel's buffers."""
        return psutil.Process(self.pid).memory_info().rss

    def descriptors(self) -> int:
        """How many it has open, without kept connections to its own peers: those are few, and come and go."""
        process = psutil.Process(self.pid)
        ours = [
            one for one in process.net_connections("tcp") if one.status != "LISTEN" and one.laddr.port != self.port
        ]
        return process.num_fds() - len(ours)

    def soft_limit_raised(self) -> bool:
        """Whether it may open as many descriptors as the hard limit allows."""
        soft, hard = psutil.Process(self.pid).rlimit(psutil.RLIMIT_NOFILE)
        return soft == min(hard, MOST)

    def stop(self) -> None:
        """For clean-up: gone at once."""
        self._process.kill()
        self._process.wait()


@contextmanager
def limited(part: str, arguments: Sequence[str], folder: Path, ulimit: str | None = None) -> Iterator[Program]:
    """A program under the limit that the chart sets for ``part``."""
    with memory_cap(chart_limit_bytes(part)) as cap:
        program = Program([*arguments, "--secure-port=0", "--log-format=json"], cap, folder, ulimit)
        try:
            yield program
        finally:
            program.stop()


def settled(look: Callable[[], bool], deadline_s: float = 20.0) -> bool:
    """Whether something becomes so in time."""
    deadline = time.monotonic() + deadline_s
    while not look():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
