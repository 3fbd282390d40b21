"""The API server itself: each request is authenticated, authorized, routed and answered, in this order.

Nothing about an object is read before its reader is authorized, and every error is a ``Status``. It never
redirects: the aggregator forbids it.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import structlog
from aiohttp import hdrs, web

from devicemanager.clock import Clock
from devicemanager.errors import excerpt
from devicemanager.serving.log_rate import RateLimitedLog
from devicemanager.serving.probes import Probe
from devicemanager.worker.apiserver import negotiation, parameters, responses, status
from devicemanager.worker.apiserver.attributes import Attributes, parse_attributes
from devicemanager.worker.apiserver.authentication import Authenticator, UnauthorizedError
from devicemanager.worker.apiserver.authorization import HEALTH_ROOTS, Authorizer, ReviewFailedError
from devicemanager.worker.apiserver.discovery import (
    INSTANCES,
    METRICS,
    SUBRESOURCE,
    VERSION,
    DiscoveryDocuments,
    StaticDocument,
)
from devicemanager.worker.apiserver.identity import User
from devicemanager.worker.apiserver.metrics import CONTENT_TYPE, WorkerMetrics
from devicemanager.worker.apiserver.openapi import OpenApiDocuments
from devicemanager.worker.apiserver.owners import Owners, is_owner_read
from devicemanager.worker.apiserver.resources import Reply, Resources
from devicemanager.worker.apiserver.status import Refusal
from devicemanager.worker.single_flight import OverloadedError

_READ_METHODS: Final = frozenset({"GET", "HEAD"})
_ALLOWED: Final = "GET, HEAD"
_NONE_ALLOWED: Final = ""
_OVERLOADED: Final = "too many callers are being checked; try again in a moment"


@dataclass(frozen=True, slots=True)
class Parts:
    """What the server is made of."""

    discovery: DiscoveryDocuments
    openapi: OpenApiDocuments
    authenticator: Authenticator
    authorizer: Authorizer
    resources: Resources
    owners: Owners
    metrics: WorkerMetrics
    clock: Clock


class ApiServer:
    """Answers requests.

    Args:
        parts: What it is made of.
        probes: Path -> who answers it: all of :data:`HEALTH_ROOTS`, and single checks below them.
    """

    def __init__(self, parts: Parts, probes: Mapping[str, Probe]) -> None:
        self._parts = parts
        self._probes = probes
        self._group = parts.discovery.api_group
        self._prefix = f"/apis/{self._group}/{VERSION}"
        self._log = structlog.get_logger().bind()
        self._rated = RateLimitedLog(self._log, parts.clock.monotonic)
        self._documents: dict[str, Callable[[web.Request], StaticDocument]] = {
            "/apis": self._groups,
            f"/apis/{self._group}": lambda request: parts.discovery.group(responses.encoding(request)),
            self._prefix: lambda request: parts.discovery.resources(responses.encoding(request)),
            "/openapi/v2": lambda _: parts.openapi.v2,
            "/openapi/v3": lambda _: parts.openapi.index,
            parts.openapi.path: self._openapi_v3,
        }

    def application(self) -> web.Application:
        """An application of one handler: Kubernetes' paths say more than a router's patterns can.

        A middleware sees every request, also those that no pattern matches, such as a path with a line break; the
        route only spares the others a search that ends in an exception.
        """

        @web.middleware
        async def every_request(request: web.Request, handler: object) -> web.StreamResponse:
            return await self.handle(request)

        app = web.Application(middlewares=[every_request])
        app.router.add_route("*", "/{path:.*}", self.handle)
        return app

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one request."""
        begun_s = self._parts.clock.monotonic()
        attributes = parse_attributes(request.method, request.path, request.query)
        try:
            response = await self._answer(request, attributes)
        except Refusal as refusal:
            response = responses.failure(request, refusal.failure)
        except Exception:  # noqa: BLE001 - the border of one request: a fault of ours is nobody else's answer
            self._log.exception("request_broke", path=excerpt(attributes.path))
            response = responses.failure(
                request, status.internal_error("the request failed for a reason of our own")
            )
        self._parts.metrics.observe_request(attributes, response.status, self._parts.clock.monotonic() - begun_s)
        return response

    async def _answer(self, request: web.Request, attributes: Attributes) -> web.Response:
        if attributes.path in HEALTH_ROOTS:
            return self._probe(request)
        if hdrs.UPGRADE in request.headers:
            raise Refusal(status.bad_request("nothing here is served over an upgraded connection"))
        user = await self._who(request)
        await self._may(user, attributes)
        self._log.debug(
            "request_authorized",
            audit_id=request.headers.get("Audit-Id"),
            user=user.name,
            verb=attributes.verb,
            path=attributes.path,
        )
        return await self._serve(request, attributes)

    async def _who(self, request: web.Request) -> User:
        transport = request.transport
        certificate = transport.get_extra_info("peercert") if transport is not None else None
        try:
            return await self._parts.authenticator.authenticate(request.headers, certificate)
        except UnauthorizedError as error:
            self._rated.write(logging.INFO, "request_unauthorized", cause=str(error), peer=request.remote)
            raise Refusal(status.unauthorized()) from error
        except OverloadedError as error:
            raise Refusal(status.too_many_requests(_OVERLOADED)) from error

    async def _may(self, user: User, attributes: Attributes) -> None:
        try:
            decision = await self._parts.authorizer.decide(user, attributes)
        except ReviewFailedError as error:
            self._rated.write(logging.WARNING, "access_review_failed", cause=str(error))
            raise Refusal(status.internal_error(str(error))) from error
        except OverloadedError as error:
            raise Refusal(status.too_many_requests(_OVERLOADED)) from error
        if not decision.allowed:
            raise Refusal(status.forbidden(user, attributes, decision.reason))

    async def _serve(self, request: web.Request, attributes: Attributes) -> web.Response:
        if attributes.path.startswith(f"{self._prefix}/"):
            return responses.reply(await self._resource(request, attributes))
        path = attributes.path.rstrip("/")
        document = self._documents.get(path)
        if document is not None:
            _only_reads(request)
            return responses.static(request, document(request))
        if path == "/metrics":
            _only_reads(request)
            return web.Response(body=self._parts.metrics.exposition(), headers={hdrs.CONTENT_TYPE: CONTENT_TYPE})
        if path in self._probes:
            return self._probe(request)
        return responses.no_such_page()

    def _probe(self, request: web.Request) -> web.Response:
        _only_reads(request)
        return self._probes[request.path.rstrip("/")].respond(request)

    async def _resource(self, request: web.Request, attributes: Attributes) -> Reply:
        if not self._is_served(attributes):
            raise Refusal(status.unknown_path())
        _only_reads(request)
        accept = responses.accept(request)
        if is_owner_read(attributes):
            if not self._parts.owners.serves(attributes):
                raise Refusal(status.method_not_allowed(_NONE_ALLOWED))
            return await self._parts.owners.get(attributes, accept)
        if attributes.verb == "watch":
            raise Refusal(status.watch_not_supported(attributes, _ALLOWED))
        if attributes.is_collection:
            return await self._parts.resources.list_(attributes, parameters.list_parameters(request.query, accept))
        return await self._parts.resources.get(attributes, parameters.read_parameters(request.query, accept))

    def _groups(self, request: web.Request) -> StaticDocument:
        form = negotiation.for_discovery(responses.accept(request))
        if form is None:
            raise Refusal(status.not_acceptable(negotiation.ACCEPTED))
        return self._parts.discovery.groups(*form)

    def _openapi_v3(self, request: web.Request) -> StaticDocument:
        return self._parts.openapi.v3(request.query.get("hash", ""), self._parts.clock.now())

    def _is_served(self, attributes: Attributes) -> bool:
        """Whether this path is one of ours, to the letter: no part more, none empty."""
        namespaced = f"{self._prefix}/namespaces/{attributes.namespace}"
        match attributes.resource, attributes.subresource:
            case (resource, "") if resource == METRICS and attributes.is_collection:
                served = f"{namespaced}/{METRICS}" if attributes.namespace else f"{self._prefix}/{METRICS}"
            case (resource, "") if resource == METRICS:
                served = f"{namespaced}/{METRICS}/{attributes.name}"
            case (resource, "") if resource == INSTANCES:
                # Never 404 but for a missing object: to the garbage collector that word means "the owner is gone".
                return True
            case (resource, subresource) if (resource, subresource) == (INSTANCES, SUBRESOURCE):
                served = f"{namespaced}/{INSTANCES}/{attributes.name}/{SUBRESOURCE}"
            case _:
                return False
        return attributes.path == served


def _only_reads(request: web.Request) -> None:
    if request.method not in _READ_METHODS:
        raise Refusal(status.method_not_allowed(_ALLOWED))
