"""Programs whose standard streams are missing, full, given up, or in an old encoding; each a process of its own."""

import os
import shlex
import signal
import socket
import subprocess
import sys
import time

import pytest

from devicemanager import streams

PROGRAM = f"{shlex.quote(sys.executable)} -m devicemanager.cli"
COLLECTOR = f"{shlex.quote(sys.executable)} -m collectors"
MONITOR = f"{PROGRAM} monitor --manufacturer=simulated"


def shell(line: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {line}"],
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_program_without_a_standard_stream_runs_as_with_it(closed: str) -> None:
    assert shell(f"{MONITOR} {closed}").returncode == 0


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-"])
def test_a_server_without_a_standard_stream_serves(closed: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    line = f"exec {PROGRAM} serve --manufacturer=simulated --secure-port={port} {closed}"
    with subprocess.Popen(["bash", "-c", line], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as program:
        try:
            deadline_s = time.monotonic() + 40
            while not _answers(port) and time.monotonic() < deadline_s and program.poll() is None:
                time.sleep(0.05)  # another process: nothing here can be waited on
            assert _answers(port)
        finally:
            program.terminate()
        assert program.wait(timeout=15) == 0


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False


def test_a_collector_without_standard_streams_ends_well() -> None:
    assert shell(f"{COLLECTOR} simulated --once <&- >&- 2>&-").returncode == 0


@pytest.mark.parametrize("program", [MONITOR, f"{COLLECTOR} simulated --once"])
def test_an_encoding_without_a_degree_sign_costs_the_sign_alone(program: str) -> None:
    printed = shell(program, LC_ALL="POSIX", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0", PYTHONIOENCODING="")

    assert printed.returncode == 0, printed.stderr
    assert "SIM-1" in printed.stdout
    assert "?C" in printed.stdout


@pytest.mark.parametrize("arguments", ["monitor --manufacturer=simulated", "--help", "serve --help", "version"])
def test_a_full_disk_is_one_line_and_1(arguments: str) -> None:
    printed = shell(f"{PROGRAM} {arguments} >/dev/full")

    assert printed.returncode == 1
    assert printed.stderr == "devicemanager: standard output cannot be written: No space left on device\n"


@pytest.mark.parametrize(
    ("program", "arguments"),
    [
        ("collectors", "simulated --once"),
        ("collectors", "simulated"),
        ("collectors", "--help"),
        ("devicemanager.tls.certificates", "self-signed"),
        ("devicemanager.tls.certificates", "client --help"),
    ],
)
def test_a_full_disk_is_one_line_of_the_modules_that_are_programs_too(program: str, arguments: str) -> None:
    printed = shell(f"{sys.executable} -m {program} {arguments} >/dev/full")

    assert printed.returncode == 1
    name = program.rpartition(".")[2]
    assert printed.stderr == f"{name}: standard output cannot be written: No space left on device\n"


def test_a_reader_that_leaves_is_no_complaint() -> None:
    printed = shell(f"{PROGRAM} serve --help | true")

    assert printed.returncode in {0, 128 + signal.SIGPIPE}  # whichever of the two was quicker
    assert printed.stderr == ""


def test_an_answer_obeys_no_name_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    streams.print_answer("GPU-\x1b[2J\x9b31m\u202e\rx\nnext line, 40 °C")
    assert capsys.readouterr().out == "GPU-\ufffd[2J\ufffd31m\ufffd\ufffdx\nnext line, 40 °C\n"
