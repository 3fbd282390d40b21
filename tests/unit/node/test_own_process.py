"""What the kernel keeps from other processes of the same user."""

import subprocess
import sys

PROGRAM = """
import ctypes, os, sys
from devicemanager.node.own_process import keep_memory_private
if os.getuid() == 0:
    os.setgid(65534), os.setuid(65534)  # root may look into any process
ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # as open as a program is when it starts
if "private" in sys.argv:
    keep_memory_private()
parent = os.getpid()
if os.fork() == 0:
    refused = []
    for name in ("environ", "fd", "maps"):
        try:
            (os.listdir if name == "fd" else lambda path: open(path, "rb").read(1))(f"/proc/{parent}/{name}")
        except PermissionError:
            refused.append(name)
    print(*refused, len(os.listdir("/proc/self/fd")) > 0, flush=True)
    os._exit(0)
os.wait()
print("own", len(os.listdir("/proc/self/fd")) > 0, len(open("/proc/self/status").read()) > 0)
"""


def said(*arguments: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], check=True, capture_output=True, text=True, timeout=30
    )
    return done.stdout.splitlines()


def test_a_child_reads_neither_memory_nor_environment_nor_descriptors_of_its_parent() -> None:
    assert said("private") == ["environ fd maps True", "own True True"]


def test_without_it_a_child_reads_all_of_them() -> None:
    """So that the test above can fail."""
    assert said() == ["True", "own True True"]
