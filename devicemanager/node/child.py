"""One collector process: starts it, reads its lines, kills it. Knows nothing of samples or cards.

Vendor code runs in it, and must not block this process, exhaust its memory or end it: lines and standard error are
bounded, each wait has a deadline, and a process stuck in the kernel, which even SIGKILL does not end, is never
waited for.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, cast

from typing_extensions import override

from devicemanager.errors import DocumentError, excerpt
from devicemanager.node.line_pipe import LinePipe
from devicemanager.wire.collector_line_decoding import decode
from devicemanager.wire.collector_lines import LINE_LIMIT_BYTES, Line

_STDERR_TAIL_BYTES: Final = 4096
_EXIT_WAIT_S: Final = 1.0
"""For the clean-up of a process that has closed its pipe."""


@dataclass(frozen=True, slots=True)
class TimedOut:
    """No whole line within the deadline."""


@dataclass(frozen=True, slots=True)
class ProtocolError:
    """The process wrote something that is no line of the protocol."""

    fault: str


@dataclass(frozen=True, slots=True)
class Exited:
    """The process has closed its pipe, or ended.

    Attributes:
        code: Its exit code, negative for a signal; None if it closed its pipe and is still running.
        stderr_tail: The last line it wrote to standard error, or nothing.
    """

    code: int | None
    stderr_tail: str = ""

    @property
    def detail(self) -> str:
        """One line for a person."""
        if self.code is None:
            how = "closed its pipe and lives on"
        elif self.code < 0:
            how = f"ended by {_signal_name(-self.code)}"
        else:
            how = f"ended with exit code {self.code}"
        return f"{how}: {self.stderr_tail}" if self.stderr_tail else how


Event: TypeAlias = Line | TimedOut | ProtocolError | Exited


class Child:
    """A running collector process. Make one with :meth:`start`."""

    def __init__(self, transport: asyncio.SubprocessTransport, watch: "_Watch", lines: LinePipe) -> None:
        self._transport = transport
        self._watch = watch
        self._lines = lines

    @classmethod
    async def start(cls, command: Sequence[str], on_exit: Callable[["Child"], None]) -> "Child":
        """Start ``command`` with ``--fd N`` added, N being the writing end of a pipe of its own.

        Args:
            command: Program and arguments.
            on_exit: Called once, when the process has ended and its descriptors here are closed.

        Raises:
            OSError: The process or its pipe could not be made.
        """
        loop = asyncio.get_running_loop()
        reading_end, writing_end = os.pipe()
        with os.fdopen(writing_end, "wb", buffering=0):
            lines = await LinePipe.connect(reading_end)
            watch = _Watch(lines)
            try:
                transport, _ = await loop.subprocess_exec(
                    lambda: watch,
                    *command,
                    "--fd",
                    str(writing_end),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.DEVNULL,
                    stderr=asyncio.subprocess.PIPE,
                    pass_fds=(writing_end,),
                )
            except BaseException:
                lines.close()
                raise
        child = cls(transport, watch, lines)
        watch.when_over(lambda: on_exit(child))
        return child

    @property
    def pid(self) -> int:
        """Process id; it may be gone."""
        return self._transport.get_pid()

    @property
    def exited(self) -> bool:
        """Whether the process has ended."""
        return self._transport.get_returncode() is not None

    @property
    def stderr_tail(self) -> str:
        """The last line that it wrote to standard error."""
        return self._watch.stderr_tail

    async def next(self, deadline_s: float) -> Event:
        """The next line, or why there is none within ``deadline_s`` seconds."""
        try:
            raw = await self._lines.next(deadline_s)
        except TimeoutError:
            # A process that the library started may hold the pipe open after ours has ended.
            return Exited(self._transport.get_returncode(), self.stderr_tail) if self.exited else TimedOut()
        if raw is None:
            return await self._last_event()
        try:
            return decode(raw)
        except DocumentError as error:
            return ProtocolError(str(error))

    async def _last_event(self) -> Event:
        if self._lines.overlong:
            return ProtocolError(f"a line longer than {LINE_LIMIT_BYTES} bytes")
        await self.wait(_EXIT_WAIT_S)
        ended = Exited(self._transport.get_returncode(), self.stderr_tail)
        return ProtocolError(f"half a line, then {ended.detail}") if self._lines.half_line else ended

    async def wait(self, deadline_s: float) -> bool:
        """Wait at most ``deadline_s`` seconds for the process to end; returns whether it has."""
        try:
            async with asyncio.timeout(deadline_s):
                await self._watch.over.wait()
        except TimeoutError:
            return False
        return True

    def kill(self) -> None:
        """Send SIGKILL and stop listening. Does not wait; ``on_exit`` is called if and when the process ends."""
        self._watch.stop_listening()
        with contextlib.suppress(ProcessLookupError):
            self._transport.kill()

    def abandon(self) -> None:
        """Release the descriptors of a process that does not end."""
        self._watch.stop_listening()
        self._transport.close()


class _Watch(asyncio.SubprocessProtocol):
    """Receives standard error and the end of a process."""

    def __init__(self, lines: LinePipe) -> None:
        self.over = asyncio.Event()
        self._lines = lines
        self._stderr_tail = bytearray()
        self._exited = False
        self._listening = True
        self._transport: asyncio.SubprocessTransport | None = None
        self._on_over: Callable[[], None] | None = None

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.SubprocessTransport", transport)

    @override
    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self._stderr_tail += data
        del self._stderr_tail[:-_STDERR_TAIL_BYTES]

    @override
    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        self._listening = False
        self._settle()

    @override
    def process_exited(self) -> None:
        self._exited = True
        self._settle()

    @property
    def stderr_tail(self) -> str:
        """The last line with anything in it."""
        lines = self._stderr_tail.decode(errors="replace").splitlines()
        return next((excerpt(line) for line in reversed(lines) if line.strip()), "")

    def when_over(self, call: Callable[[], None]) -> None:
        """Call ``call`` once when the process is over, at once if it is already."""
        self._on_over = call
        if self.over.is_set():
            call()

    def stop_listening(self) -> None:
        """Close the pipe of lines, also if a child of the process holds its other end open."""
        self._lines.close()
        self._listening = False
        self._settle()

    def _settle(self) -> None:
        """Finish once the process has ended and its standard error was read."""
        if not self._exited or self._listening or self.over.is_set():
            return
        self.over.set()
        if self._transport is not None:
            self._transport.close()
        if self._on_over is not None:
            self._on_over()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
