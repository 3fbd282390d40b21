"""The stand-in cluster's HTTP API: authentication, authorization and the answer."""

import json
from collections.abc import Sequence
from typing import Final

from aiohttp import web

from devicemanager.demo.cluster import discovery, protobuf
from devicemanager.demo.cluster.access import HEALTH_PATHS, InvalidTokenError, User, forbidden_message
from devicemanager.demo.cluster.api_services import API_SERVICES, table, wants_table
from devicemanager.demo.cluster.discovery import AGGREGATED_TYPE, METRICS, GroupVersion, Resource
from devicemanager.demo.cluster.list_watch import list_objects, watch_objects
from devicemanager.demo.cluster.request_info import RequestInfo, parse_request
from devicemanager.demo.cluster.responses import compress, encode, failure, json_answer, not_found, unknown_path
from devicemanager.demo.cluster.selectors import JsonObject, SelectorError
from devicemanager.demo.cluster.state import ClusterState

VERSION: Final = {
    "major": "1",
    "minor": "37",
    "gitVersion": "v1.37.0-stand-in",
    "gitCommit": "none: this is devicemanager's stand-in for a cluster",
    "gitTreeState": "clean",
    "platform": "stand-in",
}
_SERVER: Final = "devicemanager-stand-in-cluster"
_BODY_LIMIT: Final = 3 * 1024 * 1024


class ClusterApi:
    """Answers requests from a cluster's state."""

    def __init__(self, cluster: ClusterState) -> None:
        self._cluster = cluster

    def application(self) -> web.Application:
        """The aiohttp application: one route, because :func:`parse_request` reads the path."""
        application = web.Application(client_max_size=_BODY_LIMIT)
        application.router.add_route("*", "/{path:.*}", self._answer)
        application.on_response_prepare.append(_set_server_header)
        return application

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        cluster = self._cluster
        query = {key: request.query[key] for key in request.query}
        info = parse_request(request.method, request.rel_url.raw_path, query)
        if any(name.lower().startswith("impersonate-") for name in request.headers):
            return failure(403, "the stand-in cluster lets nobody act as another user: ask without --as")
        try:
            user = cluster.access.authenticate(request.headers.get("Authorization"))
        except InvalidTokenError:
            return failure(401, "Unauthorized")
        allowed, _ = cluster.access.decide(user, info)
        if not allowed and info.path not in HEALTH_PATHS:
            details = {"name": info.name, "group": info.group, "kind": info.resource} if info.resource else {}
            return failure(403, forbidden_message(user, info), details)
        answer = await self._allowed(request, info, user)
        return compress(request, answer) if isinstance(answer, web.Response) else answer

    async def _allowed(self, request: web.Request, info: RequestInfo, user: User) -> web.StreamResponse:
        backend = self._cluster.aggregator.backend_of(info.path)
        if backend is not None:
            return await self._cluster.aggregator.forward(request, backend, user)
        if not info.resource:
            return await self._answer_path(request, info)
        resource = self._resource(info)
        if resource is None:
            return unknown_path()
        if info.verb == "create":
            return await self._review(request, resource, user)
        if info.verb not in {"get", "list", "watch"} or info.verb not in resource.verbs:
            return failure(405, "the server does not allow this method on the requested resource", {})
        if info.subresource:
            return self._cluster.kubelets.proxied(resource, info, self._cluster.clock.now())
        if resource is METRICS:
            return self._cluster.kubelets.pod_metrics(info, self._cluster.clock.now())
        return await self._read(request, resource, info)

    async def _read(self, request: web.Request, resource: Resource, info: RequestInfo) -> web.StreamResponse:
        store = self._cluster.store
        is_registration = resource.target == API_SERVICES
        try:
            if info.verb == "watch":
                return await watch_objects(request, store, resource, info.namespace)
            if info.name:
                found = store.get(resource.target, info.namespace, info.name)
                if found is None:
                    return not_found(resource, info.name)
                return await self._api_services(request, [found]) if is_registration else json_answer(found)
            if is_registration and wants_table(request.headers.get("Accept", "")):
                return await self._api_services(request, store.select(resource.target))
            return list_objects(request, store, resource, info.namespace)
        except SelectorError as error:
            return failure(400, str(error))

    async def _api_services(self, request: web.Request, stored: Sequence[JsonObject]) -> web.Response:
        """One APIService, or several as a table, each with its availability."""
        found = [await self._api_service(each) for each in stored]
        if not wants_table(request.headers.get("Accept", "")):
            return json_answer(found[0])
        return json_answer(table(found, self._cluster.store.version, self._cluster.clock.now()))

    async def _api_service(self, stored: JsonObject) -> JsonObject:
        backend = self._cluster.aggregator.backends.get(stored["metadata"]["name"])
        if backend is None:
            return stored
        available, message = await self._cluster.aggregator.check(backend)
        condition = {
            "type": "Available",
            "status": str(available),
            "reason": "Passed" if available else "FailedDiscoveryCheck",
            "message": message,
        }
        return {**stored, "status": {"conditions": [condition]}}

    async def _review(self, request: web.Request, resource: Resource, user: User) -> web.Response:
        access = self._cluster.access
        body = await request.read()
        try:
            if request.content_type == protobuf.CONTENT_TYPE:
                review = protobuf.parse_self_subject_access_review(body)
            else:
                review = json.loads(body)
        except ValueError as error:
            return failure(400, f"the body cannot be read: {error}")
        match resource.plural:
            case "tokenreviews":
                return json_answer(access.review_token(review), 201)
            case "subjectaccessreviews":
                return json_answer(access.review_access(review), 201)
            case "selfsubjectaccessreviews":
                return json_answer(access.review_access(review, user), 201)
            case _:
                return failure(405, "the server does not allow this method on the requested resource", {})

    async def _answer_path(self, request: web.Request, info: RequestInfo) -> web.Response:
        match info.path.strip("/").split("/"):
            case ["version"]:
                return json_answer(VERSION)
            case ["healthz" | "livez" | "readyz"]:
                return web.Response(text="ok")
            case ["api"]:
                core = [entry for entry in self._own() if not entry.group]
                return _discover(request, core, discovery.api_versions())
            case ["apis"]:
                groups = await self._groups()
                return _discover(request, groups, discovery.api_group_list(groups))
            case ["apis", group]:
                document = discovery.api_group(group, await self._groups())
                return unknown_path() if document is None else json_answer(document)
            case ["api", version]:
                return self._resource_list("", version)
            case ["apis", group, version]:
                return self._resource_list(group, version)
            case ["openapi", "v3"]:
                documents = await self._cluster.aggregator.openapi("/openapi/v3")
                return json_answer({"paths": {k: v for one in documents for k, v in one["paths"].items()}})
            case ["openapi", "v2"]:
                documents = await self._cluster.aggregator.openapi("/openapi/v2")
                return json_answer(next(iter(documents), _EMPTY_OPENAPI))
            case _:
                return web.Response(status=404, text="404 page not found\n")

    def _resource_list(self, group: str, version: str) -> web.Response:
        document = discovery.api_resource_list(group, version, self._cluster.resources)
        return unknown_path() if document is None else json_answer(document)

    def _own(self) -> list[GroupVersion]:
        return discovery.own_group_versions(self._cluster.resources)

    async def _groups(self) -> list[GroupVersion]:
        aggregator = self._cluster.aggregator
        behind = [await aggregator.group_version(backend) for backend in aggregator.backends.values()]
        return [*(entry for entry in self._own() if entry.group), *behind]

    def _resource(self, info: RequestInfo) -> Resource | None:
        wanted = (info.group, info.version, info.resource)
        for resource in self._cluster.resources:
            if (resource.group, resource.version, resource.plural) != wanted:
                continue
            known = {name for name, _, _ in resource.subresources}
            return resource if not info.subresource or info.subresource in known else None
        return None


_EMPTY_OPENAPI: Final = {
    "swagger": "2.0",
    "info": {"title": "devicemanager's stand-in for a cluster", "version": "v1.37.0-stand-in"},
    "paths": {},
    "definitions": {},
}


def _discover(request: web.Request, groups: list[GroupVersion], legacy: JsonObject) -> web.Response:
    version = discovery.negotiate(request.headers.get("Accept", ""))
    if version is None:
        return failure(406, "only the following media types are accepted: application/json")
    if not version:
        return json_answer(legacy)
    body = encode(discovery.aggregated(groups, version))
    headers = {
        "Content-Type": AGGREGATED_TYPE.format(version=version),
        "ETag": discovery.entity_tag(body),
        "Vary": "Accept",
        "Cache-Control": "public",
    }
    if request.headers.get("If-None-Match") == headers["ETag"]:
        return web.Response(status=304, headers=headers)
    return web.Response(body=body, headers=headers)


async def _set_server_header(request: web.Request, response: web.StreamResponse) -> None:
    response.headers["Server"] = _SERVER
