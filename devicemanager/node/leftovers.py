"""Ends what collector processes leave behind, and reaps what nobody else does.

A library may start helpers that make themselves independent of the process that they came from. This process has
itself made the parent of such orphans, as process 1 of a container is anyway, and tells those of its collectors by
a variable that every collector process is started with. Orphans of others, of a shell in the container for example,
are reaped when they end.
"""

import asyncio
import contextlib
import os
import secrets
import signal
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

from devicemanager.node.blocking import BlockingCalls
from devicemanager.node.own_process import adopt_orphans
from devicemanager.node.process_usage import state_and_parent

VARIABLE: Final = "DEVICEMANAGER_COLLECTOR_RUN"

_LOOK_EVERY_S: Final = 15.0
"""For orphans of others, which are only to be reaped."""

_LOOK_AGAIN_S: Final = 0.2
"""After some were killed: they are to be reaped, and may have started others."""

_PROC_DEADLINE_S: Final = 2.0
_PROC: Final = Path("/proc")


@dataclass(frozen=True, slots=True)
class Orphan:
    """A child of this process.

    Attributes:
        pid: Its id.
        ended: Whether it only waits to be reaped.
        run: The collector process that it comes from, as the variable names it; None if it has none, or has ended.
    """

    pid: int
    ended: bool
    run: str | None


class Leftovers:
    """The processes that collector processes have left behind."""

    def __init__(self, environment: Mapping[str, str], known: Callable[[], Collection[int] | None]) -> None:
        """Look at nothing yet.

        Args:
            environment: Of collector processes; the variable is added.
            known: Ids of the children that are waited for elsewhere; None while they are not known.
        """
        self._environment = environment
        self._known = known
        self._prefix = f"{os.getpid()}-{secrets.token_hex(8)}-"
        self._runs = 0
        self._running: set[str] = set()
        self._ended = asyncio.Event()
        self._zombies: set[int] = set()
        self._proc = BlockingCalls("/proc")

    def begin(self) -> tuple[str, Mapping[str, str]]:
        """The name of a new run, and the environment of its process."""
        self._runs += 1
        run = f"{self._prefix}{self._runs}"
        self._running.add(run)
        return run, {**self._environment, VARIABLE: run}

    def end(self, run: str) -> None:
        """The process of this run has ended, or was never started."""
        self._running.discard(run)
        self._ended.set()

    async def watch(self) -> NoReturn:
        """Look for orphans whenever a run has ended, and now and then."""
        adopt_orphans()
        delay_s = _LOOK_EVERY_S
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(delay_s):
                    await self._ended.wait()
                delay_s = _LOOK_EVERY_S
            self._ended.clear()
            killed = await self._look(self._proc, _PROC_DEADLINE_S)
            # One that is stuck in the kernel does not end: less and less often.
            again_s = _LOOK_AGAIN_S if delay_s == _LOOK_EVERY_S else 2 * delay_s
            delay_s = min(again_s, _LOOK_EVERY_S) if killed else _LOOK_EVERY_S

    async def end_all(self, deadline_s: float) -> None:
        """Kill what all runs have left, within ``deadline_s`` seconds; their processes have ended."""
        self._running.clear()
        await self._look(BlockingCalls("/proc"), deadline_s)  # a look under way may be in its own thread still

    async def _look(self, proc: BlockingCalls, deadline_s: float) -> bool:
        """Kill and reap orphans. Returns whether it is worth while to look again soon.

        One that has ended is reaped when it is seen to be there still: another part of the program may be about to.
        """
        try:
            children = await proc.run(lambda: tuple(_children(os.getpid(), self._prefix)), deadline_s)
        except OSError:  # TimeoutError is one
            return False
        known = self._known()
        if known is None:
            return bool(children)  # one is being started
        killed = False
        before, self._zombies = self._zombies, {child.pid for child in children if child.ended} - set(known)
        for child in children:
            if child.pid in known:
                continue
            if child.pid in self._zombies & before:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(child.pid, os.WNOHANG)  # noqa: ASYNC222 - it has ended
            elif child.run is not None and child.run not in self._running:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(child.pid, signal.SIGKILL)
                    killed = True
        return killed or not self._zombies <= before


def _children(parent: int, prefix: str) -> Iterator[Orphan]:
    """The children of a process. Blocks."""
    for name in os.listdir(_PROC):
        if name.isdigit() and (found := state_and_parent(int(name), str(_PROC))) is not None and found[1] == parent:
            ended = found[0] in "ZX"
            yield Orphan(int(name), ended, None if ended else _run(name, prefix))


def _run(pid: str, prefix: str) -> str | None:
    try:
        variables = (_PROC / pid / "environ").read_bytes()
    except OSError:
        return None
    wanted = f"{VARIABLE}={prefix}".encode()
    found = next((variable for variable in variables.split(b"\0") if variable.startswith(wanted)), None)
    return None if found is None else found.decode(errors="replace").partition("=")[2]
