"""The chart on a real control plane, and its worker as a process that answers on its Service's address."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.chart.binaries import Helm
from tests.chart.conftest import CHART
from tests.chart.installed import Installed, the
from tests.control_plane.cluster import ControlPlane, run
from tests.timing import wait_until

NAMESPACE = "accelerators"
RELEASE = "devicemanager"
GROUP = "worker.gpustack.ai"
NODE = "node-a"
WORKER = f"{RELEASE}-worker"
CLUSTER_ROLE = f"{NAMESPACE}:{WORKER}"
VALUES = {
    "manufacturers.nvidia.enabled": "false",
    "manufacturers.simulated.enabled": "true",
    "instanceCrd.create": "true",
    "worker.replicas": "1",
    "worker.logLevel": "debug",
    "worker.extraArgs": "{--log-format=json}",
    "worker.shutdownDelaySeconds": "0",
}


def flags(values: Mapping[str, str]) -> list[str]:
    """``--set`` for each."""
    return [word for key, value in values.items() for word in ("--set", f"{key}={value}")]


def helm(cluster: ControlPlane, binary: Helm, *arguments: str) -> str:
    """What helm printed. Raises CommandError."""
    return run([str(binary.path), *arguments, "--namespace", NAMESPACE], cluster.environment())


def install(cluster: ControlPlane, binary: Helm, *more: str) -> str:
    """The chart, with the values above and more words behind."""
    command = ["install", RELEASE, str(CHART), "--create-namespace", *flags(VALUES), *more]
    return helm(cluster, binary, *command)


class Worker:
    """The worker of a release: the container's own arguments, Secrets and account, outside of a container.

    It listens on the ClusterIP of its Service itself: there is no kube-proxy to forward. Its pod is marked by hand
    as running, so that the control plane counts it as an endpoint.
    """

    def __init__(self, cluster: ControlPlane, folder: Path) -> None:
        """Take what it needs from the cluster.

        Args:
            cluster: With the chart installed.
            folder: Empty, for its files and its log.
        """
        self._cluster = cluster
        self.log = folder / "log"
        service = wait_until(lambda: cluster.get("service", WORKER, NAMESPACE), "the Service")
        self._address = service["spec"]["clusterIP"]
        token = cluster.kubectl("create", "token", WORKER, "-n", NAMESPACE).strip()
        installed = Installed(_objects(cluster), the(_objects(cluster), "Deployment", "-worker"), folder)
        last_wins = ["--secure-port=443", f"--bind-address={self._address}"]
        self._command = [*installed.arguments, *last_wins, f"--kubeconfig={cluster.kubeconfig(token)}"]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Run the program, and wait until the control plane takes it for available."""
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "devicemanager.cli", *self._command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._mark_ready()
        wait_until(lambda: self.condition() == "Passed", "the APIService is available")

    def stop(self) -> None:
        """Ends the program; its pod still counts as an endpoint, as that of a node that has died does."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(30)
            self._process = None

    def condition(self) -> str | None:
        """The reason of the APIService's condition."""
        found = self._cluster.get("apiservice", f"v1.{GROUP}")
        conditions = (found or {}).get("status", {}).get("conditions", [])
        return next((str(one["reason"]) for one in conditions if one["type"] == "Available"), None)

    def logged(self) -> str:
        """What it has logged since its start."""
        return self.log.read_text()

    def _mark_ready(self) -> None:
        name = wait_until(self._pod, "the Deployment has made its pod")
        self._cluster.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "target": {"apiVersion": "v1", "kind": "Node", "name": NODE},
        }
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{name}"
        if "nodeName" not in (self._cluster.get("pod", name, NAMESPACE) or {})["spec"]:
            self._cluster.kubectl("create", "--raw", f"{path}/binding", "-f", "-", stdin=json.dumps(binding))
        status = {
            "phase": "Running",
            "podIP": self._address,
            "podIPs": [{"ip": self._address}],
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        patch = ["--subresource=status", "--type=merge", "-p", json.dumps({"status": status})]
        self._cluster.kubectl("patch", "pod", name, "-n", NAMESPACE, *patch)

    def _pod(self) -> str:
        """Its name; nothing yet. One of an earlier release stays for ever, as no kubelet says that it has ended."""
        selector = "app.kubernetes.io/component=worker"
        listed = json.loads(self._cluster.kubectl("get", "pods", "-n", NAMESPACE, "-l", selector, "-o", "json"))
        pods = [item["metadata"] for item in listed["items"]]
        return next((pod["name"] for pod in pods if "deletionTimestamp" not in pod), "")


@contextmanager
def running_worker(cluster: ControlPlane, folder: Path) -> Iterator[Worker]:
    """A worker that is available, for as long as the block runs."""
    worker = Worker(cluster, folder)
    try:
        worker.start()
        yield worker
    finally:
        worker.stop()


def _objects(cluster: ControlPlane) -> Sequence[Mapping[str, Any]]:
    listed = cluster.kubectl("get", "deployments,secrets", "-n", NAMESPACE, "-o", "json")
    items: list[Mapping[str, Any]] = json.loads(listed)["items"]
    return items
