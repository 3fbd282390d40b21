"""A device manager as process 1 of a container: it is the parent of every orphan there."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
import pytest

from tests.e2e.device_manager import environment
from tests.timing import wait_until

NAMESPACE: Sequence[str] = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")

IMPATIENT = """
import sys
from devicemanager import cli
from devicemanager.node import leftovers

leftovers._LOOK_EVERY_S = 0.1
sys.exit(cli.main())
"""


def namespaces_can_be_made() -> bool:
    try:
        return subprocess.run([*NAMESPACE, "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


pytestmark = pytest.mark.skipif(not namespaces_can_be_made(), reason="needs the right to make a PID namespace")


@pytest.fixture
def process_1(tmp_path: Path) -> Iterator[psutil.Process]:
    """A device manager that has a collector process, alone in a PID namespace."""
    program = [sys.executable, "-P", "-c", IMPATIENT, "serve", "--manufacturer=simulated", "--secure-port=0"]
    with (
        (tmp_path / "log").open("wb") as log,
        subprocess.Popen([*NAMESPACE, *program], stdout=log, env=environment({}), cwd=tmp_path) as unshare,
    ):
        outside = psutil.Process(unshare.pid)
        (manager,) = wait_until(lambda: outside.children(), "a process in the namespace")
        wait_until(lambda: "collectors" in commands(manager), "a collector process")
        yield manager
        unshare.kill()


def orphan(manager: psutil.Process, command: str) -> None:
    """Have a shell in the namespace start a command and end before it, as ``kubectl exec`` may."""
    entered = ["nsenter", "--target", str(manager.pid), "--pid", "--mount", "sh", "-c", f"{command} &"]
    subprocess.run(entered, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def commands(manager: psutil.Process) -> list[str]:
    """All words of the commands of its children; of one that has ended, its name."""
    words = []
    for child in manager.children():
        try:
            words += [child.name(), *child.cmdline()]
        except psutil.ZombieProcess:
            words.append(child.name())
    return words


def test_orphans_of_a_shell_are_left_alone_and_reaped_when_they_end(process_1: psutil.Process) -> None:
    collectors = process_1.children()
    orphan(process_1, "sleep 3600")
    orphan(process_1, "true")
    (sleeping,) = wait_until(lambda: [c for c in process_1.children() if c.name() == "sleep"], "the orphan")
    wait_until(lambda: "true" not in commands(process_1), "the end of a zombie")
    assert sleeping.is_running()

    sleeping.terminate()

    wait_until(lambda: "sleep" not in commands(process_1), "the end of a zombie")
    assert process_1.children() == collectors


def test_it_ends_with_0_as_process_1_too(process_1: psutil.Process) -> None:
    unshare = process_1.parent()
    assert unshare is not None
    process_1.terminate()

    assert unshare.wait(20) in (0, None)
