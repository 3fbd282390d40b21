"""Runs the collector processes of one manufacturer, and publishes what they read.

Two things run: the common sample, a collector process that reads all devices every period, and the prober of those
in quarantine. A device that hangs or crashes the common process is left out from then on, and a new process
completes the same tick without it. Failure of a process, a card or the library is data here: it ends in
the snapshot, never in an exception.
"""

import asyncio
import os
from collections.abc import Sequence
from typing import Final, NoReturn

import structlog
from structlog.typing import FilteringBoundLogger

from devicemanager.clock import Clock
from devicemanager.errors import DocumentError
from devicemanager.model.accelerator import CollectorState, RestartReason
from devicemanager.node.blocking import BlockingCalls
from devicemanager.node.bus_watch import BusWatch
from devicemanager.node.child import Child, Event, Exited, ProtocolError, TimedOut
from devicemanager.node.collector_protocol import CollectorProtocol
from devicemanager.node.deadlines import Deadlines, Phase, card_deadline_s
from devicemanager.node.launcher import STUCK_LIMIT, Launcher, MemoryExceeded
from devicemanager.node.process_usage import UsageMonitor
from devicemanager.node.quarantine import Quarantine
from devicemanager.node.quarantine_prober import QuarantineProber
from devicemanager.node.snapshot_publisher import RunFailure, SnapshotPublisher
from devicemanager.node.snapshot_store import SnapshotStore
from devicemanager.node.supervisor_options import SupervisorOptions
from devicemanager.node.tick import Tick, earlier_beginning
from devicemanager.wire.collector_lines import Begin, End, Failed, Hello, Line, Read

_BUS_DEADLINE_S: Final = 2.0

_SIGNALLED_WAIT_S: Final = 0.5
"""After a process was ended by a signal from others: where that ends this program too, no failure is reported."""


class Supervisor:
    """Supervises the collector of one manufacturer and publishes to one store."""

    def __init__(
        self,
        options: SupervisorOptions,
        store: SnapshotStore,
        clock: Clock,
        log: FilteringBoundLogger | None = None,
    ) -> None:
        """Prepare; nothing is started before :meth:`run`."""
        log = (log or structlog.get_logger()).bind(manufacturer=options.manufacturer)
        if options.node_name is not None:
            log = log.bind(node=options.node_name)
        card_s = options.card_deadline_s or card_deadline_s(options.period_s)
        deadlines = Deadlines(options.open_deadline_s, card_s, options.period_s, options.first_touch_s)
        self._options = options
        self._clock = clock
        self._log = log
        self._quarantine = Quarantine(options.period_s)
        self._launcher = Launcher(
            options.manufacturer, options.command, deadlines, options.usage, options.environment
        )
        self._prober = QuarantineProber(self._quarantine, self._launcher, clock, log)
        self._publisher = SnapshotPublisher(options.period_s, store, self._quarantine, clock, log)
        self._usage = UsageMonitor(options.usage, clock, log)
        self._bus = BlockingCalls("the PCI bus")
        self._bus_watch = BusWatch(options.taken_addresses, self._bus, clock)
        self._tick: Tick | None = None
        self._restart: RestartReason | None = None
        self._library: Hello | None = None
        self._due_s = clock.monotonic()

    @property
    def last_progress_monotonic_s(self) -> float:
        """When the supervisor last made progress: now, unless what it waits for is overdue."""
        return min(self._clock.monotonic(), self._due_s)

    async def run(self) -> NoReturn:
        """Supervise until cancelled; then kill all processes, and return well below a second later."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._prober.run(), name="prober")
                tasks.create_task(self._launcher.end_leftovers(), name="leftovers")
                tasks.create_task(self._report_overdue_samples(), name="overdue")
                await self._sample_for_ever()
        finally:
            await self._launcher.end()

    async def _sample_for_ever(self) -> NoReturn:
        while True:
            why = await self._sample_with_one_process()
            if isinstance(why, RestartReason):
                self._restart = why
                continue
            self._restart = why.restart
            tick, self._tick = self._tick, None
            self._publisher.fail(why, tick, await self._addresses(self._publisher.wants_addresses(tick)))
            await self._pause(self._publisher.delay_s())

    async def _sample_with_one_process(self) -> RunFailure | RestartReason:
        """Start a process and follow it to its end. A mere reason asks for the next one at once."""
        if self._launcher.exhausted:
            return RunFailure(CollectorState.UNRESPONSIVE, f"{STUCK_LIMIT} collector processes cannot be killed")
        selection = self._quarantine.selection
        self._expect_within(self._options.open_deadline_s)
        started_s = self._clock.monotonic()
        try:
            child = await self._launcher.start(selection)
        except OSError as error:
            return RunFailure(CollectorState.FAILED, f"the collector process cannot be started: {_why(error)}")
        if self._restart is not None:
            self._publisher.restarted(self._restart)
        try:
            return await self._follow(child, CollectorProtocol(self._options.manufacturer, selection, started_s))
        finally:
            self._launcher.kill(child)

    async def _follow(self, child: Child, protocol: CollectorProtocol) -> RunFailure | RestartReason:
        deadline_s = 0.0
        while True:
            event: Event | MemoryExceeded | None = child.take()
            if event is None:
                unanswered_s = 0.0 if self._tick is None else self._tick.unanswered_s
                deadline_s = protocol.deadline_s(self._launcher.deadlines, unanswered_s)
                self._expect_within(deadline_s)
                event = await self._launcher.next(child, deadline_s, resting=protocol.phase is Phase.RESTING)
            if isinstance(event, TimedOut | Exited | ProtocolError | MemoryExceeded | Failed):
                self._log.debug(
                    "collector_process_ended",
                    pid=child.pid,
                    phase=protocol.phase.value,
                    stderr_tail=child.stderr_tail,
                )
                if isinstance(event, Exited) and event.by_others:
                    self._expect_within(_SIGNALLED_WAIT_S)
                    await asyncio.sleep(_SIGNALLED_WAIT_S)
                return self._give_up(child, protocol, event, deadline_s)
            try:
                protocol.accept(event, self._clock.monotonic())
            except DocumentError as error:
                return RunFailure(CollectorState.FAILED, str(error))
            if self._tick is not None and self._tick.renumbered and self._reselects(event, protocol):
                # Another process reads, in this tick, what this one has skipped by an earlier index.
                return RestartReason.SELECTION
            if isinstance(event, End):
                await self._complete(event.count)
            else:
                self._note(event)
            if event == End(0):
                return RunFailure(CollectorState.NO_DEVICES, "the library counts no card")
            if self._reselects(event, protocol):
                return RestartReason.SELECTION
            if isinstance(event, End) and (excess := self._usage.after_sample(child.pid)) is not None:
                self._launcher.kill(child)
                await self._pause(self._publisher.until_next_s())
                return excess
            if isinstance(event, Read) and (held := self._usage.within_sample(child.pid)) is not None:
                return _held_too_much(held)

    def _reselects(self, event: Line, protocol: CollectorProtocol) -> bool:
        """Whether a sample has ended, and the next one is to read other devices."""
        return isinstance(event, End) and self._quarantine.selection != protocol.selection

    def _note(self, line: Line) -> None:
        """Apply a line within a tick."""
        match line:
            case Hello():
                self._publisher.opened(line.versions)
                self._name_library(line)
            case Begin(began_s, wall):
                self._usage.begin_sample()
                # The second process of a tick goes on with it: its figures are no older than those read before.
                now_s = self._clock.monotonic()
                self._tick = self._tick or Tick(
                    began_s,
                    earlier_beginning(wall, began_s, self._clock.now(), now_s),
                    noticed_late_s=max(0.0, now_s - began_s),
                )
            case Read() if self._tick is not None:
                self._publisher.read(self._tick, line)
            case _:
                pass

    async def _complete(self, count: int) -> None:
        """Publish the tick: a sample has ended, and the library counts so many cards."""
        if self._tick is None or not count:
            return
        tick, self._tick = self._tick, None
        addresses = await self._addresses(self._publisher.wants_addresses(tick, count))
        if self._bus_watch.due(count):
            self._expect_within(_BUS_DEADLINE_S)
        taken = await self._bus_watch.addresses(count, _BUS_DEADLINE_S)
        self._publisher.complete(tick, count, addresses, taken)

    def _name_library(self, hello: Hello) -> None:
        """Log the library when it is found, and when it changes."""
        if hello.library is None or hello == self._library:
            return
        self._library = hello
        if hello.library_fault is None:
            self._log.info("collector_library_found", library=hello.library)
        else:
            self._log.warning("collector_library_found", library=hello.library, detail=hello.library_fault)

    def _give_up(
        self,
        child: Child,
        protocol: CollectorProtocol,
        event: TimedOut | Exited | ProtocolError | MemoryExceeded | Failed,
        waited_s: float,
    ) -> RunFailure | RestartReason:
        """Handle a process that is given up: one device's fault, else a failure of the run."""
        if isinstance(event, Exited) and event.by_others:
            return self._ended_by_others(f"the collector process {event.detail}")
        if isinstance(event, TimedOut) and child.stopped:
            return self._ended_by_others("the collector process was stopped by a signal or a debugger")
        device = None if self._quarantine.full else protocol.announced
        match event:
            case TimedOut() if device is not None:
                if self._tick is not None:
                    self._tick.unanswered_s += waited_s
                    self._tick.timeouts += 1
                self._prober.timed_out(child, device, waited_s)
                return RestartReason.DEVICE_TIMEOUT
            case Exited() if device is not None:
                self._prober.crashed(child, device, event)
                return RestartReason.DEVICE_CRASH
            case MemoryExceeded(held, grown=True) if device is not None:
                self._prober.outgrew(child, device, held)
                return RestartReason.MEMORY
            case MemoryExceeded(held):
                return _held_too_much(held)
            case TimedOut():
                return RunFailure(
                    CollectorState.UNRESPONSIVE, f"no answer within {waited_s:g} s while {protocol.doing}"
                )
            case Exited():
                state = CollectorState.CRASHED if event.code is None else self._options.exit_states.get(event.code)
                return RunFailure(state or CollectorState.CRASHED, f"the collector process {event.detail}")
            case ProtocolError(fault):
                return RunFailure(CollectorState.FAILED, fault)
            case Failed(state, detail):
                return RunFailure(state, detail)

    def _ended_by_others(self, detail: str) -> RunFailure | RestartReason:
        """Somebody else ended or held the process, which is no device's fault. The tick is completed, once."""
        if self._tick is not None and not self._tick.killed:
            self._tick.killed = True
            return RestartReason.KILLED
        return RunFailure(CollectorState.CRASHED, detail, killed=True)

    async def _report_overdue_samples(self) -> NoReturn:
        """Have the state say so when no sample has come for long."""
        while True:
            delay_s = self._publisher.overdue_in_s()
            due_s = self._clock.monotonic() + delay_s
            await asyncio.sleep(delay_s)
            if self._clock.monotonic() - due_s > _SIGNALLED_WAIT_S:
                continue  # this process itself did not run; what the other one wrote meanwhile is still to be read
            self._publisher.overdue(self._tick)

    async def _addresses(self, wanted: bool) -> Sequence[str]:
        """Read the bus in a thread: it is a file system, and may hang."""
        if not wanted:
            return ()
        self._expect_within(_BUS_DEADLINE_S)
        try:
            return await self._bus.run(self._options.bus_addresses, _BUS_DEADLINE_S)
        except OSError:  # TimeoutError is one
            return ()

    async def _pause(self, delay_s: float) -> None:
        """Wait, unless a quarantined device is readmitted before."""
        self._expect_within(delay_s)
        self._prober.readmitted.clear()
        try:
            async with asyncio.timeout(delay_s):
                await self._prober.readmitted.wait()
        except TimeoutError:
            return

    def _expect_within(self, deadline_s: float) -> None:
        self._due_s = self._clock.monotonic() + deadline_s


def _held_too_much(held: str) -> RunFailure:
    return RunFailure(CollectorState.FAILED, f"the collector process held {held}")


def _why(error: OSError) -> str:
    """The system's message; uvloop loses the number if no process can be started."""
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return "the system has no descriptor, process or memory left for it"
