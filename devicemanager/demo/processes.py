"""Our own programs as child processes of the demo: started, followed, stopped."""

import asyncio
import ctypes
import json
import signal
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final

from devicemanager.errors import DeviceManagerError, excerpt

_START_DEADLINE_S: Final = 30.0
_STOP_DEADLINE_S: Final = 8.0
_LINES_KEPT: Final = 50
_PR_SET_PDEATHSIG: Final = 1
"""From ``linux/prctl.h``."""

_LIBC: Final = ctypes.CDLL(None)
_LINE_LIMIT_BYTES: Final = 1024 * 1024


class DemoError(DeviceManagerError):
    """The demo cannot go on; the message says why."""


class Program:
    """One ``devicemanager`` sub-command in a process of its own, logging JSON.

    The child is in a session of its own, so that Ctrl-C reaches the demo alone, which then ends its children in
    order. Make one with :meth:`start`; run :meth:`follow` beside it.
    """

    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self.name = name
        self._process = process
        self._lines: deque[str] = deque(maxlen=_LINES_KEPT)
        self._address: asyncio.Future[tuple[str, int]] = asyncio.get_running_loop().create_future()
        self._stopping = False

    @classmethod
    async def start(cls, name: str, arguments: Sequence[str], environment: Mapping[str, str]) -> "Program":
        """Start ``devicemanager <arguments>`` in this environment alone; errors call it ``name``.

        Raises:
            DemoError: The process could not be started at all.
        """
        command = [sys.executable, "-m", "devicemanager.cli", *arguments, "--log-format=json"]
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                env=environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_end_with_the_demo,
                limit=_LINE_LIMIT_BYTES,
            )
        except OSError as error:
            raise DemoError(f"{name} could not be started: {error}") from error
        return cls(name, process)

    @property
    def pid(self) -> int:
        """Process id; the process may be gone."""
        return self._process.pid

    async def follow(self) -> None:
        """Read the child's log until it ends.

        Raises:
            DemoError: It ended without :meth:`stop`.
        """
        stream = self._process.stdout
        if stream is None:
            raise RuntimeError("the child was started without a pipe")
        while line := await stream.readline():
            self._read_line(line.decode(errors="replace").rstrip())
        code = await self._process.wait()
        if not self._stopping:
            raise DemoError(f"{self.name} ended with exit code {code}: {self._log_tail()}")

    async def listening(self) -> tuple[str, int]:
        """The address and port the child serves on, once it does.

        Raises:
            DemoError: It does not within 30 s.
        """
        try:
            async with asyncio.timeout(_START_DEADLINE_S):
                return await asyncio.shield(self._address)
        except TimeoutError:
            message = f"{self.name} does not listen after {_START_DEADLINE_S:.0f} s: {self._log_tail()}"
            raise DemoError(message) from None

    async def stop(self) -> None:
        """Ask the child to end, and end it if it does not within 8 s."""
        self._stopping = True
        if self._process.returncode is not None:
            return
        self._process.terminate()
        try:
            async with asyncio.timeout(_STOP_DEADLINE_S):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()

    def _read_line(self, line: str) -> None:
        self._lines.append(line)
        try:
            event: Any = json.loads(line)
        except ValueError:
            return
        if isinstance(event, dict) and event.get("event") == "server_listening" and not self._address.done():
            self._address.set_result((str(event["address"]), int(event["port"])))

    def _log_tail(self) -> str:
        """The last three log lines in plain text, for an error message."""
        plain = [_plain(line) for line in self._lines if line]
        return excerpt(" / ".join(plain[-3:]) or "it logged nothing", 600)


def _end_with_the_demo() -> None:
    """Runs in the child before ``exec``: the kernel ends it with the demo, also where the demo is killed."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _plain(line: str) -> str:
    """A JSON log line in plain text."""
    try:
        event: Any = json.loads(line)
    except ValueError:
        return line
    if not isinstance(event, dict):
        return line
    hidden = {"event", "timestamp", "level"}
    return " ".join([str(event.get("event", "")), *(f"{k}={v}" for k, v in event.items() if k not in hidden)])
