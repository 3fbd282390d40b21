"""One collector process: starts it, reads its lines, kills it. Knows nothing of samples or cards.

Vendor code runs in it, and must not block this process, exhaust its memory or end it: lines and standard error are
bounded, each wait has a deadline, and a process stuck in the kernel, which even SIGKILL does not end, is never
waited for. The process has a session of its own: what the library starts in it ends with it. Its end is seen at
once, also where others hold its pipes open.
"""

import asyncio
import contextlib
import os
import resource
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, cast

from typing_extensions import override

from devicemanager.errors import DocumentError
from devicemanager.node import line_pipe
from devicemanager.node.line_pipe import LinePipe
from devicemanager.node.process_usage import state_and_parent
from devicemanager.node.stderr_tail import StderrTail
from devicemanager.wire.collector_line_decoding import decode
from devicemanager.wire.collector_lines import LINE_LIMIT_BYTES, Line

_EXIT_WAIT_S: Final = 1.0
"""For the clean-up of a process that has closed its pipe."""

_SENT_SIGNALS: Final = frozenset((signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT))
"""Signals that a process gets from others; a fault of its own ends it by another one, or with an exit code."""


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
    def by_others(self) -> bool:
        """Whether it was ended by a signal that somebody else sent, the kernel out of memory for example.

        This program's own signals do not count: it does not follow a process that it has killed.
        """
        return self.code is not None and -self.code in _SENT_SIGNALS

    @property
    def detail(self) -> str:
        """One line for a person, with the process's own last words."""
        return f"{self.how}: {self.stderr_tail}" if self.stderr_tail else self.how

    @property
    def how(self) -> str:
        """How it ended, in our own words."""
        if self.code is None:
            how = "closed its pipe and lives on"
        elif self.code < 0:
            how = f"ended by {_signal_name(-self.code)}"
            if -self.code == signal.SIGKILL:
                how += ", which somebody else sent: the kernel does when memory runs out"
        else:
            how = f"ended with exit code {self.code}"
        return how


Event: TypeAlias = Line | TimedOut | ProtocolError | Exited


class Child:
    """A running collector process. Make one with :meth:`start`."""

    def __init__(self, transport: asyncio.SubprocessTransport, watch: "_Watch", lines: LinePipe) -> None:
        self._transport = transport
        self._watch = watch
        self._lines = lines

    @classmethod
    async def start(
        cls,
        command: Sequence[str],
        on_exit: Callable[["Child"], None],
        environment: Mapping[str, str] | None = None,
    ) -> "Child":
        """Start ``command`` with ``--fd N`` added, N being the writing end of a pipe of its own.

        Args:
            command: Program and arguments.
            on_exit: Called once, when the process has ended and its descriptors here are closed.
            environment: All its variables; None for those of this process.

        Raises:
            OSError: The process or its pipes could not be made.
        """
        with contextlib.ExitStack() as undone:
            with contextlib.ExitStack() as theirs:
                lines_in, lines_out = _pipe(theirs)
                lines = await LinePipe.connect(lines_in)
                undone.callback(lines.close)
                stderr_in, stderr_out = _pipe(theirs)
                stderr = await line_pipe.connect(stderr_in, lambda: StderrTail(stderr_in))
                undone.callback(stderr.close)
                watch = _Watch(lines, stderr)
                transport, _ = await asyncio.get_running_loop().subprocess_exec(
                    lambda: watch,
                    *command,
                    "--fd",
                    str(lines_out),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.DEVNULL,
                    stderr=stderr_out,
                    pass_fds=(lines_out,),
                    env=None if environment is None else dict(environment),
                    start_new_session=True,
                )
            undone.pop_all()
        child = cls(transport, watch, lines)
        with contextlib.suppress(OSError):  # it has ended already
            resource.prlimit(child.pid, resource.RLIMIT_CORE, (0, 0))  # a dump may fill a disk
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
    def stopped(self) -> bool:
        """Whether somebody else holds the process: by a signal, or with a debugger."""
        found = state_and_parent(self.pid)
        return found is not None and found[0] in "Tt"

    @property
    def stderr_tail(self) -> str:
        """The last line that it wrote to standard error."""
        return self._watch.stderr.line

    async def next(self, deadline_s: float) -> Event:
        """The next line, or why there is none within ``deadline_s`` seconds."""
        try:
            raw = await self._lines.next(deadline_s)
        except TimeoutError:
            return TimedOut()
        return await self._last_event() if raw is None else _decoded(raw)

    def take(self) -> Line | ProtocolError | None:
        """The next line if it is there, as most of a sample are: to wait for each would cost as much again."""
        raw = self._lines.take()
        return None if raw is None else _decoded(raw)

    def stop_waiting(self) -> None:
        """Have the line that is waited for not come in time."""
        self._lines.stop_waiting()

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
        """Send SIGKILL to the process and its group, and stop listening.

        Does not wait; ``on_exit`` is called if and when the process ends.
        """
        self._watch.stop_listening()
        if not self.exited:
            _kill_group(self.pid)

    def abandon(self) -> None:
        """Release the descriptors of a process that does not end."""
        self._watch.stop_listening()
        self._transport.close()


class _Watch(asyncio.SubprocessProtocol):
    """Waits for the end of a process."""

    def __init__(self, lines: LinePipe, stderr: StderrTail) -> None:
        self.over = asyncio.Event()
        self.stderr = stderr
        self._lines = lines
        self._transport: asyncio.SubprocessTransport | None = None
        self._on_over: Callable[[], None] | None = None

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.SubprocessTransport", transport)

    @override
    def process_exited(self) -> None:
        """Read what the process has left, end what it leaves in its group, and close all that is held of it."""
        self._lines.finish()
        self.stderr.finish()
        if self._transport is not None:
            _kill_group(self._transport.get_pid())
            self._transport.close()
        self.over.set()
        if self._on_over is not None:
            self._on_over()

    def when_over(self, call: Callable[[], None]) -> None:
        """Call ``call`` once when the process is over, at once if it is already."""
        self._on_over = call
        if self.over.is_set():
            call()

    def stop_listening(self) -> None:
        """Close the pipes, also if a child of the process holds their other ends open."""
        self._lines.close()
        self.stderr.close()


def _decoded(raw: bytes) -> Line | ProtocolError:
    try:
        return decode(raw)
    except DocumentError as error:
        return ProtocolError(str(error))


def _pipe(theirs: contextlib.ExitStack) -> tuple[int, int]:
    """The ends of a new pipe; the writing one is closed here once the process has it."""
    reading, writing = os.pipe()
    theirs.callback(os.close, writing)
    return reading, writing


def _kill_group(pid: int) -> None:
    """Kill a process and what it has started in its group, whose number is the process's own.

    After the process was reaped, the number belongs to the group for as long as anything is left in it.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
