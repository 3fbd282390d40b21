"""The other side of :mod:`tests.bench.cluster`: starts it, asks it, and starts a worker that reads it."""

import contextlib
import json
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen
from typing import Any, Final

from tests.bench.clients import Connections, get, trusting
from tests.bench.cluster import DEVICE_MANAGER_NAME
from tests.bench.measure import CLIENT_CORE, SERVER_CORE
from tests.bench.programs import environment, spoken, started

_WORKER_DEADLINE_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Cluster:
    """A running stand-in cluster.

    Attributes:
        folder: With ``ca.crt``, ``kubeconfig`` and the directories ``worker`` and ``worker-client``.
    """

    process: "Popen[str]"
    folder: Path

    def ask(self, line: str) -> Any:
        """Says a line and waits for the answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return json.loads(spoken(self.process))

    def counts(self) -> tuple[Mapping[str, int], Mapping[str, int]]:
        """Requests since the last reset: kubelet reads by path, others by verb and resource."""
        found = self.ask("counts")
        return found["kubelets"], found["others"]


@contextlib.contextmanager
def cluster(nodes: int, instances: int, folder: Path) -> Iterator[Cluster]:
    """A stand-in cluster on the clients' core."""
    command = [sys.executable, "-m", "tests.bench.cluster", str(nodes), str(instances), str(folder)]
    with started(command, environment(), CLIENT_CORE) as process:
        spoken(process)
        yield Cluster(process, folder)


@contextlib.contextmanager
def worker(of: Cluster, *flags: str) -> Iterator[tuple[int, int]]:
    """``devicemanager worker`` on the servers' core, ready: its process id and port."""
    folder = of.folder
    command = [
        *(sys.executable, "-P", "-m", "devicemanager.cli", "worker", "--log-format=json", "--log-level=info"),
        *(f"--kubeconfig={folder / 'kubeconfig'}", "--bind-address=127.0.0.1", "--secure-port=0"),
        *(f"--cert-dir={folder / 'worker'}", f"--device-manager-ca-file={folder / 'ca.crt'}"),
        f"--device-manager-client-cert-dir={folder / 'worker-client'}",
        f"--device-manager-server-name={DEVICE_MANAGER_NAME}",
        *flags,
    ]
    with started(command, environment(), SERVER_CORE) as process:
        port = _port(process)
        _until_ready(port, folder / "ca.crt")
        yield process.pid, port


def _until_ready(port: int, ca_file: Path) -> None:
    """Wait as a Service does; connections made before that are closed when the front proxy's CA comes."""
    until = time.monotonic() + _WORKER_DEADLINE_S
    while True:
        try:
            with Connections(port, trusting(ca_file), 1, first=get("/readyz")):
                return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


def _port(process: "Popen[str]") -> int:
    until = time.monotonic() + _WORKER_DEADLINE_S
    while time.monotonic() < until:
        event = json.loads(spoken(process))
        if event["event"] == "server_listening":
            return int(event["port"])
    raise TimeoutError("the worker does not listen")
