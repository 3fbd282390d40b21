"""Which children are ended, reaped or left alone; tests/faults has real processes."""

import os
import signal
from collections.abc import Collection
from pathlib import Path

import pytest

from devicemanager.node import leftovers
from devicemanager.node.leftovers import VARIABLE, Leftovers

OURS = os.getpid()


class Machine:
    """A ``/proc`` of a test's making, and the signals and waits that would have reached the kernel."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.killed: list[tuple[int, int]] = []
        self.reaped: list[int] = []
        self.known: set[int] | None = set()
        monkeypatch.setattr(leftovers, "_PROC", folder)
        monkeypatch.setattr(os, "kill", lambda pid, number: self.killed.append((pid, number)))
        monkeypatch.setattr(os, "waitpid", lambda pid, _: self.reaped.append(pid))
        self.leftovers = Leftovers({"PATH": "/bin"}, self._known)

    def _known(self) -> Collection[int] | None:
        return self.known

    def has(
        self, pid: int, *, parent: int = OURS, state: str = "S", run: str | None = None, name: str = "x"
    ) -> None:
        folder = self.folder / str(pid)
        folder.mkdir()
        (folder / "stat").write_text(f"{pid} ({name}) {state} {parent} 1 1 0 -1")
        variables = b"HOME=/\0" + (b"" if run is None else f"{VARIABLE}={run}".encode() + b"\0")
        (folder / "environ").write_bytes(variables)

    async def end_all(self) -> None:
        await self.leftovers.end_all(10.0)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_every_run_has_a_name_of_its_own_in_its_environment(machine: Machine) -> None:
    first, environment = machine.leftovers.begin()
    second, _ = machine.leftovers.begin()

    assert environment == {"PATH": "/bin", VARIABLE: first}
    assert first != second


@pytest.mark.asyncio
async def test_what_a_run_has_left_is_killed_and_what_is_known_or_of_others_is_not(machine: Machine) -> None:
    run, _ = machine.leftovers.begin()
    machine.known = {10}
    machine.has(10, run=run)  # the event loop waits for it
    machine.has(11, run=run)
    machine.has(12, run=run, parent=OURS + 1)  # it has a parent of its own
    machine.has(13, run="1-0123-1")  # of another device manager
    machine.has(14)
    machine.has(15, run=run, name=") S 1 (", state="D")

    await machine.end_all()

    assert sorted(machine.killed) == [(11, signal.SIGKILL), (15, signal.SIGKILL)]
    assert machine.reaped == []


@pytest.mark.asyncio
async def test_children_that_nobody_waits_for_are_reaped_whoever_they_are_from(machine: Machine) -> None:
    machine.known = {20}
    machine.has(20, state="Z")
    machine.has(21, state="Z")
    machine.has(22, state="Z", parent=OURS + 1)

    await machine.end_all()
    assert (machine.killed, machine.reaped) == ([], [])  # whoever started it may be about to ask for its end

    await machine.end_all()
    assert (machine.killed, machine.reaped) == ([], [21])


@pytest.mark.asyncio
async def test_while_a_process_is_being_started_nothing_is_touched(machine: Machine) -> None:
    """It is a child that nobody knows yet, and may have ended already."""
    run, _ = machine.leftovers.begin()
    machine.known = None
    machine.has(30, run=run)
    machine.has(31, state="Z")

    await machine.end_all()

    assert (machine.killed, machine.reaped) == ([], [])


@pytest.mark.asyncio
async def test_processes_that_go_while_they_are_looked_at_do_no_harm(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, _ = machine.leftovers.begin()
    (machine.folder / "40").mkdir()
    machine.has(41, run=run)
    machine.has(42, state="Z")
    machine.has(43, run=run)
    (machine.folder / "43" / "environ").unlink()
    (machine.folder / "self").mkdir()

    def gone(pid: int, _: int) -> None:
        raise ProcessLookupError if pid == 41 else ChildProcessError

    monkeypatch.setattr(os, "kill", gone)
    monkeypatch.setattr(os, "waitpid", gone)

    for _ in range(2):
        await machine.end_all()


@pytest.mark.asyncio
async def test_a_machine_without_proc_is_left_as_it_is(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leftovers, "_PROC", machine.folder / "missing")

    await machine.end_all()

    assert machine.killed == []


@pytest.mark.asyncio
@pytest.mark.parametrize("written", ["", "20 (x)", "20 (x) S", "20 (x) S parent 1"])
async def test_what_proc_says_half_of_a_process_ends_nothing_else(machine: Machine, written: str) -> None:
    run, _ = machine.leftovers.begin()
    machine.has(20, run=run)
    (machine.folder / "20" / "stat").write_text(written)
    machine.has(21, run=run)

    await machine.end_all()

    assert machine.killed == [(21, signal.SIGKILL)]
