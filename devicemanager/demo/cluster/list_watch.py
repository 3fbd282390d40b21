"""Lists and watches of stored objects, with selectors, pages and resource versions as kube-apiserver has them."""

import asyncio
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from typing import Final

from aiohttp import web

from devicemanager.demo.cluster.discovery import Resource
from devicemanager.demo.cluster.responses import encode, failure, json_answer, object_list, status_document
from devicemanager.demo.cluster.selectors import JsonObject, Predicate, parse_fields, parse_labels
from devicemanager.demo.cluster.store import ExpiredError, Store, watch_event

_LONGEST_WATCH_S: Final = 1800.0
_INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"


def list_objects(request: web.Request, store: Store, resource: Resource, namespace: str) -> web.Response:
    """Answer a list.

    Raises:
        SelectorError: A selector cannot be understood.
    """
    items = store.select(resource.target, namespace, *_predicates(request))
    try:
        start = _start(request.query.get("continue", ""))
        limit = int(request.query.get("limit", "0")) or len(items)
    except ValueError:
        return failure(400, "continue key is not valid: it was not made by this server")
    page = items[start : start + limit]
    metadata: JsonObject = {}
    if start + limit < len(items):
        metadata["continue"] = urlsafe_b64encode(json.dumps({"start": start + limit}).encode()).decode()
        metadata["remainingItemCount"] = len(items) - start - limit
    return json_answer(object_list(resource, page, store.version, metadata))


async def watch_objects(
    request: web.Request, store: Store, resource: Resource, namespace: str
) -> web.StreamResponse:
    """Answer a watch: one JSON line an event, until it times out, the client disconnects or watches are dropped.

    Raises:
        SelectorError: A selector cannot be understood.
    """
    predicates = [*_predicates(request), *([_in_namespace(namespace)] if namespace else [])]
    query = request.query
    try:
        since = int(query.get("resourceVersion") or 0)
        duration_s = float(query.get("timeoutSeconds") or _LONGEST_WATCH_S)
    except ValueError:
        return failure(400, "resourceVersion and timeoutSeconds must be numbers")
    initial = since == 0 or query.get("sendInitialEvents") == "true"
    bookmark = query.get("sendInitialEvents") == "true"
    stream = web.StreamResponse(headers={"Content-Type": "application/json"})
    await stream.prepare(request)
    with suppress(TimeoutError):
        async with asyncio.timeout(duration_s):
            async with aclosing(
                _events(store, resource, predicates, since, initial=initial, mark=bookmark)
            ) as events:
                async for kind, item in events:
                    await stream.write(encode({"type": kind, "object": item}))
    await stream.write_eof()
    return stream


async def _events(
    store: Store, resource: Resource, predicates: Sequence[Predicate], since: int, *, initial: bool, mark: bool
) -> AsyncGenerator[tuple[str, JsonObject], None]:
    if initial:
        since = store.version
        for item in store.select(resource.target, "", *predicates):
            yield "ADDED", item
        if mark:
            yield "BOOKMARK", _bookmark(resource, since)
    try:
        async with aclosing(store.changes(resource.target, since)) as changes:
            async for change in changes:
                if (event := watch_event(change, predicates)) is not None:
                    yield event
    except ExpiredError as error:
        yield "ERROR", status_document(410, str(error))


def _bookmark(resource: Resource, version: int) -> JsonObject:
    metadata = {"resourceVersion": str(version), "annotations": {_INITIAL_EVENTS_END: "true"}}
    return {"kind": resource.kind, "apiVersion": resource.group_version, "metadata": metadata}


def _predicates(request: web.Request) -> list[Predicate]:
    return [
        parse_labels(request.query.get("labelSelector", "")),
        parse_fields(request.query.get("fieldSelector", "")),
    ]


def _in_namespace(namespace: str) -> Predicate:
    return lambda item: item["metadata"].get("namespace") == namespace


def _start(token: str) -> int:
    """Where a page begins.

    Raises:
        ValueError: The token is not one of ours.
    """
    if not token:
        return 0
    try:
        return int(json.loads(urlsafe_b64decode(token))["start"])
    except (KeyError, TypeError) as error:
        raise ValueError("not a token of this server") from error
