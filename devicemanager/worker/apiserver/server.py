"""The API server itself: each request is authenticated, authorized, routed and answered, in this order.

Nothing about an object is read before its reader is authorized, and every error is a ``Status``. It never
redirects: the aggregator forbids it.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import structlog
from aiohttp import hdrs, web

from devicemanager.clock import Clock
from devicemanager.errors import excerpt
from devicemanager.serving.connection import Connection
from devicemanager.serving.log_rate import RateLimitedLog
from devicemanager.serving.probes import Probe
from devicemanager.worker.apiserver import negotiation, parameters, responses, status
from devicemanager.worker.apiserver.attributes import Attributes, parse_attributes
from devicemanager.worker.apiserver.authentication import Authenticator, UnauthorizedError
from devicemanager.worker.apiserver.authorization import HEALTH_ROOTS, Authorizer, ReviewFailedError
from devicemanager.worker.apiserver.discovery import DiscoveryDocuments
from devicemanager.worker.apiserver.documents import StaticDocument
from devicemanager.worker.apiserver.identity import User
from devicemanager.worker.apiserver.metrics import CONTENT_TYPE, WorkerMetrics
from devicemanager.worker.apiserver.openapi import OpenApiDocuments
from devicemanager.worker.apiserver.owners import Owners
from devicemanager.worker.apiserver.resources import Reply, ResourceHandler
from devicemanager.worker.apiserver.status import StatusError
from devicemanager.worker.single_flight import OverloadedError
from devicemanager.worker.workloads.workload import API_VERSION

_READ_METHODS: Final = frozenset({"GET", "HEAD"})
_ALLOWED: Final = "GET, HEAD"
_NONE_ALLOWED: Final = ""
_OVERLOADED: Final = "too many callers are being checked; try again in a moment"
_UNDECIDED: Final = "the API server could not be asked who may do this"


@dataclass(frozen=True, slots=True)
class Components:
    """What the server is made of.

    Attributes:
        handlers: One per kind of workload.
    """

    discovery: DiscoveryDocuments
    openapi: OpenApiDocuments
    authenticator: Authenticator
    authorizer: Authorizer
    handlers: Sequence[ResourceHandler]
    owners: Owners
    metrics: WorkerMetrics
    clock: Clock


class ApiServer:
    """Answers requests.

    Args:
        components: What it is made of.
        probes: Path -> who answers it: all of :data:`HEALTH_ROOTS`, and single checks below them.
    """

    def __init__(self, components: Components, probes: Mapping[str, Probe]) -> None:
        self._components = components
        self._metrics = components.metrics
        self._clock = components.clock
        self._probes = probes
        self._group = components.discovery.api_group
        self._prefix = f"/apis/{self._group}/{API_VERSION}"
        self._handlers = {
            key: handler
            for handler in components.handlers
            for resource in [handler.resource]
            for key in ((resource.plural, ""), (resource.source.plural, resource.subresource))
        }
        self._log = structlog.get_logger().bind()
        self._rated = RateLimitedLog(self._log, components.clock.monotonic)
        self._documents: dict[str, Callable[[web.Request], StaticDocument]] = {
            "/apis": self._groups,
            f"/apis/{self._group}": lambda request: _json(request, components.discovery.group),
            self._prefix: lambda request: _json(request, components.discovery.resources),
            "/openapi/v2": lambda _: components.openapi.v2,
            "/openapi/v3": lambda _: components.openapi.index,
            components.openapi.path: self._openapi_v3,
        }

    def application(self) -> web.Application:
        """An application with one handler: a router's patterns cannot express Kubernetes' paths.

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
        begun_s = self._clock.monotonic()
        attributes = parse_attributes(request.method, request.path, request.query)
        try:
            response = await self._answer(request, attributes)
        except StatusError as error:
            response = responses.failure(request, error)
        except Exception as error:  # noqa: BLE001 - a fault of ours ends one request and no other
            cause, path = type(error).__name__, excerpt(attributes.path)
            self._rated.write(logging.ERROR, "request_failed", cause=cause, path=path, exc_info=error)
            response = responses.failure(
                request, status.internal_error("the request failed for a reason of our own")
            )
        self._metrics.observe_request(attributes, response.status, self._clock.monotonic() - begun_s)
        return response

    async def _answer(self, request: web.Request, attributes: Attributes) -> web.Response:
        if attributes.path in HEALTH_ROOTS:
            return self._probe(request)
        if hdrs.UPGRADE in request.headers:
            raise status.bad_request("nothing here is served over an upgraded connection")
        user = await self._authenticate(request)
        await self._authorize(user, attributes, _peer(request))
        self._log.debug(
            "request_authorized",
            audit_id=request.headers.get("Audit-Id"),
            user=user.name,
            verb=attributes.verb,
            path=attributes.path,
        )
        return await self._route(request, attributes)

    async def _authenticate(self, request: web.Request) -> User:
        transport = request.transport
        certificate = transport.get_extra_info("peercert") if transport is not None else None
        try:
            peer = request.remote or ""
            return await self._components.authenticator.authenticate(request.headers, certificate, peer)
        except UnauthorizedError as error:
            self._rated.write(logging.INFO, "request_unauthorized", cause=str(error), peer=request.remote)
            raise status.unauthorized() from error
        except OverloadedError as error:
            raise status.too_many_requests(_OVERLOADED) from error

    async def _authorize(self, user: User, attributes: Attributes, peer: str | None) -> None:
        try:
            decision = await self._components.authorizer.decide(user, attributes, peer=peer)
        except ReviewFailedError as error:
            self._rated.write(logging.WARNING, "access_review_failed", cause=str(error))
            raise status.internal_error(_UNDECIDED) from error
        except OverloadedError as error:
            raise status.too_many_requests(_OVERLOADED) from error
        if not decision.allowed:
            raise status.forbidden(user, attributes, decision.reason)

    async def _route(self, request: web.Request, attributes: Attributes) -> web.Response:
        if attributes.path.startswith(f"{self._prefix}/"):
            return responses.reply(await self._resource(request, attributes))
        path = attributes.path.rstrip("/")
        document = self._documents.get(path)
        if document is not None:
            _only_reads(request)
            return responses.static(request, document(request))
        if path == "/metrics":
            _only_reads(request)
            return web.Response(body=self._metrics.exposition(), headers={hdrs.CONTENT_TYPE: CONTENT_TYPE})
        if path in self._probes:
            return self._probe(request)
        return responses.no_such_page()

    def _probe(self, request: web.Request) -> web.Response:
        _only_reads(request)
        return self._probes[request.path.rstrip("/")].respond(request)

    async def _resource(self, request: web.Request, attributes: Attributes) -> Reply:
        owners = self._components.owners
        if owners.is_owner_read(attributes):
            _only_reads(request)
            if not owners.serves(attributes):
                # Never 404 but for a missing object: to the garbage collector that means that the owner is gone.
                raise status.method_not_allowed(_NONE_ALLOWED)
            return await owners.get(attributes, responses.accept(request))
        handler = self._handlers.get((attributes.resource, attributes.subresource))
        if handler is None or attributes.path != self._expected_path(attributes):
            raise status.unknown_path()
        _only_reads(request)
        if attributes.verb == "watch":
            raise status.watch_not_supported(attributes, _ALLOWED)
        accept = responses.accept(request)
        if attributes.is_collection:
            return await handler.list_(attributes, parameters.list_parameters(request.query, accept))
        return await handler.get(attributes, parameters.read_parameters(request.query, accept))

    def _expected_path(self, attributes: Attributes) -> str:
        """The exact path under which this is served."""
        parts = [self._prefix]
        if attributes.namespace or not attributes.is_collection:
            parts += ["namespaces", attributes.namespace]
        parts.append(attributes.resource)
        if not attributes.is_collection:
            parts += [attributes.name, *filter(None, [attributes.subresource])]
        return "/".join(parts)

    def _groups(self, request: web.Request) -> StaticDocument:
        form = negotiation.for_discovery(responses.accept(request))
        if form is None:
            raise status.not_acceptable()
        return self._components.discovery.groups[form]

    def _openapi_v3(self, request: web.Request) -> StaticDocument:
        return self._components.openapi.v3(request.query.get("hash", ""), self._clock.now())


def _peer(request: web.Request) -> str | None:
    """The address of whoever asks; None for the front proxy, which asks for many."""
    connection = request.protocol
    return None if isinstance(connection, Connection) and connection.verified else request.remote or ""


def _only_reads(request: web.Request) -> None:
    if request.method not in _READ_METHODS:
        raise status.method_not_allowed(_ALLOWED)


def _json(request: web.Request, document: StaticDocument) -> StaticDocument:
    if not negotiation.accepts_json(responses.accept(request)):
        raise status.not_acceptable()
    return document
