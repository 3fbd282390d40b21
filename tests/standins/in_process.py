"""The supervisor over collectors that run in this process, in virtual time: thousands of samples a minute.

What is between the library and the snapshot is real: the collector, its lines as bytes, and everything of the
supervisor above :class:`devicemanager.node.child.Child`. That class, and the process that it starts, are left out.
"""

import asyncio
import functools
from collections import deque
from collections.abc import Callable
from datetime import datetime, tzinfo
from typing import Any, Final, TypeVar

import structlog
from typing_extensions import override

from collectors import process
from collectors.contract import EXIT_CODES, Collector
from collectors.pacing import next_due_s
from devicemanager.errors import CollectorError, DocumentError
from devicemanager.model.accelerator import CollectorState
from devicemanager.node.child import Exited, ProtocolError, TimedOut
from devicemanager.node.deadlines import Deadlines
from devicemanager.node.snapshot_store import SnapshotStore
from devicemanager.node.supervisor import Supervisor
from devicemanager.node.supervisor_options import SupervisorOptions
from devicemanager.rules.selection import Selection
from devicemanager.wire.collector_line_decoding import decode
from devicemanager.wire.collector_lines import Announced, End, Failed, Hello, Line, encode
from tests.timing import FakeClock

T = TypeVar("T")

LINE_S: Final = 0.02
"""How long a collector takes for what it writes at once."""


class HangError(BaseException):
    """The library does not return. Not an ``Exception``: no code may handle it."""


class CrashError(BaseException):
    """The library ends the process."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop whose time is that of a clock, which jumps to whatever is next instead of being waited for."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self._clock = clock
        select = self._selector.select  # type: ignore[attr-defined]

        def jump(timeout: float | None) -> Any:
            assert timeout is not None, "everybody waits, and nothing will happen"
            clock.advance(max(0.0, timeout))
            return select(0)

        self._selector.select = jump  # type: ignore[attr-defined]

    @override
    def time(self) -> float:
        return self._clock.monotonic_s


class CallsAtOnce:
    """In place of ``BlockingCalls``: the time of a thread is not virtual."""

    async def run(self, call: Callable[[], T], deadline_s: float) -> T:
        return call()


class ClockForProcess:
    """``time`` and ``datetime`` as the collector's process sees them."""

    def __init__(self, clock: FakeClock) -> None:
        self.monotonic = clock.monotonic
        self._clock = clock

    def now(self, tz: tzinfo | None = None) -> datetime:
        return self._clock.now().astimezone(tz)


class Observer:
    """Told what collectors write; may change what happens next, also by HangError or CrashError."""

    def announced(self, index: int) -> None:
        """A card is touched next."""

    def ended(self, selection: Selection) -> None:
        """A sample is complete."""

    def written(self) -> None:
        """A process has written what it writes before it waits, and nothing of it was read yet."""


class CollectorInProcess:
    """One collector "process", with the interface of ``Child``: what it writes is read line by line.

    Attributes:
        exit_code: Of a process that has ended; a test may set it.
        hangs: Whether a call does not return.
    """

    pid: Final = -1
    stderr_tail: Final = ""
    stopped: Final = False

    def __init__(
        self, collector: Collector, selection: Selection, period_s: float, clock: FakeClock, observer: Observer
    ) -> None:
        self.exit_code: int | None = None
        self.selection = selection
        self._collector = collector
        self._period_s = period_s
        self._clock = clock
        self._observer = observer
        self._lines: deque[bytes] = deque()
        self.hangs = False
        self._due_s: float | None = None

    @property
    def exited(self) -> bool:
        return self.exit_code is not None

    async def next(self, deadline_s: float) -> Line | TimedOut | ProtocolError | Exited:
        if not self._lines and not self.hangs:
            await asyncio.sleep(0 if self._due_s is None else max(0.0, self._due_s - self._clock.monotonic()))
            if not self.exited:
                self._sample()
                self._observer.written()
        if (line := self.take()) is not None:
            return line
        if self.hangs:
            await asyncio.sleep(deadline_s)
            return TimedOut()
        return Exited(self.exit_code)

    def take(self) -> Line | ProtocolError | None:
        if not self._lines:
            return None
        try:
            return decode(self._lines.popleft())
        except DocumentError as error:
            return ProtocolError(str(error))

    def _sample(self) -> None:
        """As ``collectors.process.main`` does it."""
        try:
            if self._due_s is None:
                self._due_s = self._clock.monotonic()
                self._collector.open()
                self._emit(encode(Hello("nvidia")))
            process.sample(self._collector, self.selection, self._emit)
            self._due_s = next_due_s(self._due_s, self._clock.monotonic(), self._period_s)
        except HangError:
            self.hangs = True
        except CrashError:
            self.exit_code = -11
        except CollectorError as error:
            self._lines.append(encode(Failed(error.state, error.detail)))
            self.exit_code = EXIT_CODES.get(error.state, EXIT_CODES[CollectorState.FAILED])

    def _emit(self, data: bytes) -> None:
        self._clock.advance(LINE_S)
        for raw in data.splitlines():
            self._lines.append(raw)
            match decode(raw):
                case Announced(card):
                    self._observer.announced(card.index)
                case End():
                    self._observer.ended(self.selection)
                case _:
                    pass


class LauncherInProcess:
    """In place of the supervisor's own."""

    exhausted: Final = False

    def __init__(self, start: Callable[[Selection], CollectorInProcess], deadlines: Deadlines) -> None:
        self.manufacturer: Final = "nvidia"
        self.deadlines = deadlines
        self.running: list[CollectorInProcess] = []
        self._start = start

    async def start(self, selection: Selection) -> CollectorInProcess:
        self.running.append(self._start(selection))
        return self.running[-1]

    async def next(
        self, child: CollectorInProcess, deadline_s: float, *, resting: bool = False
    ) -> Line | TimedOut | ProtocolError | Exited:
        del resting  # how often memory is looked at, of which there is none to look at
        return await child.next(deadline_s)

    def kill(self, child: CollectorInProcess) -> None:
        child.exit_code = -9 if child.exit_code is None else child.exit_code
        self.running = [one for one in self.running if one is not child]

    async def end_leftovers(self) -> None:
        """There are none."""

    async def end(self) -> None:
        for child in self.running:
            self.kill(child)


class SupervisedInProcess:
    """A supervisor at work, and time, which passes when a test says so.

    Args:
        collector: Makes the collector of a new process, not opened yet.
        observer: Of all processes.
        bus_addresses: As the supervisor reads them.
    """

    def __init__(
        self,
        collector: Callable[[], Collector],
        observer: Observer,
        bus_addresses: Callable[[], list[str]],
        period_s: float,
    ) -> None:
        self.clock = FakeClock()
        self.store = SnapshotStore("nvidia", period_s, None, self.clock)
        options = SupervisorOptions(
            manufacturer="nvidia", period_s=period_s, command=(), bus_addresses=bus_addresses
        )
        silent = structlog.wrap_logger(None, processors=[_drop])
        self._loop = VirtualLoop(self.clock)
        supervisor = Supervisor(options, self.store, self.clock, silent)
        supervisor._bus = CallsAtOnce()  # type: ignore[assignment]
        start = functools.partial(self._process, collector, observer, period_s)
        self.launcher = LauncherInProcess(start, supervisor._launcher.deadlines)
        supervisor._launcher = supervisor._prober._launcher = self.launcher  # type: ignore[assignment]
        self._task = self._loop.create_task(self._run(supervisor))

    def _process(
        self, collector: Callable[[], Collector], observer: Observer, period_s: float, selection: Selection
    ) -> CollectorInProcess:
        return CollectorInProcess(collector(), selection, period_s, self.clock, observer)

    @staticmethod
    async def _run(supervisor: Supervisor) -> None:
        await supervisor.run()

    def let_pass(self, seconds: float) -> None:
        """Let everybody do what is due within so many seconds."""
        self._loop.run_until_complete(_pass(seconds))
        if self._task.done():
            self._task.result()
            raise AssertionError("the supervisor ended")

    def close(self) -> None:
        self._task.cancel()
        self._loop.run_until_complete(asyncio.wait([self._task]))
        self._loop.close()


async def _pass(seconds: float) -> None:
    await asyncio.sleep(seconds)
    for _ in range(20):  # for what others do at that moment, one after the other
        await asyncio.sleep(0)


def _drop(*_: object) -> Any:
    raise structlog.DropEvent
