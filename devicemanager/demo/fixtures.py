"""The demo's node, vendors and Instances, and the certificates and flags of each program."""

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

from devicemanager.demo.cluster.objects import SYSTEM_NAMESPACE, Amounts, Grant, InstanceSpec
from devicemanager.tls.certificates import Authority
from devicemanager.tls.private_files import write_whole

NODE: Final = "demo-node"
NAMESPACE: Final = "team-a"
WORKER_CLIENT_NAME: Final = "devicemanager-worker"
DEVICE_MANAGER_NAME: Final = f"device-manager.{SYSTEM_NAMESPACE}.svc"
WORKER_SERVICE: Final = f"devicemanager-worker.{SYSTEM_NAMESPACE}.svc"

KUBELET_STEP: Final = timedelta(seconds=1)
"""How often the kubelet measures and is asked; a real one measures every 10 to 15 s."""


@dataclass(frozen=True, slots=True)
class SimulatedVendor:
    """A simulated manufacturer.

    Attributes:
        name: As ``--manufacturer``, annotations and samples spell it.
        address: Where its device manager listens: a loopback address of its own, as a pod has.
        scenario: How its cards behave, TOML in the format of ``docs/simulated.md``.
    """

    name: str
    address: str
    scenario: str

    def card(self, index: int) -> str:
        """The id of one of its cards."""
        return f"SIM-{self.name.removeprefix('simulated-')}-{index}"


AURORA: Final = SimulatedVendor(
    "simulated-aurora",
    "127.0.0.2",
    """\
count = 2
[card]
name = "Aurora A80"
memory_mib = 81920
load = {shape = "sine", low = 20, high = 95, period = "50s"}
""",
)
BOREALIS: Final = SimulatedVendor(
    "simulated-borealis",
    "127.0.0.3",
    """\
count = 2
[card]
name = "Borealis B64"
memory_mib = 65536
power_watts = {idle = 40, full = 350}
load = {shape = "sine", low = 5, high = 80, period = "35s"}
""",
)
VENDORS: Final = (AURORA, BOREALIS)

INSTANCES: Final = (
    InstanceSpec(
        NAMESPACE,
        "chat",
        NODE,
        [Grant(AURORA.name, AURORA.card(0), 0)],
        labels={"app": "chat"},
        limits=Amounts(cpu="4", memory="8Gi", ephemeral_storage="20Gi"),
    ),
    InstanceSpec(
        NAMESPACE,
        "train",
        NODE,
        [Grant(AURORA.name, AURORA.card(1), 1), Grant(BOREALIS.name, BOREALIS.card(0), 0)],
        labels={"app": "train"},
        limits=Amounts(cpu="16", memory="64Gi", ephemeral_storage="100Gi"),
        requests=Amounts(cpu="8", memory="48Gi", ephemeral_storage="50Gi"),
    ),
)
"""One with one card, one with two cards of two manufacturers; the fourth card is allocated to none."""


@dataclass(frozen=True, slots=True)
class CertificateStore:
    """The programs' certificates, all signed by one authority.

    Attributes:
        folder: Holds one directory for each program, also with its other files.
        authority: Device managers and the worker verify each other's certificates with it.
    """

    folder: Path
    authority: Authority

    @property
    def ca_file(self) -> Path:
        """The authority's certificate."""
        path = self.folder / "ca.crt"
        if not path.exists():
            path.write_bytes(self.authority.pem.certificate)
        return path


def serve_arguments(vendor: SimulatedVendor, certificates: CertificateStore) -> list[str]:
    """The arguments of a device manager that serves the worker only; writes its certificate and scenario."""
    own = certificates.folder / vendor.name
    certificates.authority.serving([DEVICE_MANAGER_NAME, vendor.address]).write(own)
    scenario = own / "scenario.toml"
    scenario.write_text(vendor.scenario)
    return [
        "serve",
        f"--manufacturer={vendor.name}",
        f"--simulated-scenario={scenario}",
        "--no-pci-check",
        "--monitor-period=1s",
        f"--node-name={NODE}",
        f"--bind-address={vendor.address}",
        "--secure-port=0",
        f"--cert-dir={own}",
        f"--client-ca-file={certificates.ca_file}",
        f"--client-allowed-names={WORKER_CLIENT_NAME}",
    ]


def worker_arguments(kubeconfig: str, api_group: str, certificates: CertificateStore) -> list[str]:
    """The arguments of the worker; writes its kubeconfig, its serving certificate and its client certificate."""
    serving, client = certificates.folder / "worker", certificates.folder / "worker-client"
    certificates.authority.serving([WORKER_SERVICE]).write(serving)
    certificates.authority.client(WORKER_CLIENT_NAME).write(client)
    write_whole(serving / "kubeconfig", kubeconfig.encode())
    return [
        "worker",
        f"--kubeconfig={serving / 'kubeconfig'}",
        "--bind-address=127.0.0.1",
        "--secure-port=0",
        f"--cert-dir={serving}",
        f"--api-group={api_group}",
        f"--kubelet-max-age={KUBELET_STEP.total_seconds():.0f}s",
        "--snapshot-max-age=500ms",
        f"--device-manager-namespace={SYSTEM_NAMESPACE}",
        f"--device-manager-ca-file={certificates.ca_file}",
        f"--device-manager-client-cert-dir={client}",
        f"--device-manager-server-name={DEVICE_MANAGER_NAME}",
    ]
