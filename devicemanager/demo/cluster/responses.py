"""Kubernetes answers as aiohttp responses: objects, lists, ``Status`` errors."""

import json
from typing import Any, Final
from zlib import compressobj

from aiohttp import web

from devicemanager.demo.cluster.discovery import Resource
from devicemanager.demo.cluster.selectors import JsonObject

_GZIP_FROM_BYTES: Final = 128 * 1024
"""kube-apiserver compresses answers from this size on, when the client accepts it."""

_REASONS: Final = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    406: "NotAcceptable",
    410: "Expired",
    415: "UnsupportedMediaType",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


def encode(document: Any) -> bytes:
    """Compact JSON, as kube-apiserver sends it: one line with its newline."""
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"


def json_answer(document: JsonObject, status: int = 200) -> web.Response:
    """A document as JSON."""
    return web.Response(body=encode(document), status=status, headers={"Content-Type": "application/json"})


def status_document(code: int, message: str, details: JsonObject | None = None) -> JsonObject:
    """A ``Status`` failure."""
    status: JsonObject = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": _REASONS.get(code, "Unknown"),
        "code": code,
    }
    return status if details is None else {**status, "details": details}


def failure(code: int, message: str, details: JsonObject | None = None) -> web.Response:
    """A ``Status`` failure as an answer."""
    return json_answer(status_document(code, message, details), code)


def not_found(resource: Resource, name: str) -> web.Response:
    """404 for an object that does not exist."""
    details = {"name": name, "group": resource.group, "kind": resource.plural}
    return failure(404, f'{resource.target} "{name}" not found', details)


def unknown_path() -> web.Response:
    """404 for a resource that does not exist."""
    return failure(404, "the server could not find the requested resource", {})


def object_list(resource: Resource, items: list[JsonObject], version: int, metadata: JsonObject) -> JsonObject:
    """A list; items of built-in kinds carry no kind of their own, those of custom resources do."""
    if resource.group in {"", "apiregistration.k8s.io"}:
        items = [{key: value for key, value in item.items() if key not in {"kind", "apiVersion"}} for item in items]
    return {
        "kind": f"{resource.kind}List",
        "apiVersion": resource.group_version,
        "metadata": {"resourceVersion": str(version), **metadata},
        "items": items,
    }


def compress(request: web.Request, response: web.Response) -> web.Response:
    """Gzip a large answer when the client accepts it."""
    accepted = "gzip" in request.headers.get("Accept-Encoding", "")
    if not accepted or "Content-Encoding" in response.headers or not isinstance(response.body, bytes):
        return response
    if len(response.body) >= _GZIP_FROM_BYTES:
        compressor = compressobj(level=1, wbits=31)
        response.body = compressor.compress(response.body) + compressor.flush()
        response.headers["Content-Encoding"] = "gzip"
    return response
