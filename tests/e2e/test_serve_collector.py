"""What the collector process of ``devicemanager serve`` is given, and what it may see of its parent."""

import os
from pathlib import Path

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


WATCHED = """
import ctypes, json, sys
from devicemanager import cli
from devicemanager.programs import hardware

supervised = hardware.supervised

def seen(*arguments):
    print(json.dumps({"event": "is_dumpable", "value": ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)}), flush=True)
    return supervised(*arguments)

hardware.supervised = seen
sys.exit(cli.main())
"""
"""A device manager that says, before it starts a collector, whether the kernel lets its user look into it."""


def test_a_device_managers_memory_is_not_its_collectors_to_read(serve: Serve) -> None:
    manager = serve("--manufacturer=simulated", "--no-pci-check", code=WATCHED)
    assert manager.event("is_dumpable")["value"] == 0


def test_a_collector_holds_pipes_and_no_socket_of_the_device_managers(serve: Serve) -> None:
    manager = serve("--manufacturer=simulated", "--no-pci-check")
    manager.until_state("ok")
    (collector,) = manager.children()
    held = [os.readlink(path) for path in Path(f"/proc/{collector.pid}/fd").iterdir()]
    assert [what for what in held if what.startswith("pipe:")]
    assert not [what for what in held if what.startswith("socket:")]
    served = {os.readlink(path) for path in Path(f"/proc/{manager.process.pid}/fd").iterdir()}
    assert [what for what in served if what.startswith("socket:")]
