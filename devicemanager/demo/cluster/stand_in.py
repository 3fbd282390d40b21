"""A stand-in for a Kubernetes cluster: a small, real HTTPS server that serves as much of the API as we use.

It runs no containers and schedules nothing, and its kubelets' figures are made up (see ``figures``). ``/version``
and the ``Server`` header say that it is a stand-in. It answers as kube-apiserver does, because our programs and the
real kubectl are its clients: in the demo and in tests.

    async with StandInCluster() as cluster:
        cluster.add_node("node-a")
        uids = cluster.add_instance(InstanceSpec("team-a", "web", "node-a", [Grant("nvidia", "GPU-1")]))
"""

import secrets
import ssl
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Final, Self
from uuid import NAMESPACE_URL, uuid5

from aiohttp import web

from devicemanager.clock import Clock, SystemClock
from devicemanager.demo.cluster import objects
from devicemanager.demo.cluster.access import MASTERS, Rule, User, worker_rules
from devicemanager.demo.cluster.aggregator import Backend, front_proxy_context
from devicemanager.demo.cluster.api import ClusterApi
from devicemanager.demo.cluster.api_services import API_SERVICES
from devicemanager.demo.cluster.kubeconfig import kubeconfig_text
from devicemanager.demo.cluster.objects import SYSTEM_NAMESPACE, InstanceSpec
from devicemanager.demo.cluster.state import ClusterState
from devicemanager.tls.certificates import Authority

FRONT_PROXY_NAME: Final = "front-proxy-client"
ADMIN_TOKEN: Final = secrets.token_urlsafe(24)
"""Of an administrator. Random in each process: others on the machine reach its loopback, too."""

WORKER_TOKEN: Final = secrets.token_urlsafe(24)
WORKER_USER: Final = f"system:serviceaccount:{SYSTEM_NAMESPACE}:worker"
_INSTANCES: Final = f"instances.{objects.INSTANCE_GROUP}"
_HOST: Final = "127.0.0.1"
_HEADER_LIMIT: Final = 65_536


@dataclass(frozen=True, slots=True)
class InstanceUids:
    """The UIDs of an Instance and its pod; ``pod`` is None for an Instance without one."""

    instance: str
    pod: str | None


class StandInCluster(ClusterState):
    """The cluster. Use as an asynchronous context manager; change it at any moment.

    Args:
        clock: None for the machine's own.
        port: 0 takes any free one.
        parent: In which a temporary folder for the certificates is made; None for where the system has such.

    Attributes:
        authority: Signs the cluster's serving certificate.
        front_proxy: Signs the certificate shown to aggregated API servers.
    """

    def __init__(self, clock: Clock | None = None, port: int = 0, parent: Path | None = None) -> None:
        super().__init__(clock or SystemClock())
        self.authority = Authority.create("stand-in cluster CA")
        self.front_proxy = Authority.create("stand-in front proxy CA")
        self._port = port
        self._folder = tempfile.TemporaryDirectory(prefix="stand-in-cluster-", dir=parent)
        self._runner: web.AppRunner | None = None
        self._made = 0
        self._add_defaults()

    @property
    def url(self) -> str:
        """Where the API listens; only after the start."""
        return f"https://{_HOST}:{self._port}"

    @property
    def folder(self) -> Path:
        """Holds the cluster's certificates while it runs."""
        return Path(self._folder.name)

    @property
    def ca_file(self) -> Path:
        """The CA that clients verify the cluster with, PEM."""
        return self.folder / "ca.crt"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: The port is taken. Nothing is left behind.
        """
        try:
            await self._listen()
        except BaseException:
            await self.stop()
            raise

    async def _listen(self) -> None:
        self.ca_file.write_bytes(self.authority.pem.certificate)
        self.authority.serving(["kubernetes.default.svc", "localhost", _HOST]).write(self.folder, "serving")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.folder / "serving.crt", self.folder / "serving.key")
        await self.aggregator.start()
        runner = web.AppRunner(
            self.application(),
            access_log=None,
            handler_cancellation=True,
            shutdown_timeout=0.5,
            max_field_size=_HEADER_LIMIT,
            max_line_size=_HEADER_LIMIT,
        )
        await runner.setup()
        self._runner = runner
        await web.TCPSite(runner, _HOST, self._port, ssl_context=context).start()
        self._port = runner.addresses[0][1]

    def application(self) -> web.Application:
        """What answers requests."""
        return ClusterApi(self).application()

    async def stop(self) -> None:
        """End every request, close every connection and remove the folder."""
        self.store.drop_watches()
        if self._runner is not None:
            await self._runner.cleanup()
        await self.aggregator.stop()
        self._folder.cleanup()

    # What is in the cluster

    def add_namespace(self, name: str) -> None:
        """A Namespace; adding one that exists changes nothing."""
        if self.store.get("namespaces", "", name) is None:
            self.store.put("namespaces", objects.namespace(name, self.make_uid(), self._created()))

    def add_node(self, name: str) -> None:
        """A Node with a kubelet, which is reached through the API."""
        self.store.put("nodes", objects.node(name, self.make_uid(), self._created()))

    def add_instance(self, spec: InstanceSpec) -> InstanceUids:
        """An Instance with its running pod; no pod while it has no node."""
        self.add_namespace(spec.namespace)
        uid = self.make_uid()
        self.store.put(_INSTANCES, objects.instance(spec, uid, self._created()))
        return InstanceUids(uid, self.add_pod(spec, uid) if spec.node else None)

    def add_pod(self, spec: InstanceSpec, instance_uid: str) -> str:
        """An Instance's running pod; returns its UID."""
        uid = self.make_uid()
        address = f"10.42.{self._made // 250 % 250}.{self._made % 250 + 1}"
        self.store.put("pods", objects.instance_pod(spec, instance_uid, uid, self._created(), address))
        return uid

    def add_device_manager(
        self,
        node: str,
        manufacturer: str,
        address: str,
        port: int = objects.DEVICE_MANAGER_PORT,
        namespace: str = SYSTEM_NAMESPACE,
    ) -> str:
        """A Ready device manager's pod with this address and port; returns its name."""
        pod = objects.device_manager_pod(
            node, manufacturer, self.make_uid(), self._created(), address, port, namespace
        )
        self.store.put("pods", pod)
        return str(pod["metadata"]["name"])

    # Users and rights

    def add_user(self, token: str, name: str, groups: Sequence[str] = (), uid: str = "") -> User:
        """A user with a bearer token and no rights yet."""
        user = User(name, uid, tuple(groups))
        self.access.tokens[token] = user
        return user

    def grant(self, *rules: Rule) -> None:
        """Add rules."""
        self.access.rules.extend(rules)

    def kubeconfig(self, token: str = ADMIN_TOKEN, namespace: str = "default") -> str:
        """A kubeconfig for one token, YAML."""
        return kubeconfig_text(self.url, self.authority.pem.certificate, token, namespace)

    # API servers behind this one

    def register(self, group: str, version: str, url: str, ca: bytes, server_name: str) -> Backend:
        """Send ``/apis/<group>/<version>`` to another API server, by a new APIService.

        Args:
            url: Where it listens.
            ca: Trusted to have signed its certificate, PEM.
            server_name: ``<service>.<namespace>.svc``, the name its certificate must carry.
        """
        self.front_proxy.client(FRONT_PROXY_NAME).write(self.folder, "front-proxy")
        context = front_proxy_context(ca, self.folder / "front-proxy.crt", self.folder / "front-proxy.key")
        backend = Backend(group, version, url, context, server_name)
        self.aggregator.backends[backend.service_name] = backend
        service, _, rest = server_name.partition(".")
        named = rest.partition(".")[0], service
        self.store.put(API_SERVICES, objects.api_service(group, version, ca, named, self._created()))
        return backend

    def publish_front_proxy(
        self, authorities: Sequence[Authority], allowed_names: Sequence[str] = (FRONT_PROXY_NAME,)
    ) -> None:
        """Write the ConfigMap that tells API servers which front proxies to trust."""
        certificates = b"".join(authority.pem.certificate for authority in authorities)
        client_ca = self.authority.pem.certificate
        self.store.put("configmaps", objects.authentication_config(client_ca, certificates, allowed_names))

    def make_uid(self) -> str:
        """A UID that no object has; every run makes the same ones in the same order."""
        self._made += 1
        return str(uuid5(NAMESPACE_URL, f"stand-in/{self._made}"))

    def _add_defaults(self) -> None:
        for name in ("default", "kube-system", SYSTEM_NAMESPACE):
            self.add_namespace(name)
        self.publish_front_proxy([self.front_proxy])
        self.add_user(ADMIN_TOKEN, "demo-admin", (MASTERS,))
        self.add_user(WORKER_TOKEN, WORKER_USER, ("system:serviceaccounts",))
        self.grant(*worker_rules(WORKER_USER, SYSTEM_NAMESPACE))

    def _created(self) -> datetime:
        return self.clock.now() - timedelta(hours=1)
