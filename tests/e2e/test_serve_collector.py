"""What the collector process of ``devicemanager serve`` is given, and what it may see of its parent."""

import os

from tests.e2e.device_manager import Serve

OURS = {
    "DEVICEMANAGER_NODE_NAME": "node-a",
    "KUBERNETES_SERVICE_HOST": "10.0.0.1",
    "HTTPS_PROXY": "http://user:password@proxy:3128",
}


def test_a_collector_inherits_what_libraries_read_and_nothing_of_ours(serve: Serve) -> None:
    manager = serve(
        "--manufacturer=simulated", "--no-pci-check", environment={**OURS, "LD_LIBRARY_PATH": "/opt/vendor/lib"}
    )
    manager.until_state("ok")
    (collector,) = manager.children()

    found = collector.environ()

    assert found["LD_LIBRARY_PATH"] == "/opt/vendor/lib"
    assert not OURS.keys() & found.keys()
    assert [name for name in found if name.startswith("DEVICEMANAGER_")] == ["DEVICEMANAGER_COLLECTOR_RUN"]


UNPRIVILEGED = """
import ctypes, os, sys
from devicemanager import cli
if os.getuid() == 0:
    os.setgroups([]), os.setgid(65534), os.setuid(65534)
ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # what setuid took away, as it is in a container that begins as this user
sys.exit(cli.main())
"""


def test_a_device_managers_memory_is_not_its_collectors_to_read(serve: Serve) -> None:
    """What the kernel keeps from a process's own user is root's in /proc; the collector's is its own."""
    manager = serve("--manufacturer=simulated", "--no-pci-check", code=UNPRIVILEGED)
    manager.until_state("ok")
    (collector,) = manager.children()

    assert os.stat(f"/proc/{manager.process.pid}/environ").st_uid == 0
    assert os.stat(f"/proc/{collector.pid}/environ").st_uid == collector.uids().real > 0
