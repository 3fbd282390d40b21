"""``devicemanager demo``: the chain and something to look at, from start to a clean end."""

import asyncio
import signal
import sys
from collections.abc import Coroutine, Iterator
from typing import Final, TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from devicemanager.clock import SystemClock
from devicemanager.demo.cast import INSTANCES, NAMESPACE
from devicemanager.demo.chain import Chain, ChainOptions, running_chain
from devicemanager.demo.live import Frame, View
from devicemanager.demo.programs import DemoError
from devicemanager.programs.present import document
from devicemanager.settings.demo import DemoSettings
from devicemanager.settings.output import Output
from devicemanager.settings.process import environment_of_children
from devicemanager.wire import instance_metrics

_REFRESH_S: Final = 1.0
_FAILED: Final = 1


async def run(settings: DemoSettings) -> int:
    """Run the demo until it is done or signalled to end; everything it started has ended when it returns.

    Returns:
        0 when it did what it was asked, an end by Ctrl-C or SIGTERM included; 1 when something could not be started
        or ended by itself, which standard error explains.
    """
    notes = _console(sys.stderr)
    failed = False
    try:
        await _until_signal(_run_chain(settings, notes))
    except* DemoError as group:
        failed = True
        for error in _leaves(group):
            notes.print(Text.assemble(("devicemanager demo: ", "bold red"), str(error)), soft_wrap=True)
    return _FAILED if failed else 0


async def _run_chain(settings: DemoSettings, notes: Console) -> None:
    options = ChainOptions(
        environment=environment_of_children(),
        port=settings.port,
        kubeconfig=settings.kubeconfig,
    )
    waiting = notes.status("Starting a stand-in cluster, two device managers and the worker")
    waiting.start()
    try:
        async with running_chain(options) as chain:
            waiting.stop()
            if settings.once:
                await _once(chain, settings.output)
            else:
                await _serve(chain, _console(sys.stdout))
    finally:
        waiting.stop()


async def _once(chain: Chain, output: Output) -> None:
    """Print one merged sample of each Instance."""
    if output is Output.TABLE:
        _console(sys.stdout).print(await _frame(chain))
        return
    usages = await chain.read_all()
    text = document(instance_metrics.list_document(usages, api_group=chain.api_group), output)
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


async def _serve(chain: Chain, console: Console) -> None:
    """Say how to ask, then show the figures as they move; once only where nothing can be drawn over.

    That is a file or a pipe, and a terminal that says it is dumb. There the chain goes on serving.
    """
    _introduce(chain, console)
    if not console.is_terminal or console.is_dumb_terminal:
        console.print(await _frame(chain))
        await asyncio.Event().wait()
    with Live(await _frame(chain), console=console, auto_refresh=False, vertical_overflow="crop") as live:
        while True:
            await asyncio.sleep(_REFRESH_S)
            live.update(await _frame(chain), refresh=True)


def _introduce(chain: Chain, console: Console) -> None:
    console.print("A stand-in cluster, two real device managers and the real worker are running.")
    console.print(Text("Ask them from another terminal; Ctrl-C here ends everything.", style="dim"))
    for line in (
        f"export KUBECONFIG={chain.kubeconfig}",
        f"kubectl get --raw {chain.path(INSTANCES[0])}",
        f"kubectl get instancemetrics -n {NAMESPACE}",
    ):
        console.print(Text(f"  {line}", style="cyan"), soft_wrap=True)
    console.file.flush()


async def _frame(chain: Chain) -> Frame:
    views = []
    for spec in INSTANCES:
        title = f"{spec.namespace}/{spec.name}"
        try:
            views.append(View(title, await chain.read(spec)))
        except DemoError as error:
            views.append(View(title, problem=str(error)))
    return Frame(views, SystemClock().now())


async def _until_signal(work: Coroutine[None, None, None]) -> None:
    """Do the work until it is done, or until Ctrl-C or SIGTERM: then it is cancelled, once, and cleans up."""
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("there is no task to cancel")
    loop = asyncio.get_running_loop()
    signalled = False

    def end() -> None:
        nonlocal signalled
        if not signalled:
            signalled = True
            task.cancel()

    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    for number in signals:
        loop.add_signal_handler(number, end)
    try:
        await work
    except asyncio.CancelledError:
        if not signalled:
            raise
        task.uncancel()
    finally:
        for number in signals:
            loop.remove_signal_handler(number)


def _console(stream: TextIO) -> Console:
    """A console that never fails for a character its terminal does not have."""
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="replace")
    return Console(file=stream, highlight=False)


def _leaves(group: BaseExceptionGroup[DemoError]) -> Iterator[DemoError]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error
