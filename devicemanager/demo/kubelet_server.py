"""One stand-in kubelet on a port of its own: HTTPS, bearer tokens, and the right to ``nodes/stats``.

It refuses as a real one does, in plain text. What it says of pods comes from :mod:`devicemanager.demo.kubelets`.
"""

import ssl
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from aiohttp import web

from devicemanager.demo.access import Attributes, InvalidTokenError
from devicemanager.demo.answers import failure
from devicemanager.demo.faults import Trouble, deliver
from devicemanager.demo.objects import node_addresses
from devicemanager.demo.request_log import Request
from devicemanager.demo.selectors import JsonObject
from devicemanager.tls.certificates import PemPair

if TYPE_CHECKING:
    from devicemanager.demo.cluster import StandInCluster

SUMMARY: Final = "/stats/summary"


class KubeletServer:
    """The kubelet of one node, which tells where it listens in the Node's status while it runs.

    Attributes:
        node: Its name.
        port: Where it listens; only after the start.
    """

    def __init__(
        self, cluster: "StandInCluster", node: str, host: str = "127.0.0.1", pair: PemPair | None = None
    ) -> None:
        """Nothing runs yet.

        Args:
            cluster: Whose tokens, rules, faults and log count.
            node: A Node of the cluster.
            host: IP address to listen on.
            pair: What to show; None for one that the cluster's authority signs, as its signer of kubelets' serving
                certificates does: for the node's name and address.
        """
        self.node = node
        self.port = 0
        self._cluster = cluster
        self._host = host
        self._pair = pair or cluster.authority.serving([node, host])
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        folder = self._cluster.folder / f"kubelet-{self.node}"
        self._pair.write(folder)
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(application, access_log=None, handler_cancellation=True, shutdown_timeout=0.5)
        await self._runner.setup()
        await web.TCPSite(self._runner, self._host, self.port, ssl_context=_context(folder)).start()
        self.port = self._runner.addresses[0][1]
        self._cluster.store.edit("nodes", "", self.node, self._register)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    def _register(self, node: JsonObject) -> None:
        node["status"]["addresses"] = node_addresses(self.node, self._host)
        node["status"]["daemonEndpoints"] = {"kubeletEndpoint": {"Port": self.port}}

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        cluster = self._cluster
        asked = Attributes(request.method.lower(), "", f"nodes/{_subresource(request.path)}", "", self.node)
        try:
            user = cluster.access.authenticate(request.headers.get("Authorization"))
        except InvalidTokenError:
            user = None
        name = "" if user is None else user.name
        cluster.requests.record(Request(asked.verb, request.path, asked.resource, name, {}, asked))
        if user is None or "Authorization" not in request.headers:
            return web.Response(status=401, text="Unauthorized")
        if not cluster.access.decide(user, asked)[0]:
            what = f"verb={asked.verb}, resource=nodes, subresource={_subresource(request.path)}"
            return web.Response(status=403, text=f"Forbidden (user={name}, {what})")
        faults = cluster.faults.take((f"kubelet/{self.node}", asked.resource))
        for fault in faults:
            if fault.trouble is Trouble.ERROR:
                return failure(fault.status, f"the stand-in kubelet was told to answer {fault.status}")
        if request.path != SUMMARY:
            return web.Response(status=404, text="404 page not found\n")
        return await deliver(request, cluster.kubelets.summary(self.node, faults), faults)


def _subresource(path: str) -> str:
    """What a kubelet asks the API server to allow: its own names for a few paths, ``proxy`` for all others."""
    first = path.split("/")[1]
    return {"stats": "stats", "metrics": "metrics", "logs": "log"}.get(first, "proxy")


def _context(folder: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    return context
