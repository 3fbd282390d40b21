"""The command line: which programs there are, and what their exit codes say. The programs run in tests/e2e."""

import inspect
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pkgutil import resolve_name

import pytest

from devicemanager import __version__, cli
from devicemanager.cli import COMMANDS, Command, main
from devicemanager.errors import SettingsError
from devicemanager.settings.flags import Settings
from devicemanager.settings.output import LogSettings


@pytest.mark.parametrize("name", COMMANDS)
def test_every_program_is_what_the_table_says(name: str) -> None:
    command = COMMANDS[name]

    model = resolve_name(command.settings)

    assert issubclass(model, LogSettings)
    assert inspect.iscoroutinefunction(resolve_name(command.run))
    assert callable(resolve_name(command.rules))
    assert command.summary.endswith(".")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_program_has_its_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0

    printed = capsys.readouterr()
    assert printed.out.startswith(f"Usage: devicemanager {name} ")
    assert COMMANDS[name].summary in " ".join(printed.out.split())
    assert printed.err == ""


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["help"]])
def test_help_lists_every_program(arguments: Sequence[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 0

    printed = capsys.readouterr().out
    assert all(f"  {name} " in printed for name in [*COMMANDS, "version"])


def test_nothing_asked_for_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2

    printed = capsys.readouterr()
    assert (printed.out, printed.err[:6]) == ("", "Usage:")


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_the_version_has_help_as_every_command(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version", flag]) == 0
    assert capsys.readouterr().out == "Usage: devicemanager version\n\nPrint the version.\n"


def test_the_version_takes_no_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version", "--short"]) == 2

    assert capsys.readouterr().err == "devicemanager: version: takes no arguments\nTry devicemanager --help.\n"


@pytest.mark.parametrize("arguments", [["version"], ["--version"]])
def test_version(arguments: Sequence[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 0

    assert capsys.readouterr().out == f"devicemanager {__version__}\n"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("monitr", "devicemanager: monitr: unknown command; did you mean monitor?\n"),
        ("xyzzy", "devicemanager: xyzzy: unknown command\n"),
    ],
)
def test_unknown_programs(name: str, expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name]) == 2

    assert capsys.readouterr().err == f"{expected}Try devicemanager --help.\n"


def test_the_arguments_of_the_process_are_the_default(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["devicemanager", "version"])

    assert main() == 0

    assert __version__ in capsys.readouterr().out


async def _refuses(_settings: Settings) -> int:
    raise SettingsError(["--cert-dir=/x: one problem", "--san=y: another"])


async def _is_interrupted(_settings: Settings) -> int:
    raise KeyboardInterrupt


async def _needs_more(_settings: Settings) -> int:
    raise ModuleNotFoundError("No module named 'rich'", name="rich")


async def _is_broken(_settings: Settings) -> int:
    raise ModuleNotFoundError("No module named 'devicemanager.gone'", name="devicemanager.gone")


async def _answers(_settings: Settings) -> int:
    return 1


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts programs in place that end in every way."""
    commands: Mapping[str, Command] = {
        run.__name__: Command(
            "Ends.", "devicemanager.settings.flags:Settings", f"{__name__}:{run.__name__}", extra="demo"
        )
        for run in (_refuses, _is_interrupted, _needs_more, _is_broken, _answers)
    }
    monkeypatch.setattr(cli, "COMMANDS", commands)
    monkeypatch.setattr(
        cli, "resolve_name", lambda name: globals().get(name.partition(":")[2]) or resolve_name(name)
    )


@pytest.mark.usefixtures("programs")
def test_what_a_program_returns_is_the_exit_code() -> None:
    assert main(["_answers"]) == 1


@pytest.mark.usefixtures("programs")
def test_settings_that_turn_out_wrong_later_are_reported_alike(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["_refuses"]) == 2

    assert capsys.readouterr().err.splitlines() == [
        "devicemanager _refuses: --cert-dir=/x: one problem",
        "devicemanager _refuses: --san=y: another",
        "Try devicemanager _refuses --help.",
    ]


@pytest.mark.usefixtures("programs")
def test_an_interrupt_is_no_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["_is_interrupted"]) == 130

    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("programs")
def test_what_is_not_installed_is_named_with_the_way_to_get_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["_needs_more"]) == 1

    assert capsys.readouterr().err == (
        "devicemanager _needs_more: the Python package rich is not installed: "
        "pip install 'accelerator-device-manager[demo]'\n"
    )


@pytest.mark.usefixtures("programs")
def test_an_import_error_of_our_own_is_not_taken_for_a_missing_package() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"devicemanager\.gone"):
        main(["_is_broken"])


STARTING = """
import asyncio, sys
from devicemanager import cli

async def starting(settings):
    print("starting", flush=True)
    await asyncio.Event().wait()

SETTINGS = "devicemanager.settings.flags:Settings"
cli.COMMANDS = {"start": cli.Command("Starts.", SETTINGS, "__main__:starting", serves=True)}
sys.exit(cli.main(["start"]))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_a_server_that_is_told_to_end_before_it_serves_ends_at_once_with_0(number: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", STARTING], stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == b"starting\n"
        program.send_signal(number)
        assert program.wait(timeout=10) == 0
