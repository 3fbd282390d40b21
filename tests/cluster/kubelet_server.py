"""One stand-in kubelet on a port of its own: HTTPS, bearer tokens, and the right to ``nodes/stats``.

Errors are plain text, as a real kubelet's. The figures come from :mod:`devicemanager.demo.cluster.kubelets`.
"""

import ssl
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from aiohttp import web

from devicemanager.demo.cluster.access import InvalidTokenError
from devicemanager.demo.cluster.request_info import RequestInfo
from devicemanager.demo.cluster.responses import failure
from devicemanager.demo.cluster.selectors import JsonObject
from devicemanager.tls.certificates import PemPair
from tests.cluster.faults import Trouble, deliver
from tests.cluster.request_log import Request

if TYPE_CHECKING:
    from tests.cluster.stand_in import StandInCluster

SUMMARY: Final = "/stats/summary"


class KubeletServer:
    """The kubelet of one node. It writes the address and port it listens on into the Node's status.

    Attributes:
        node: Its name.
        port: Where it listens; only after the start.
    """

    def __init__(self, cluster: "StandInCluster", node: str, host: str, pair: PemPair, folder: Path) -> None:
        """Nothing runs yet.

        Args:
            cluster: Its tokens, rules, faults and request log are used.
            node: A Node of the cluster.
            host: IP address to listen on.
            pair: The serving certificate.
            folder: Where to write it.
        """
        self.node = node
        self.port = 0
        self._cluster = cluster
        self._host = host
        self._pair = pair
        self._folder = folder
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        self._pair.write(self._folder)
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(application, access_log=None, handler_cancellation=True, shutdown_timeout=0.5)
        await self._runner.setup()
        await web.TCPSite(self._runner, self._host, self.port, ssl_context=_context(self._folder)).start()
        self.port = self._runner.addresses[0][1]
        self._cluster.store.edit("nodes", "", self.node, self._register)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    def _register(self, node: JsonObject) -> None:
        node["status"]["addresses"] = [
            {"type": "InternalIP", "address": self._host},
            {"type": "Hostname", "address": self.node},
        ]
        node["status"]["daemonEndpoints"] = {"kubeletEndpoint": {"Port": self.port}}

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        cluster = self._cluster
        asked = RequestInfo(
            request.method.lower(), "", resource="nodes", subresource=_subresource(request.path), name=self.node
        )
        try:
            user = cluster.access.authenticate(request.headers.get("Authorization"))
        except InvalidTokenError:
            user = None
        name = "" if user is None else user.name
        cluster.requests.record(Request(asked.verb, request.path, asked.target, name, {}, asked))
        if user is None or "Authorization" not in request.headers:
            return web.Response(status=401, text="Unauthorized")
        if not cluster.access.decide(user, asked)[0]:
            what = f"verb={asked.verb}, resource=nodes, subresource={asked.subresource}"
            return web.Response(status=403, text=f"Forbidden (user={name}, {what})")
        faults = cluster.faults.take((f"kubelet/{self.node}", asked.target))
        for fault in faults:
            if fault.trouble is Trouble.ERROR:
                return failure(fault.status, f"the stand-in kubelet was told to answer {fault.status}")
        if request.path != SUMMARY:
            return web.Response(status=404, text="404 page not found\n")
        with cluster.kubelets.meeting(faults):
            answer = cluster.kubelets.summary(self.node, cluster.clock.now())
        return await deliver(request, answer, faults)


def _subresource(path: str) -> str:
    """What a kubelet asks the API server to allow: its own names for a few paths, ``proxy`` for all others."""
    first = path.split("/")[1]
    return {"stats": "stats", "metrics": "metrics", "logs": "log"}.get(first, "proxy")


def _context(folder: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    return context
