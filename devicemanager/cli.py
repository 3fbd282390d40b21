"""The composition root: which programs there are, and how each is started and ended.

A program is named here and loaded when it runs, so that a device manager does not pay for what a worker needs. Exit
codes: 0 done, 1 nothing could be read or a part ended unexpectedly, 2 wrong usage.
"""

import asyncio
import contextlib
import difflib
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Final

import structlog

from devicemanager import __version__, logs, streams
from devicemanager.errors import SettingsError
from devicemanager.settings.flags import Settings, effective, with_flags
from devicemanager.settings.output import LogSettings
from devicemanager.settings.process import from_process
from devicemanager.signals import ENDING, handled

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 128 + signal.SIGINT

_EXTRAS: Final = {"kubernetes": "cli"}
"""Packages that are not in the extra of every command that may need them, and the extra they are in."""

_VERSION_SUMMARY: Final = "Print the version."

_LEFT_OVER_S: Final = 1
"""For threads at the end; one that hangs in a file system must not keep the process."""


@dataclass(frozen=True, slots=True)
class Command:
    """One sub-command. What it is made of is named as ``module:name``, and loaded when it runs.

    Attributes:
        summary: One sentence, for ``--help``.
        settings: Its model.
        run: Coroutine function that takes the settings and returns the exit code.
        rules: What must hold of its settings that they cannot know by themselves.
        extra: What must be installed beside the package itself.
        serves: Whether it runs until it is told to end, and so logs to stdout instead of answering there.
    """

    summary: str
    settings: str
    run: str
    rules: str = "devicemanager.settings.loading:no_rules"
    extra: str | None = None
    serves: bool = False


COMMANDS: Final[Mapping[str, Command]] = {
    "serve": Command(
        "Sample one manufacturer's accelerators and serve the latest reading over HTTPS.",
        "devicemanager.settings.node:ServeSettings",
        "devicemanager.programs.serve:serve",
        "devicemanager.programs.hardware:rules_for_serving",
        serves=True,
    ),
    "monitor": Command(
        "Read every card once and print the figures.",
        "devicemanager.settings.node:MonitorSettings",
        "devicemanager.programs.inspect:monitor",
        "devicemanager.programs.hardware:rules",
    ),
    "detect": Command(
        "Print what accelerators there are: on the PCI bus, and as their library knows them.",
        "devicemanager.settings.node:DetectSettings",
        "devicemanager.programs.inspect:detect",
        "devicemanager.programs.hardware:rules_for_a_name",
    ),
    "snapshot": Command(
        "Print what a running device manager serves.",
        "devicemanager.settings.node:SnapshotSettings",
        "devicemanager.programs.inspect:served",
    ),
    "worker": Command(
        "Serve each Instance's current sample as an aggregated Kubernetes API.",
        "devicemanager.settings.worker:WorkerSettings",
        "devicemanager.programs.worker:run",
        extra="worker",
        serves=True,
    ),
    "instance-metrics": Command(
        "Print what one Instance uses now.",
        "devicemanager.settings.instance_metrics:InstanceMetricsSettings",
        "devicemanager.programs.instance_metrics:run",
        extra="cli",
    ),
    "demo": Command(
        "Show the whole chain on this machine, without a cluster or an accelerator.",
        "devicemanager.settings.demo:DemoSettings",
        "devicemanager.programs.demo:run",
        extra="demo",
    ),
}
"""Sub-commands in the order in which they are shown."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the ``devicemanager`` program. Returns the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    return streams.answering("devicemanager", lambda: _logging(given))


def _logging(given: Sequence[str]) -> int:
    try:
        return _answer(given)
    finally:
        logs.finish()


def _answer(given: Sequence[str]) -> int:
    name, rest = (given[0], given[1:]) if given else ("", [])
    if name == "version" and not {"-h", "--help"}.isdisjoint(rest):
        streams.print_answer(f"Usage: devicemanager version\n\n{_VERSION_SUMMARY}")
        return EXIT_OK
    if name in {"version", "--version"} and rest:
        return _refuse("devicemanager", [f"{name}: takes no arguments"])
    if name in {"version", "--version"}:
        streams.print_answer(f"devicemanager {__version__}")
        return EXIT_OK
    if name in {"help", "-h", "--help"}:
        streams.print_answer(_overview())
        return EXIT_OK
    if not name:
        print(_overview(), file=sys.stderr)
        return EXIT_USAGE
    command = COMMANDS.get(name)
    if command is None:
        close = difflib.get_close_matches(name, [*COMMANDS, "version"], n=1)
        return _refuse(
            "devicemanager", [f"{name}: unknown command{''.join(f'; did you mean {c}?' for c in close)}"]
        )
    program = f"devicemanager {name}"
    try:
        return _start(program, command, rest)
    except SettingsError as error:
        return _refuse(program, error.problems)
    except ModuleNotFoundError as error:
        if command.extra is None or (error.name or "").startswith(("devicemanager", "collectors")):
            raise
        extra = _EXTRAS.get(error.name or "", command.extra)
        needed = f"pip install 'accelerator-device-manager[{extra}]'"
        print(f"{program}: the Python package {error.name} is not installed: {needed}", file=sys.stderr)
        return EXIT_FAILED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def _start(program: str, command: Command, arguments: Sequence[str]) -> int:
    model: type[Settings] = resolve_name(command.settings)
    if not {"-h", "--help"}.isdisjoint(arguments):
        from devicemanager.settings.usage import help_text

        streams.print_answer(help_text(program, command.summary, model))
        return EXIT_OK
    settings = from_process(model, arguments, resolve_name(command.rules))
    if isinstance(settings, LogSettings):
        stream = sys.stdout if command.serves else sys.stderr
        logs.configure(settings.log_format, settings.log_level, stream, queued=command.serves)
        if command.serves:
            log = structlog.get_logger()
            log.info("program_started", program=program, version=__version__, settings=effective(settings))
    try:
        return _run(command, settings)
    except SettingsError as error:
        raise SettingsError(with_flags(settings, error.problems)) from error


def _run(command: Command, settings: Settings) -> int:
    """Run to the end on the loop that needs the least memory for TLS: uvloop where it exists."""
    if command.serves:
        # Until it handles the signal itself: by default, the first process of a container does not end by one.
        for number in handled(number for number in ENDING if number is not signal.SIGINT):
            signal.signal(number, lambda *_: os._exit(EXIT_OK))
    new_loop: Callable[[], asyncio.AbstractEventLoop]
    try:
        from uvloop import new_event_loop as new_loop
    except ImportError:
        new_loop = asyncio.new_event_loop
    with _without_system_authorities():
        run = resolve_name(command.run)
    try:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            code: int = runner.run(run(settings))
            if command.serves:
                signal.signal(signal.SIGALRM, lambda *_: os._exit(code))
                signal.alarm(_LEFT_OVER_S)
    finally:
        if command.serves:
            _ignore_late_signals()
    return code


def _ignore_late_signals() -> None:
    """Ignore signals at the end of the program, so that they do not change its exit code.

    The interpreter takes its time to end where processors are scarce, and puts default actions back on the way.
    """
    signal.alarm(0)
    for number in (signal.SIGALRM, *ENDING):
        signal.signal(number, signal.SIG_IGN)


@contextlib.contextmanager
def _without_system_authorities() -> Iterator[None]:
    """Keep imported packages from loading the system's CAs, which costs 2 MiB and 60 ms at each start.

    aiohttp fills a context with them as it is imported. Nothing of ours asks through that one: each connection is
    given a context of its own, made later.
    """
    names = ("SSL_CERT_FILE", "SSL_CERT_DIR")
    given = {name: os.environ.pop(name, None) for name in names}  # noqa: TID251 - not a setting, and put back
    os.environ.update(dict.fromkeys(names, os.devnull))  # noqa: TID251
    try:
        yield
    finally:
        for name, value in given.items():
            if value is None:
                del os.environ[name]  # noqa: TID251
            else:
                os.environ[name] = value  # noqa: TID251


def _refuse(program: str, problems: Sequence[str]) -> int:
    for problem in problems:
        print(f"{program}: {problem}", file=sys.stderr)
    print(f"Try {program} --help.", file=sys.stderr)
    return EXIT_USAGE


def _overview() -> str:
    shown = {name: command.summary for name, command in COMMANDS.items()} | {"version": _VERSION_SUMMARY}
    width = max(map(len, shown))
    return "\n".join(
        [
            "Usage: devicemanager COMMAND [flags]",
            "",
            "What a node's accelerators do right now, and what one workload uses of them.",
            "",
            *(f"  {name.ljust(width)}  {summary}" for name, summary in shown.items()),
            "",
            "devicemanager COMMAND --help shows the command's flags.",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
