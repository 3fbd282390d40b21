"""A real control plane on this machine: etcd, kube-apiserver, kube-controller-manager; and kubectl to speak to it.

What stands in for the rest of a cluster: no node runs anything. A pod is said to run by whoever runs its program.
"""

import json
import os
import ssl
import subprocess
import sysconfig
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from devicemanager.tls.certificates import Authority
from tests.control_plane.binaries import on_path
from tests.timing import wait_until

KUBECTL = Path(sysconfig.get_path("scripts")) / "kubectl"
ETCD = "http://127.0.0.1:2379"
API_ADDRESS = "10.1.0.1"
API_PORT = 6443
SERVICES = "10.96.0.0/16"
FRONT_PROXY = "front-proxy-client"
ADMIN = "admin-token"
_CONTROLLER_MANAGER = "controller-manager-token"

# No kubelet is there to report, so these two would mark every node as lost and delete its pods.
_CONTROLLERS = "*,-node-lifecycle-controller,-pod-garbage-collector-controller"
_DEADLINE_S = 60.0

T = TypeVar("T")
Object = dict[str, Any]


class CommandError(Exception):
    """A command refused; the message is what it wrote to its error output."""


@dataclass
class Program:
    """A process of the control plane, and where its output goes."""

    command: Sequence[str]
    log: Path
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.log.parent
            )

    def kill(self) -> None:
        """SIGKILL: kube-apiserver takes a minute for anything gentler."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()


class ControlPlane:
    """To be entered before use.

    Attributes:
        folder: Everything that it writes lies below.
        ca: Of the API server's own certificate, PEM.
    """

    def __init__(self, programs: Path, folder: Path) -> None:
        self.folder = folder
        self._programs = programs
        serving, front_proxy = Authority.create("kubernetes"), Authority.create("front-proxy-ca")
        self.ca = serving.pem.certificate
        serving.serving([API_ADDRESS, "10.96.0.1", "kubernetes.default.svc"]).write(folder, "apiserver")
        front_proxy.client(FRONT_PROXY).write(folder, "front-proxy")
        serving.pem.write(folder, "ca")
        front_proxy.pem.write(folder, "front-proxy-ca")
        _write_signing_key(folder / "accounts.key")
        tokens = [
            f'{ADMIN},admin,1,"system:masters"',
            f"{_CONTROLLER_MANAGER},system:kube-controller-manager,2",
        ]
        (folder / "tokens.csv").write_text("\n".join(tokens) + "\n")
        (folder / "audit.yaml").write_text(
            json.dumps({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Metadata"}]})
        )
        self._etcd = self._etcd_program()
        self._api_server = self._api_server_program()
        self._controllers = self._controllers_program()

    def __enter__(self) -> "ControlPlane":
        for program in (self._etcd, self._api_server):
            program.start()
        try:
            wait_until(self._is_ready, "kube-apiserver is ready")
            self._controllers.start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def _stop(self) -> None:
        for program in (self._controllers, self._api_server, self._etcd):
            program.kill()

    # What tests do to it.

    def restart_api_server(self) -> None:
        """What it holds in memory is gone: it can serve no watch from a version before this."""
        self._api_server.kill()
        self._api_server.start()
        wait_until(self._is_ready, "kube-apiserver is ready again")

    def compact(self) -> None:
        """Have etcd forget every version but the present one, as it does every five minutes."""
        revision = _etcd("maintenance/status", {})["header"]["revision"]
        _etcd("kv/compaction", {"revision": revision, "physical": True})

    def audited(self) -> list[Object]:
        """Every request so far, as audit events."""
        lines = (self.folder / "audit.log").read_text().splitlines()
        return [json.loads(line) for line in lines if line.endswith("}")]

    # What users do with it.

    def kubeconfig(self, token: str = ADMIN) -> Path:
        """A kubeconfig for whoever has this token."""
        path = self.folder / f"kubeconfig-{abs(hash(token))}"
        server = {
            "server": f"https://{API_ADDRESS}:{API_PORT}",
            "certificate-authority": str(self.folder / "ca.crt"),
        }
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "it", "cluster": server}],
            "users": [{"name": "who", "user": {"token": token}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "who"}}],
            "current-context": "it",
        }
        path.write_text(json.dumps(document))
        return path

    def kubectl(self, *arguments: str, stdin: str = "", token: str = ADMIN) -> str:
        """What kubectl printed. Raises CommandError."""
        return run([str(KUBECTL), *arguments], self.environment(token), stdin=stdin)

    def environment(self, token: str = ADMIN) -> Mapping[str, str]:
        """For kubectl and helm, with nothing of this machine's own settings."""
        return {
            "KUBECONFIG": str(self.kubeconfig(token)),
            "HOME": str(self.folder),
            "PATH": os.environ.get("PATH", ""),
        }

    def apply(self, *objects: Object) -> None:
        """Create or change objects."""
        for one in objects:
            self.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=json.dumps(one))

    def get(self, kind: str, name: str, namespace: str = "default") -> Object | None:
        """One object; None where there is none of that name."""
        text = self.kubectl("get", kind, name, "-n", namespace, "-o", "json", "--ignore-not-found")
        found: Object | None = json.loads(text) if text else None
        return found

    def _is_ready(self) -> bool:
        request = urllib.request.Request(
            f"https://{API_ADDRESS}:{API_PORT}/readyz", headers={"Authorization": f"Bearer {ADMIN}"}
        )
        context = ssl.create_default_context(cadata=self.ca.decode())
        try:
            with urllib.request.urlopen(request, timeout=5, context=context) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def _etcd_program(self) -> Program:
        etcd = on_path("etcd", "apt-get install etcd-server")
        flags = {"data-dir": self.folder / "etcd", "log-level": "warn", "unsafe-no-fsync": "true"}
        return Program([str(etcd), *_flags(flags)], self.folder / "etcd.log")

    def _api_server_program(self) -> Program:
        here = self.folder
        flags = {
            "etcd-servers": ETCD,
            "bind-address": API_ADDRESS,
            "advertise-address": API_ADDRESS,
            "secure-port": API_PORT,
            "service-cluster-ip-range": SERVICES,
            "authorization-mode": "RBAC",
            "allow-privileged": "true",  # as every installer sets it
            "tls-cert-file": here / "apiserver.crt",
            "tls-private-key-file": here / "apiserver.key",
            "token-auth-file": here / "tokens.csv",
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-key-file": here / "accounts.key",
            "service-account-signing-key-file": here / "accounts.key",
            "requestheader-client-ca-file": here / "front-proxy-ca.crt",
            "requestheader-allowed-names": FRONT_PROXY,
            "requestheader-username-headers": "X-Remote-User",
            "requestheader-group-headers": "X-Remote-Group",
            "requestheader-extra-headers-prefix": "X-Remote-Extra-",
            "proxy-client-cert-file": here / "front-proxy.crt",
            "proxy-client-key-file": here / "front-proxy.key",
            "audit-policy-file": here / "audit.yaml",
            "audit-log-path": here / "audit.log",
            "audit-log-maxsize": 1000,
            "etcd-compaction-interval": 0,  # only when a test says so
        }
        return Program([str(self._programs / "kube-apiserver"), *_flags(flags)], here / "kube-apiserver.log")

    def _controllers_program(self) -> Program:
        here = self.folder
        flags = {
            "kubeconfig": self.kubeconfig(_CONTROLLER_MANAGER),
            "controllers": _CONTROLLERS,
            "use-service-account-credentials": "true",
            "service-account-private-key-file": here / "accounts.key",
            "root-ca-file": here / "ca.crt",
            "leader-elect": "false",
            "bind-address": "127.0.0.1",
        }
        command = [str(self._programs / "kube-controller-manager"), *_flags(flags)]
        return Program(command, here / "kube-controller-manager.log")


def run(command: Sequence[str], environment: Mapping[str, str], *, stdin: str = "") -> str:
    """What a command printed. Raises CommandError."""
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, input=stdin, env=environment, timeout=_DEADLINE_S
    )
    if done.returncode:
        raise CommandError(done.stderr)
    return done.stdout


def _etcd(what: str, question: Object) -> Object:
    """etcd's answer to a question, over its gateway for JSON."""
    request = urllib.request.Request(f"{ETCD}/v3/{what}", json.dumps(question).encode())
    with urllib.request.urlopen(request, timeout=10) as answer:
        told: Object = json.load(answer)
        return told


def _flags(values: Mapping[str, object]) -> list[str]:
    return [f"--{name}={value}" for name, value in values.items()]


def _write_signing_key(path: Path) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
    )
