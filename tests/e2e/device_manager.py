"""A real ``devicemanager serve`` process, asked over HTTPS as anyone would ask it.

Waiting is polling the process itself, its answers or its log, with a deadline; nothing here knows how long a thing
should take.
"""

import atexit
import http.client
import json
import os
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import psutil

from tests.e2e.forked import ForkedProgram, Template

DEADLINE_S: Final = 20.0
_POLL_S: Final = 0.02

Document = Mapping[str, Any]


@dataclass(frozen=True)
class Answer:
    """One complete answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def document(self) -> Document:
        """The body as JSON; NaN and Infinity are none."""

        def refuse(constant: str) -> None:
            raise ValueError(constant)

        found = json.loads(self.body, parse_constant=refuse)
        assert isinstance(found, dict)
        return found


def trusting_anyone() -> ssl.SSLContext:
    """A context that verifies nobody: for servers that made their own certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def environment(more: Mapping[str, str]) -> dict[str, str]:
    """Ours without any setting, so that only ``more`` and flags count."""
    return {name: value for name, value in os.environ.items() if not name.startswith("DEVICEMANAGER_")} | dict(more)


@cache
def template() -> Template:
    """The one that all tests of this process share; see :mod:`tests.e2e.forked`."""
    shared = Template(environment({}))
    atexit.register(shared.end)
    return shared


class DeviceManager:
    """A running device manager."""

    def __init__(
        self,
        flags: Sequence[str],
        more_environment: Mapping[str, str],
        folder: Path,
        program: Sequence[str] = ("-m", "devicemanager.cli"),
        descriptors: int | None = None,
        template: Template | None = None,
    ) -> None:
        self._log = folder / f"log-{len(list(folder.iterdir()))}"
        self._context = trusting_anyone()
        arguments = ["serve", "--secure-port=0", *flags]
        command = [sys.executable, "-P", *program, *arguments]
        if descriptors is not None:
            command = ["/bin/sh", "-c", f'ulimit -n {descriptors}; exec "$@"', "sh", *command]
        self.process: subprocess.Popen[bytes] | ForkedProgram
        with self._log.open("wb") as output:
            if template is not None:
                self.process = template.start(arguments, environment(more_environment), folder, output)
            else:
                self.process = subprocess.Popen(
                    command, stdout=output, stderr=subprocess.STDOUT, env=environment(more_environment), cwd=folder
                )
        self._port: int | None = None

    @property
    def port(self) -> int:
        """Where it listens; waits for that."""
        if self._port is None:
            self._port = int(self.event("server_listening")["port"])
        return self._port

    def log_lines(self) -> list[Document]:
        """What it has logged so far; lines that are not JSON come as ``{"text": …}``."""
        lines = []
        for line in self._log.read_text(encoding="utf-8").splitlines():
            try:
                lines.append(json.loads(line))
            except ValueError:
                lines.append({"text": line})
        return lines

    def events(self, name: str) -> list[Document]:
        """The lines of one event so far."""
        return [line for line in self.log_lines() if line.get("event") == name]

    def event(self, name: str, **values: object) -> Document:
        """Waits for a line of this event with these values."""

        def found() -> Document | None:
            for line in self.events(name):
                if values.items() <= line.items():
                    return line
            return None

        return self._until(found, f"the event {name} {values}")

    def ask(
        self, path: str = "/monitor/snapshot", method: str = "GET", headers: Mapping[str, str] | None = None
    ) -> Answer:
        """One request on a connection of its own."""
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=10, context=self._context)
        try:
            connection.request(method, path, headers=dict(headers or {}))
            response = connection.getresponse()
            return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        finally:
            connection.close()

    def snapshot(self) -> Document:
        """The snapshot at this moment."""
        answer = self.ask()
        assert answer.status == 200
        return answer.document

    def until(self, wanted: Callable[[Document], object]) -> Document:
        """Waits for a snapshot of which ``wanted`` is true."""
        seen: Document = {}

        def found() -> Document | None:
            nonlocal seen
            seen = self.snapshot()
            return seen if wanted(seen) else None

        return self._until(found, "a snapshot as wanted", lambda: json.dumps(seen, indent=1))

    def until_state(self, state: str) -> Document:
        """Waits for a state of the collector."""
        return self.until(lambda seen: seen["collector"]["state"] == state)

    def children(self) -> list[psutil.Process]:
        """Its collector processes."""
        return [one for one in psutil.Process(self.process.pid).children() if "collectors" in one.cmdline()]

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Signals it and waits for its end. Returns the exit code."""
        self.process.send_signal(number)
        return self.process.wait(timeout=DEADLINE_S)

    def kill(self) -> None:
        """For clean-up: gone at once, with its children."""
        self.process.kill()
        self.process.wait()

    def _until(
        self, found: Callable[[], Document | None], what: str, seen: Callable[[], str] = lambda: ""
    ) -> Document:
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            answer = found()
            if answer is not None:
                return answer
            code = self.process.poll()
            assert code is None, f"it ended with {code}:\n{self._log.read_text()}"
            time.sleep(_POLL_S)
        raise AssertionError(f"waited in vain for {what}\n{seen()}\n{self._log.read_text()}")


Serve = Callable[..., DeviceManager]

LATE_SIGNALS: Final = """
import atexit, json, os, signal, sys
from devicemanager import cli

def while_the_interpreter_ends():
    alarm_s = signal.getitimer(signal.ITIMER_REAL)[0]
    print(json.dumps({"event": "interpreter_ending", "alarm_s": alarm_s}), flush=True)
    os.kill(os.getpid(), signal.SIGALRM)
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGINT)
    print(json.dumps({"event": "interpreter_still_ending"}), flush=True)

atexit.register(while_the_interpreter_ends)
sys.exit(cli.main())
"""
"""A program that gets every signal that could reach it after all has ended, as on a machine that is slow enough."""


def serving(folder: Path, template: Template) -> Iterator[Serve]:
    """Gives a function that starts device managers; all are gone afterwards. For a fixture.

    They are copies of ``template`` unless the start itself matters: with ``code``, the process runs that instead of
    our entry point, and calls ``devicemanager.cli.main`` itself; ``fresh`` is for what is measured.
    """
    started: list[DeviceManager] = []

    def serve(
        *flags: str,
        environment: Mapping[str, str] | None = None,
        code: str | None = None,
        descriptors: int | None = None,
        fresh: bool = False,
    ) -> DeviceManager:
        program = ("-m", "devicemanager.cli") if code is None else ("-c", code)
        environment = environment or {}
        fresh = fresh or code is not None or descriptors is not None or "PYTHONPATH" in environment
        copied = None if fresh else template
        started.append(DeviceManager(flags, environment, folder, program, descriptors, copied))
        return started[-1]

    try:
        yield serve
    finally:
        for one in started:
            one.kill()


def cards(snapshot: Document) -> list[Document]:
    """All cards of a snapshot, in its order."""
    return [card for group in snapshot["groups"] for card in group["accelerators"]]


def bus(root: Path, *devices: tuple[str, str], driver: str | None = None) -> str:
    """A file system as /sys, with display controllers of these vendors at these addresses."""
    for address, vendor in devices:
        folder = root / "bus" / "pci" / "devices" / address
        folder.mkdir(parents=True)
        (folder / "vendor").write_text(f"0x{vendor}\n")
        (folder / "device").write_text("0x2330\n")
        (folder / "class").write_text("0x030200\n")
        if driver is not None:
            (folder / "driver").symlink_to(f"../../../../bus/pci/drivers/{driver}")
    (root / "bus" / "pci" / "devices").mkdir(parents=True, exist_ok=True)
    return f"--sys-root={root}"
