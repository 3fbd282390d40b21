"""A stand-in for a Kubernetes cluster: a small, real HTTPS server that speaks as much of the API as we use.

It is no Kubernetes. It runs no container and schedules nothing; its kubelets' figures are made up (see
``figures``), and it says so in ``/version`` and in the ``Server`` header. What it does speak it speaks as the real
API server does, because our programs and the real kubectl are pointed at it: in the demo, and in tests, which also
switch on faults and count requests.

    async with StandInCluster() as cluster:
        cluster.add_node("node-a")
        uids = cluster.add_instance(InstanceSpec("team-a", "web", "node-a", [Grant("nvidia", "GPU-1")]))
        with cluster.faults.on("kubelet/node-a", Fault(Trouble.SLOW, delay_s=2)):
            ...
        assert len(cluster.requests.matching("nodes/proxy")) == 1
"""

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
from devicemanager.demo import objects
from devicemanager.demo.access import MASTERS, Access, Rule, User, worker_rules
from devicemanager.demo.aggregator import Aggregator, Backend, front_proxy_context
from devicemanager.demo.api_services import API_SERVICES
from devicemanager.demo.discovery import METRICS, RESOURCES, Resource
from devicemanager.demo.faults import Faults
from devicemanager.demo.kubeconfig import kubeconfig_text, write_whole
from devicemanager.demo.kubelet_server import KubeletServer
from devicemanager.demo.kubelets import Kubelets
from devicemanager.demo.objects import SYSTEM_NAMESPACE, InstanceSpec
from devicemanager.demo.request_log import RequestLog
from devicemanager.demo.routes import ClusterApi
from devicemanager.demo.store import Store
from devicemanager.tls.certificates import Authority, PemPair

FRONT_PROXY_NAME: Final = "front-proxy-client"
ADMIN_TOKEN: Final = "demo-admin"  # noqa: S105 - of a stand-in on loopback that holds nothing
WORKER_TOKEN: Final = "demo-worker"  # noqa: S105 - as above
WORKER_USER: Final = f"system:serviceaccount:{SYSTEM_NAMESPACE}:worker"
_INSTANCES: Final = f"instances.{objects.INSTANCE_GROUP}"
_HEADER_LIMIT: Final = 65_536


@dataclass(frozen=True, slots=True)
class InstanceUids:
    """Who an Instance and its pod are; ``pod`` is None for an Instance without one."""

    instance: str
    pod: str | None


class StandInCluster:
    """The cluster. Use as an asynchronous context manager; change it at any moment.

    Args:
        clock: None for the machine's own.
        host: Where the API listens.
        port: 0 takes any free one.
        parent: In which a temporary folder for the certificates is made; None for where the system has such.

    Attributes:
        store: The objects. ``store.edit("pods", namespace, name, change)`` changes one and tells watchers.
        access: Tokens and rules.
        faults: What goes wrong.
        requests: What was asked.
        aggregator: The API servers registered behind this one.
        kubelets: What the nodes' kubelets measure.
        authority: Signs the cluster's serving certificate.
        front_proxy: Signs the certificate shown to aggregated API servers.
        metrics_served: Whether ``metrics.k8s.io`` exists.
        check_backends: Whether reading an APIService asks its backend if it is available.
    """

    def __init__(
        self, clock: Clock | None = None, host: str = "127.0.0.1", port: int = 0, parent: Path | None = None
    ) -> None:
        self.clock = clock or SystemClock()
        self.store = Store()
        self.access = Access()
        self.faults = Faults()
        self.requests = RequestLog()
        self.aggregator = Aggregator()
        self.kubelets = Kubelets(self)
        self.authority = Authority.create("stand-in cluster CA")
        self.front_proxy = Authority.create("stand-in front proxy CA")
        self.metrics_served = True
        self.check_backends = True
        self._host = host
        self._port = port
        self._folder = tempfile.TemporaryDirectory(prefix="stand-in-cluster-", dir=parent)
        self._runner: web.AppRunner | None = None
        self._made = 0
        self._furnish()

    @property
    def url(self) -> str:
        """Where the API listens; only after the start."""
        return f"https://{self._host}:{self._port}"

    @property
    def folder(self) -> Path:
        """Holds the cluster's certificates while it lives."""
        return Path(self._folder.name)

    @property
    def ca_file(self) -> Path:
        """The CA that clients verify the cluster with, PEM."""
        return self.folder / "ca.crt"

    @property
    def resources(self) -> Sequence[Resource]:
        """What is served now."""
        return RESOURCES if self.metrics_served else [entry for entry in RESOURCES if entry is not METRICS]

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
        self.authority.serving(["kubernetes.default.svc", "localhost", self._host]).write(self.folder, "serving")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.folder / "serving.crt", self.folder / "serving.key")
        await self.aggregator.start()
        runner = web.AppRunner(
            ClusterApi(self).application(),
            access_log=None,
            handler_cancellation=True,
            shutdown_timeout=0.5,
            max_field_size=_HEADER_LIMIT,
            max_line_size=_HEADER_LIMIT,
        )
        await runner.setup()
        self._runner = runner
        await web.TCPSite(runner, self._host, self._port, ssl_context=context).start()
        self._port = runner.addresses[0][1]

    async def stop(self) -> None:
        """End every request and give everything back."""
        self.faults.clear()
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
        """A Node with a kubelet, which is reached through the API; see also :meth:`kubelet`."""
        self.store.put("nodes", objects.node(name, self.make_uid(), self._created()))

    def kubelet(self, node: str, host: str = "127.0.0.1", pair: PemPair | None = None) -> KubeletServer:
        """A Node's kubelet on a port of its own, to be entered; the arguments are those of the class."""
        return KubeletServer(self, node, host, pair)

    def add_instance(self, spec: InstanceSpec) -> InstanceUids:
        """An Instance with its running pod; no pod while it has no node."""
        self.add_namespace(spec.namespace)
        uid = self.make_uid()
        self.store.put(_INSTANCES, objects.instance(spec, uid, self._created()))
        return InstanceUids(uid, self._add_pod(spec, uid) if spec.node else None)

    def add_device_manager(
        self,
        node: str,
        manufacturer: str,
        address: str,
        port: int = objects.DEVICE_MANAGER_PORT,
        namespace: str = SYSTEM_NAMESPACE,
    ) -> str:
        """A Ready device manager's pod that says it listens there; returns its name."""
        pod = objects.device_manager_pod(
            node, manufacturer, self.make_uid(), self._created(), address, port, namespace
        )
        self.store.put("pods", pod)
        return str(pod["metadata"]["name"])

    def recreate_pod(self, spec: InstanceSpec, instance_uid: str) -> str:
        """Replace an Instance's pod by a new one of the same name; returns the new UID."""
        self.store.delete("pods", spec.namespace, spec.name)
        return self._add_pod(spec, instance_uid)

    # Who may use it

    def add_user(self, token: str, name: str, groups: Sequence[str] = (), uid: str = "") -> User:
        """Somebody who may sign in with a bearer token, and may do nothing yet."""
        user = User(name, uid, tuple(groups))
        self.access.tokens[token] = user
        return user

    def grant(self, *rules: Rule) -> None:
        """Allow more."""
        self.access.rules.extend(rules)

    def kubeconfig(self, token: str = ADMIN_TOKEN, namespace: str = "default") -> str:
        """A kubeconfig for one token, YAML."""
        return kubeconfig_text(self.url, self.authority.pem.certificate, token, namespace)

    def write_kubeconfig(self, path: Path, token: str = ADMIN_TOKEN, namespace: str = "default") -> Path:
        """Write :meth:`kubeconfig` to a file that only its owner may read."""
        write_whole(path, self.kubeconfig(token, namespace))
        return path

    # API servers behind this one

    def register(
        self, group: str, version: str, url: str, ca: bytes, server_name: str, priority: int = 15
    ) -> Backend:
        """Send ``/apis/<group>/<version>`` to another API server, by a new APIService.

        Args:
            url: Where it listens.
            ca: Trusted to have signed its certificate, PEM.
            server_name: ``<service>.<namespace>.svc``, the name its certificate must carry.
        """
        self.front_proxy.client(FRONT_PROXY_NAME).write(self.folder, "front-proxy")
        context = front_proxy_context(ca, self.folder / "front-proxy.crt", self.folder / "front-proxy.key")
        backend = Backend(group, version, url, context, server_name, priority)
        self.aggregator.backends[backend.service_name] = backend
        service, _, rest = server_name.partition(".")
        self.store.put(
            API_SERVICES,
            objects.api_service(group, version, priority, ca, (rest.partition(".")[0], service), self._created()),
        )
        return backend

    def publish_front_proxy(
        self, authorities: Sequence[Authority], allowed_names: Sequence[str] = (FRONT_PROXY_NAME,)
    ) -> None:
        """Write the ConfigMap that tells API servers which front proxies to believe."""
        certificates = b"".join(authority.pem.certificate for authority in authorities)
        client_ca = self.authority.pem.certificate
        self.store.put("configmaps", objects.authentication_config(client_ca, certificates, allowed_names))

    def make_uid(self) -> str:
        """A UID no object has: the same ones in the same order in every run."""
        self._made += 1
        return str(uuid5(NAMESPACE_URL, f"stand-in/{self._made}"))

    def _furnish(self) -> None:
        for name in ("default", "kube-system", SYSTEM_NAMESPACE):
            self.add_namespace(name)
        self.publish_front_proxy([self.front_proxy])
        self.add_user(ADMIN_TOKEN, "demo-admin", (MASTERS,))
        self.add_user(WORKER_TOKEN, WORKER_USER, ("system:serviceaccounts",))
        self.grant(*worker_rules(WORKER_USER, SYSTEM_NAMESPACE))

    def _add_pod(self, spec: InstanceSpec, instance_uid: str) -> str:
        uid = self.make_uid()
        address = f"10.42.{self._made // 250 % 250}.{self._made % 250 + 1}"
        self.store.put("pods", objects.instance_pod(spec, instance_uid, uid, self._created(), address))
        return uid

    def _created(self) -> datetime:
        return self.clock.now() - timedelta(hours=1)
