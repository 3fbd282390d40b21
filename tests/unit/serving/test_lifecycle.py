"""How a serving program ends: by a signal with 0, by anything else with 1."""

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from typing_extensions import override

from devicemanager.errors import SettingsError
from devicemanager.serving import probes
from devicemanager.serving.lifecycle import Server, run_until_signal, serving
from devicemanager.serving.listener import Listener
from tests.timing import until
from tests.tls_peers import Logged, on_both_loops, server_identity

Part = Callable[[], Awaitable[object]]


async def for_ever() -> None:
    await asyncio.Event().wait()


class Program:
    """A program of one answer and one part, and what it logs."""

    def __init__(
        self, part: Part = for_ever, *, port: int = 0, startup: Part | None = None, delay_s: float = 0
    ) -> None:
        self.logged = Logged()
        self.shutdown = probes.Shutdown()
        app = web.Application()
        ready = probes.Probe("readyz", [self.shutdown.check], self.logged.log)
        app.router.add_get("/readyz", probes.handler(ready))
        self.listener = self._listener(app, port)
        self._part = part
        self._startup = startup
        self._delay_s = delay_s

    def _listener(self, app: web.Application, port: int) -> Listener:
        return Listener(app, [("127.0.0.1", port)], server_identity(), log=self.logged.log)

    async def run(self) -> int:
        server = serving(
            Server(self.listener, self.shutdown),
            {"the part": self._part},
            startup=() if self._startup is None else (self._startup,),
            drain_s=5,
            log=self.logged.log,
        )
        return await run_until_signal(server, delay_s=self._delay_s, log=self.logged.log)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.Task[int]]:
        """Runs beside the block, from the moment it listens; the block ends it."""
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(self.run())
            await until(lambda: self.logged.events("server_listening") or task.done())
            yield task

    def reason(self) -> str:
        """What ended it, as logged."""
        (line,) = self.logged.events("program_failed")
        group = line["exc_info"]
        assert isinstance(group, BaseExceptionGroup)
        return "; ".join(str(error) for error in group.exceptions)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT])
@on_both_loops
async def test_a_signal_ends_it_with_0(number: signal.Signals) -> None:
    program = Program()
    async with program.running() as task:
        address = program.listener.addresses[0]
        os.kill(os.getpid(), number)

        assert await task == 0

    assert [line["signal"] for line in program.logged.events("shutdown_started")] == [number.name]
    assert program.logged.events("shutdown_complete")
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(*address)


@on_both_loops
async def test_it_is_unready_from_the_signal_on() -> None:
    program = Program()
    async with program.running() as task:
        assert program.shutdown.check.problem() is None
        os.kill(os.getpid(), signal.SIGTERM)
        await until(lambda: program.logged.events("shutdown_started"))

        assert program.shutdown.check.problem() == "shutting down"

        assert await task == 0


@on_both_loops
async def test_a_part_that_fails_ends_everything_with_1() -> None:
    asked_to_fail = asyncio.Event()

    async def part() -> None:
        await asked_to_fail.wait()
        raise RuntimeError("no more")

    program = Program(part)
    async with program.running() as task:
        asked_to_fail.set()

        assert await task == 1

    assert program.reason() == "no more"
    assert not program.logged.events("shutdown_complete")


@on_both_loops
async def test_a_part_that_simply_returns_ends_everything_with_1() -> None:
    async def part() -> None:
        return None

    program = Program(part)

    assert await program.run() == 1
    assert program.reason() == "the part ended by itself"


@on_both_loops
async def test_a_server_that_ends_by_itself_ends_everything_with_1() -> None:
    class Ending(Listener):
        @override
        async def serve(self) -> None:
            return None

    class EndingProgram(Program):
        @override
        def _listener(self, app: web.Application, port: int) -> Listener:
            return Ending(app, [("127.0.0.1", port)], server_identity(), log=self.logged.log)

    program = EndingProgram()

    assert await program.run() == 1
    assert program.reason() == "listener ended by itself"


@on_both_loops
async def test_what_is_to_be_done_once_may_end() -> None:
    done = asyncio.Event()

    async def startup() -> None:
        done.set()

    program = Program(startup=startup)
    async with program.running() as task:
        await done.wait()
        assert not task.done()
        os.kill(os.getpid(), signal.SIGTERM)

        assert await task == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@on_both_loops
async def test_it_serves_on_unready_for_the_delay_and_a_second_signal_ends_that(number: signal.Signals) -> None:
    program = Program(delay_s=3600)
    async with program.running() as task:
        os.kill(os.getpid(), signal.SIGTERM)
        await until(lambda: program.logged.events("shutdown_started"))
        _, writer = await asyncio.open_connection(*program.listener.addresses[0])
        writer.close()
        assert not task.done()
        os.kill(os.getpid(), number)

        assert await task == 0

    assert [line["delay_s"] for line in program.logged.events("shutdown_started")] == [3600]


@on_both_loops
async def test_settings_that_turn_out_to_be_wrong_are_refused_as_settings() -> None:
    async def startup() -> None:
        raise SettingsError(["--service: is somebody else's"])

    program = Program(startup=startup)
    with pytest.raises(SettingsError, match="is somebody else's"):
        await program.run()

    assert not program.logged.events("program_failed")


@on_both_loops
async def test_parts_are_ended_with_the_program() -> None:
    ended = asyncio.Event()

    async def part() -> None:
        try:
            await for_ever()
        finally:
            ended.set()

    program = Program(part)
    async with program.running():
        os.kill(os.getpid(), signal.SIGTERM)

    assert ended.is_set()


@on_both_loops
async def test_an_address_that_is_taken_ends_it_with_1_before_anything_runs() -> None:
    async def part() -> None:
        raise AssertionError("must not run")

    with socket.create_server(("127.0.0.1", 0)) as taken:
        program = Program(part, port=taken.getsockname()[1])

        assert await program.run() == 1

    (line,) = program.logged.events("listen_failed")
    assert "address in use" in str(line["reason"])
