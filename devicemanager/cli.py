"""The composition root: what ``devicemanager`` does, and where its programs are put together.

Each sub-command imports its rooms when it runs, so that a device manager does not pay for what a worker needs. Exit
codes: 0 done, 1 nothing could be read or a part ended unexpectedly, 2 wrong usage.
"""

import asyncio
import difflib
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import structlog

from devicemanager import __version__, logs
from devicemanager.clock import SystemClock
from devicemanager.demo_settings import DemoSettings
from devicemanager.errors import SettingsError
from devicemanager.flags import Conflict, Rules, Settings, no_rules
from devicemanager.instance_metrics_settings import InstanceMetricsSettings
from devicemanager.settings import (
    CollectingSettings,
    DetectSettings,
    LogSettings,
    MonitorSettings,
    ServerSettings,
    ServeSettings,
    SnapshotSettings,
    from_process,
)
from devicemanager.worker_settings import WorkerSettings

if TYPE_CHECKING:
    from devicemanager.tls import ServerIdentity

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 128 + signal.SIGINT

STUCK_AFTER_S: Final = 10.0
STUCK_AFTER_PERIODS: Final = 1.5
"""How far behind its own deadlines the supervisor may be before liveness fails; the longer of the two counts."""

EXTRAS: Final = {"kubernetes": "worker", "msgspec": "worker", "rich": "demo"}
"""Packages that not every installation has, and the extra that brings each."""

_LEFT_OVER_S: Final = 1
"""For threads after everything has ended; one that hangs in a file system would keep the process for ever."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Command:
    """One sub-command.

    Attributes:
        summary: One sentence, for ``--help``.
        settings: Its model.
        run: What it does; gets its settings and returns the exit code.
        rules: What must hold of its settings that they cannot know by themselves.
        serves: Whether it runs until it is told to end, and so logs to stdout instead of answering there.
    """

    summary: str
    settings: type[Settings]
    run: Callable[[Any], Coroutine[Any, Any, int]]
    rules: Rules = no_rules
    serves: bool = False


def main(arguments: Sequence[str] | None = None) -> int:
    """What the ``devicemanager`` program does. Returns the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    name, rest = (given[0], given[1:]) if given else ("", [])
    if name in {"version", "--version"}:
        print(f"devicemanager {__version__}")
        return EXIT_OK
    if name in {"", "help", "-h", "--help"}:
        print(_overview(), file=sys.stdout if name else sys.stderr)
        return EXIT_OK if name else EXIT_USAGE
    command = COMMANDS.get(name)
    if command is None:
        close = difflib.get_close_matches(name, [*COMMANDS, "version"], n=1)
        return _refuse(
            "devicemanager", [f"{name}: unknown command" + "".join(f"; did you mean {c}?" for c in close)]
        )
    if not {"-h", "--help"}.isdisjoint(rest):
        from devicemanager.usage import help_text

        print(help_text(f"devicemanager {name}", command.summary, command.settings))
        return EXIT_OK
    try:
        settings = from_process(command.settings, rest, command.rules)
        if isinstance(settings, LogSettings):
            logs.configure(settings.log_format, settings.log_level, sys.stdout if command.serves else sys.stderr)
        return _run(command, settings)
    except SettingsError as error:
        return _refuse(f"devicemanager {name}", error.problems)
    except ModuleNotFoundError as error:
        if error.name not in EXTRAS:
            raise
        extra = EXTRAS[error.name]
        print(
            f"devicemanager {name}: needs the package {error.name}: "
            f"pip install 'accelerator-device-manager[{extra}]'",
            file=sys.stderr,
        )
        return EXIT_FAILED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def _refuse(program: str, problems: Sequence[str]) -> int:
    for problem in problems:
        print(f"{program}: {problem}", file=sys.stderr)
    print(f"Try {program} --help.", file=sys.stderr)
    return EXIT_USAGE


def _overview() -> str:
    width = max(map(len, COMMANDS))
    commands = [f"  {name.ljust(width)}  {command.summary}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "Usage: devicemanager COMMAND [flags]",
            "",
            "What a node's accelerators do right now.",
            "",
            *commands,
            f"  {'version'.ljust(width)}  Print the version.",
            "",
            "devicemanager COMMAND --help shows the command's flags.",
        ]
    )


def _run(command: Command, settings: Settings) -> int:
    """Run to the end on the loop that needs the least memory for TLS: uvloop where it exists."""
    new_loop: Callable[[], asyncio.AbstractEventLoop]
    try:
        from uvloop import new_event_loop as new_loop
    except ImportError:
        new_loop = asyncio.new_event_loop
    with asyncio.Runner(loop_factory=new_loop) as runner:
        code = runner.run(command.run(settings))
        if command.serves:
            signal.signal(signal.SIGALRM, lambda *_: os._exit(code))
            signal.alarm(_LEFT_OVER_S)
    return code


def _one_manufacturer(settings: CollectingSettings) -> Iterable[Conflict]:
    from devicemanager import hardware

    return hardware.rules(settings)


def _named_manufacturer(settings: CollectingSettings) -> Iterable[Conflict]:
    from devicemanager import hardware

    return hardware.rules_for_a_name(settings)


async def _serve(settings: ServeSettings) -> int:
    from devicemanager import hardware, probes
    from devicemanager.lifecycle import serve_until_told
    from devicemanager.listener import Listener
    from devicemanager.node import server
    from devicemanager.node.exposition import Exposition
    from devicemanager.node.holder import Holder

    clock = SystemClock()
    manufacturer = hardware.manufacturer(settings)
    identity = await _identity(settings, settings.client_ca_file)
    holder = Holder(manufacturer, settings.monitor_period, settings.node_name, clock)
    supervisor = hardware.supervisor(settings, manufacturer, settings.monitor_period, holder)
    shutdown = probes.Shutdown()
    stuck_after_s = max(STUCK_AFTER_S, STUCK_AFTER_PERIODS * settings.monitor_period)
    app = server.build_app(
        holder=holder,
        exposition=Exposition(holder, lambda: identity.not_after, clock),
        access=server.ClientPolicy(
            certificate_required=settings.client_ca_file is not None,
            allowed_names=frozenset(settings.client_allowed_names),
        ),
        live=[
            probes.PING,
            server.progress_check(lambda: supervisor.last_progress_monotonic_s, stuck_after_s, clock),
        ],
        ready=[probes.PING, server.verdict_check(holder), shutdown.check],
        clock=clock,
        log=log,
    )
    listener = Listener(app, [(settings.address, settings.secure_port)], identity, log=log)
    if settings.allow_anonymous:
        log.warning("anonymous_access_allowed", address=settings.address)
    return await serve_until_told(
        listener,
        {"supervisor": supervisor.run, "certificates": identity.follow},
        shutdown,
        drain_s=settings.shutdown_timeout,
        log=log,
    )


async def _identity(settings: ServerSettings, client_cas: Path | None) -> "ServerIdentity":
    """Who a server is: the pair in its directory, or one made now; and whose clients it believes."""
    from devicemanager import tls
    from devicemanager.tls_material import Pair, PairFiles

    pair: Pair | PairFiles
    if settings.cert_dir is not None:
        pair = PairFiles.in_directory(settings.cert_dir)
    else:
        pair = await tls.self_signed_pair(settings.san)
        log.info("self_signed_certificate_made", not_after=pair.not_after.isoformat())
    return tls.ServerIdentity(pair, client_cas, clock=SystemClock(), log=log)


async def _monitor(settings: MonitorSettings) -> int:
    from devicemanager import look

    return await look.monitor(settings)


async def _detect(settings: DetectSettings) -> int:
    from devicemanager import look

    return await look.detect(settings)


async def _snapshot(settings: SnapshotSettings) -> int:
    from devicemanager import look

    return await look.served(settings)


async def _worker(settings: WorkerSettings) -> int:
    from devicemanager.worker import program

    return await program.run(settings)


async def _instance_metrics(settings: InstanceMetricsSettings) -> int:
    from devicemanager import instance_look

    return await instance_look.look(settings)


async def _demo(settings: DemoSettings) -> int:
    from devicemanager.demo import show

    return await show.run(settings)


COMMANDS: Final[Mapping[str, Command]] = {
    "serve": Command(
        "Sample one manufacturer's accelerators and serve the latest reading over HTTPS.",
        ServeSettings,
        _serve,
        _one_manufacturer,
        serves=True,
    ),
    "monitor": Command("Read every card once and print the figures.", MonitorSettings, _monitor, _one_manufacturer),
    "detect": Command(
        "Print what accelerators there are: on the PCI bus, and as their library knows them.",
        DetectSettings,
        _detect,
        _named_manufacturer,
    ),
    "snapshot": Command("Print what a running device manager serves.", SnapshotSettings, _snapshot),
    "worker": Command(
        "Serve each Instance's current CPU, memory, disk and accelerators as a Kubernetes API.",
        WorkerSettings,
        _worker,
        serves=True,
    ),
    "instance-metrics": Command("Print what one Instance uses now.", InstanceMetricsSettings, _instance_metrics),
    "demo": Command("Run all of it on this machine, without a cluster or an accelerator.", DemoSettings, _demo),
}
"""Sub-commands in the order in which they are shown."""


if __name__ == "__main__":
    sys.exit(main())
