"""How a serving program lives and ends: one root of all its tasks, and one way out.

All parts of a program run under one task group. If one of them ends by itself, the rest is of no use, and would
serve old figures for ever: the program ends with 1, and whoever runs it starts it anew. SIGTERM and SIGINT make it
unready at once, let requests under way finish, and end it with 0.
"""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from structlog.typing import FilteringBoundLogger

from devicemanager.errors import ContainerOutdatedError
from devicemanager.serving.listener import Listener
from devicemanager.serving.probes import Shutdown

ENDED: Final = 0
FAILED: Final = 1

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


async def serve_until_told(
    listener: Listener,
    parts: Mapping[str, Callable[[], Awaitable[object]]],
    shutdown: Shutdown,
    *,
    drain_s: float,
    log: FilteringBoundLogger,
) -> int:
    """Run everything until a signal asks to stop.

    Args:
        listener: Not started yet.
        parts: Name -> what runs for ever beside it.
        shutdown: Fails readiness from the signal on.
        drain_s: How long requests under way may take after the signal.
        log: For the beginning, the end and what went wrong.

    Returns:
        The exit code: 0 after a signal, 1 when the address cannot be listened on or a part ended by itself.
    """
    told: asyncio.Queue[signal.Signals] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, told.put_nowait, number)
    try:
        await listener.start()
    except OSError as error:
        log.error("listen_failed", reason=error.strerror)  # noqa: TRY400 - the address is at fault, not the code
        return FAILED
    for address, port in listener.addresses:
        log.info("server_listening", address=address, port=port)
    ended_by: BaseExceptionGroup[Exception] | None = None
    outdated: BaseExceptionGroup[ContainerOutdatedError] | None = None
    try:
        async with asyncio.TaskGroup() as tasks:
            serving = tasks.create_task(listener.serve())
            running = [tasks.create_task(_for_ever(name, part)) for name, part in parts.items()]
            running.append(tasks.create_task(_for_ever("listener", lambda: asyncio.shield(serving))))
            received = await told.get()
            log.info("shutdown_started", signal=received.name)
            shutdown.begin()
            for task in running:
                task.cancel()
            await listener.drain(drain_s)
    except* ContainerOutdatedError as reasons:
        outdated = reasons
    except* Exception as failures:  # noqa: BLE001 - the top of the program: say what ended it, then end
        ended_by = failures
    if ended_by is None and outdated is None:
        log.info("shutdown_complete")
        return ENDED
    if ended_by is not None:
        log.error("program_failed", exc_info=ended_by)
    if outdated is not None:
        log.error("container_outdated", detail=str(outdated.exceptions[0]))
    await listener.drain(0)
    return FAILED


async def _for_ever(name: str, part: Callable[[], Awaitable[object]]) -> None:
    await part()
    raise RuntimeError(f"{name} ended by itself")
