"""``devicemanager demo``: starts the chain, shows the figures, and stops everything."""

import asyncio
import sys
from collections.abc import Coroutine
from typing import Final, TextIO, cast

from rich.console import Console
from rich.live import Live
from rich.text import Text

from devicemanager.clock import SystemClock
from devicemanager.demo.chain import API_GROUP, Chain, running_chain
from devicemanager.demo.fixtures import INSTANCES, NAMESPACE
from devicemanager.demo.live import Frame, View
from devicemanager.demo.processes import DemoError
from devicemanager.errors import OutputError, leaves
from devicemanager.programs.present import document
from devicemanager.settings.demo import DemoSettings
from devicemanager.settings.output import Output
from devicemanager.settings.process import environment_of_children
from devicemanager.signals import ENDING, handled
from devicemanager.streams import AnswerStream, print_answer
from devicemanager.wire import instance_metrics

_REFRESH_S: Final = 1.0
_FAILED: Final = 1


async def run(settings: DemoSettings) -> int:
    """Run the demo until it is done or gets a signal; everything it started has ended when it returns.

    Returns:
        0, also after a signal such as SIGTERM; 1 when something could not be started or ended by itself, which
        standard error explains.
    """
    notes = _console(sys.stderr)
    failed = False
    try:
        await _until_signal(_run_chain(settings, notes))
    except* DemoError as group:
        failed = True
        for error in leaves(group):
            notes.print(Text.assemble(("devicemanager demo: ", "bold red"), str(error)), soft_wrap=True)
    except* OutputError as group:
        raise next(leaves(group)) from None
    return _FAILED if failed else 0


async def _run_chain(settings: DemoSettings, notes: Console) -> None:
    waiting = notes.status("Starting a stand-in cluster, two device managers and the worker")
    waiting.start()
    try:
        async with running_chain(environment_of_children(), settings.port, settings.kubeconfig) as chain:
            waiting.stop()
            if settings.once:
                await _once(chain, settings.output)
            else:
                await _serve(chain, _console(cast("TextIO", AnswerStream())))
    finally:
        waiting.stop()


async def _once(chain: Chain, output: Output) -> None:
    """Print one merged sample of each Instance."""
    if output is Output.TABLE:
        _console(cast("TextIO", AnswerStream())).print(await _frame(chain))
        return
    usages = await chain.read_all()
    text = document(instance_metrics.list_document(usages, api_group=API_GROUP), output)
    print_answer(text)


async def _serve(chain: Chain, console: Console) -> None:
    """Print how to read the figures, then refresh them in place.

    Where the output is a file, a pipe or a dumb terminal they are printed once, and the chain goes on serving.
    """
    _print_introduction(chain, console)
    if not console.is_terminal or console.is_dumb_terminal:
        console.print(await _frame(chain))
        await asyncio.Event().wait()
    with Live(await _frame(chain), console=console, auto_refresh=False, vertical_overflow="crop") as live:
        while True:
            await asyncio.sleep(_REFRESH_S)
            live.update(await _frame(chain), refresh=True)


def _print_introduction(chain: Chain, console: Console) -> None:
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
    """Do the work until it is done, or until the first signal that ends programs, which cancels it."""
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("there is no task to cancel")
    loop = asyncio.get_running_loop()
    signalled = False

    def cancel_once() -> None:
        nonlocal signalled
        if not signalled:
            signalled = True
            task.cancel()

    signals = handled(ENDING)
    for number in signals:
        loop.add_signal_handler(number, cancel_once)
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
    """A console that replaces characters its terminal cannot show."""
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="replace")
    return Console(file=stream, highlight=False)
