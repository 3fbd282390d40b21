"""Programs under test, started as their users start them, and ended with the block."""

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Final

from devicemanager.tls.certificates import Authority
from tests.bench.measure import SERVER_CORE
from tests.bench.rivals import minimal_server as minimal
from tests.e2e.device_manager import DeviceManager
from tests.standins.nvml import NvmlStandin

ROOT: Final = Path(__file__).parents[2]
"""Of the repository: programs of the bench itself are started here."""

SERVER_NAME: Final = "device-manager.bench"


def environment(standin: NvmlStandin | None = None) -> Mapping[str, str]:
    """Of a child process. The stand-in writes no list of calls: that would be most of what is measured."""
    found = {name: value for name, value in os.environ.items() if not name.startswith("DEVICEMANAGER_")}
    if standin is not None:
        found |= {name: value for name, value in standin.environment.items() if name != "NVML_STANDIN_CALLS"}
    return found


def certificates(folder: Path) -> tuple[Path, Path, Path]:
    """A CA's certificate, a serving pair's directory, and a client pair's directory."""
    authority = Authority.create("bench CA")
    ca_file = folder / "ca.crt"
    ca_file.write_bytes(authority.pem.certificate)
    authority.serving([SERVER_NAME, "127.0.0.1", "localhost"]).write(folder / "serving")
    authority.client("bench-client").write(folder / "client")
    return ca_file, folder / "serving", folder / "client"


@contextlib.contextmanager
def device_manager(
    folder: Path, standin: NvmlStandin, *flags: str, looked_at: bool = True
) -> Iterator[DeviceManager]:
    """``devicemanager serve`` on the stand-in's cards, once its first sample is there if anyone may look at it."""
    running = DeviceManager(["--manufacturer=nvidia", "--no-pci-check", *flags], environment(standin), folder)
    try:
        if looked_at:
            running.until(lambda seen: seen["collector"]["state"] == "ok")
        yield running
    finally:
        running.kill()


def collector_of(running: DeviceManager) -> int:
    """The process id of its one collector."""
    (child,) = running.children()
    return int(child.pid)


@contextlib.contextmanager
def minimal_server(folder: Path, path: str, body: bytes, cert_dir: Path) -> Iterator[tuple[int, int]]:
    """The rival of our servers with the same bytes, on the servers' core: its process id and port."""
    body_file = folder / "body"
    body_file.write_bytes(body)
    command = [sys.executable, minimal.__file__, path, str(body_file), str(cert_dir)]
    with started(command, environment()) as process:
        yield process.pid, int(spoken(process))


@contextlib.contextmanager
def started(
    command: Sequence[str], variables: Mapping[str, str], core: int = SERVER_CORE
) -> Iterator["Popen[str]"]:
    """A program that says on its standard output how far it is; pinned to a core, and killed with the block."""
    with Popen(
        ["taskset", "-c", str(core), *command], env=variables, cwd=ROOT, stdin=PIPE, stdout=PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def spoken(process: "Popen[str]") -> str:
    """The next line that it says.

    Raises:
        RuntimeError: It ended instead.
    """
    line = process.stdout.readline() if process.stdout is not None else ""
    if not line:
        raise RuntimeError(f"the program ended with {process.wait()}")
    return line.strip()
