"""The demo's stand-in cluster with what tests need beside it.

async with StandInCluster() as cluster:
    cluster.add_node("node-a")
    with cluster.faults.on("kubelet/node-a", Fault(Trouble.SLOW, delay_s=2)):
        ...
    assert len(cluster.requests.matching("nodes/proxy")) == 1
"""

from pathlib import Path

from aiohttp import web
from aiohttp.typedefs import Handler
from typing_extensions import override

from devicemanager.clock import Clock
from devicemanager.demo.cluster import stand_in
from devicemanager.demo.cluster.access import InvalidTokenError, User
from devicemanager.demo.cluster.discovery import METRICS
from devicemanager.demo.cluster.objects import InstanceSpec
from devicemanager.demo.cluster.request_info import RequestInfo, parse_request
from devicemanager.demo.cluster.responses import failure
from devicemanager.demo.cluster.stand_in import ADMIN_TOKEN
from devicemanager.tls.certificates import PemPair
from devicemanager.tls.private_files import write_whole
from tests.cluster.faults import Faults, Trouble, deliver
from tests.cluster.kubelet_server import KubeletServer
from tests.cluster.kubelets import FaultyKubelets
from tests.cluster.request_log import Request, RequestLog


class StandInCluster(stand_in.StandInCluster):
    """The cluster.

    Attributes:
        faults: What goes wrong.
        requests: What was asked.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        super().__init__(clock)
        self.faults = Faults()
        self.requests = RequestLog()
        self.kubelets: FaultyKubelets = FaultyKubelets(self.store)

    @override
    def application(self) -> web.Application:
        application = super().application()

        @web.middleware
        async def in_front(request: web.Request, handler: Handler) -> web.StreamResponse:
            return await self._answer(request, handler)

        application.middlewares.append(in_front)
        return application

    @override
    async def stop(self) -> None:
        self.faults.clear()
        await super().stop()

    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Log a request; whoever may send it meets the faults switched on."""
        query = {key: request.query[key] for key in request.query}
        info = parse_request(request.method, request.rel_url.raw_path, query)
        user = self._user(request)
        name = "" if user is None else user.name
        self.requests.record(Request(info.verb, info.path, info.target, name, query, info))
        if user is None or not self.access.decide(user, info)[0]:
            return await handler(request)
        faults = self.faults.take(_targets(info))
        for fault in faults:
            if fault.trouble is Trouble.ERROR:
                return failure(fault.status, f"the stand-in cluster was told to answer {fault.status}")
        with self.kubelets.meeting(faults):
            answer = await handler(request)
        return await deliver(request, answer, faults) if isinstance(answer, web.Response) else answer

    def _user(self, request: web.Request) -> User | None:
        try:
            return self.access.authenticate(request.headers.get("Authorization"))
        except InvalidTokenError:
            return None

    def kubelet(self, node: str, host: str = "127.0.0.1", pair: PemPair | None = None) -> KubeletServer:
        """A Node's kubelet on a port of its own; use as an asynchronous context manager.

        Args:
            node: A Node of the cluster.
            host: IP address to listen on.
            pair: Its serving certificate; None for one that the cluster's authority signs for the node's name and
                address, as its signer of kubelets' serving certificates does.
        """
        pair = pair or self.authority.serving([node, host])
        return KubeletServer(self, node, host, pair, self.folder / f"kubelet-{node}")

    def recreate_pod(self, spec: InstanceSpec, instance_uid: str) -> str:
        """Replace an Instance's pod by a new one of the same name; returns the new UID."""
        self.store.delete("pods", spec.namespace, spec.name)
        return self.add_pod(spec, instance_uid)

    def remove_metrics_api(self) -> None:
        """Serve no ``metrics.k8s.io`` from now on."""
        self.resources = [entry for entry in self.resources if entry is not METRICS]

    def write_kubeconfig(self, path: Path, token: str = ADMIN_TOKEN, namespace: str = "default") -> Path:
        """Write :meth:`kubeconfig` to a file that only its owner may read."""
        write_whole(path, self.kubeconfig(token, namespace).encode())
        return path


def _targets(info: RequestInfo) -> tuple[str, ...]:
    if info.target == "nodes/proxy":
        return (f"kubelet/{info.name}", info.target)
    return (info.target or info.path,)
