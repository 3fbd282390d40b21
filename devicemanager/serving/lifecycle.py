"""How a serving program runs and ends: the listener, what runs beside it, signals, and the exit code.

All parts of a program run under one task group. If one of them ends by itself, the rest would serve old figures for
ever, so the program exits with 1 and is restarted by whatever runs it. A signal that ends programs makes it unready
at once, lets requests in progress finish, and ends it with 0.
"""

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final, TypeAlias

from structlog.typing import FilteringBoundLogger

from devicemanager.errors import ContainerOutdatedError, DeviceManagerError, SettingsError, leaves
from devicemanager.serving.listener import Listener
from devicemanager.serving.probes import Shutdown
from devicemanager.signals import ENDING, handled

ENDED: Final = 0
FAILED: Final = 1

Part: TypeAlias = Callable[[], Awaitable[object]]


class ListenError(DeviceManagerError):
    """An address cannot be listened on; the message says which and what can be done."""


@dataclass(frozen=True, slots=True)
class Server:
    """A program that serves.

    Attributes:
        listener: Its addresses.
        shutdown: Makes it unready.
    """

    listener: Listener
    shutdown: Shutdown


@asynccontextmanager
async def serving(
    server: Server,
    parts: Mapping[str, Part],
    *,
    startup: Sequence[Part] = (),
    drain_s: float,
    log: FilteringBoundLogger,
) -> AsyncIterator[Server]:
    """Listen, serve and run the parts for as long as the block runs, then drain.

    Args:
        server: Its listener is not started yet.
        parts: Name -> what runs for ever beside it.
        startup: What runs beside it until it is done.
        drain_s: How long requests in progress may take after the block. None are waited for when something failed.

    Raises:
        ListenError: An address cannot be listened on.
        BaseExceptionGroup: A part failed, or ended by itself.
    """
    listener = server.listener
    try:
        await listener.start()
    except OSError as error:
        raise ListenError(error.strerror) from error
    for address, port in listener.addresses:
        log.info("server_listening", address=address, port=port)
    try:
        async with asyncio.TaskGroup() as tasks:
            accepting = tasks.create_task(listener.serve())
            running = [tasks.create_task(_for_ever(name, part)) for name, part in parts.items()]
            running.append(tasks.create_task(_for_ever("listener", lambda: asyncio.shield(accepting))))
            running += [tasks.create_task(_once(part)) for part in startup]
            yield server
            for task in running:
                task.cancel()
            await listener.drain(drain_s)
    except BaseException:
        await listener.drain(0)
        raise


async def run_until_signal(
    server: AbstractAsyncContextManager[Server], *, delay_s: float = 0.0, log: FilteringBoundLogger
) -> int:
    """Serve until a signal, and then unready for ``delay_s``, which a second signal cuts short.

    Returns:
        The exit code: 0 after a signal, 1 when an address cannot be listened on or a part ended by itself.

    Raises:
        SettingsError: What the person running us must change.
        ModuleNotFoundError: A package that these settings need is not installed.
    """
    received: asyncio.Queue[signal.Signals] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    for number in handled(ENDING):
        loop.add_signal_handler(number, received.put_nowait, number)
    code = ENDED
    refused: list[SettingsError | ModuleNotFoundError] = []
    try:
        async with server as running:
            number = await received.get()
            log.info("shutdown_started", signal=number.name, delay_s=delay_s)
            running.shutdown.begin()
            running.listener.disable_keepalive()
            with suppress(TimeoutError):
                async with asyncio.timeout(delay_s):
                    await received.get()
    except* (SettingsError, ModuleNotFoundError) as group:
        refused.extend(leaves(group))
    except* ListenError as group:
        log.error("listen_failed", reason=_text(group))  # noqa: TRY400 - the address is at fault, not the code
        code = FAILED
    except* ContainerOutdatedError as group:
        log.error("container_outdated", detail=_text(group))  # noqa: TRY400
        code = FAILED
    except* Exception as group:
        log.error("program_failed", exc_info=group)  # noqa: TRY400 - what is logged is the group
        code = FAILED
    if refused and code == ENDED:
        problems = [problem for error in refused if isinstance(error, SettingsError) for problem in error.problems]
        raise SettingsError(problems) if problems else refused[0]
    if code == ENDED:
        log.info("shutdown_complete")
    return code


async def _for_ever(name: str, part: Part) -> None:
    await part()
    raise RuntimeError(f"{name} ended by itself")


async def _once(part: Part) -> None:
    await part()


def _text(group: BaseExceptionGroup[DeviceManagerError]) -> str:
    return "; ".join(map(str, leaves(group)))
