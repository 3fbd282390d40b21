"""OpenAPI v2 and v3 of the API group, from the names and schemas of the kinds of workload. Static bytes.

``kubectl explain`` reads them, and the cluster merges them into its own. Old clients need v2, new ones v3; both are
made from the same parts. A document whose hash a client holds may have changed since: it is answered with the
current one, never with a redirect, which the aggregator forbids.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from email.utils import format_datetime
from typing import Final

from devicemanager import __version__
from devicemanager.worker.apiserver.documents import JSON, StaticDocument, encode
from devicemanager.worker.apiserver.negotiation import IncludeObject
from devicemanager.worker.workloads.workload import API_VERSION, Resource, Workload

_A_YEAR: Final = timedelta(days=365)
_V2_REFERENCES: Final = "#/definitions/"
_V3_REFERENCES: Final = "#/components/schemas/"
_VARIES: Final = {"Vary": "Accept"}
_STATUS: Final = "Status"

_PLACEHOLDER: Final = re.compile(r"\{(\w+)\}")

_Schema = dict[str, object]

_QUERY: Final[Mapping[str, tuple[str, _Schema]]] = {
    "timeout": (
        "How long the caller waits; sources that are slower are left out.",
        {"type": "string", "pattern": r"^(0|([0-9]{1,9}(\.[0-9]{1,9})?(ms|s|m|h))+)$"},
    ),
    "labelSelector": ("Select by the {kind}'s labels; everything when empty.", {"type": "string"}),
    "fieldSelector": (
        "Select by metadata.name or metadata.namespace; everything when empty.",
        {"type": "string"},
    ),
    "limit": ("At most so many objects; the answer then says how to continue.", {"type": "integer", "minimum": 0}),
    "continue": ("The continue value of the page before.", {"type": "string"}),
    "includeObject": (
        "How much of the object comes with a table's row.",
        {"type": "string", "enum": [include.value for include in IncludeObject]},
    ),
}
_OF_READ: Final = ("includeObject", "timeout")
_OF_LIST: Final = ("continue", "fieldSelector", "includeObject", "labelSelector", "limit", "timeout")


@dataclass(frozen=True, slots=True)
class _Operation:
    """One path that is served.

    Attributes:
        action: ``get`` or ``list``.
        path: Below the group's version.
        operation_id: As client generators use it.
        resource: What it is about.
    """

    action: str
    path: str
    operation_id: str
    summary: str
    resource: Resource

    @property
    def schema(self) -> str:
        """Of a good answer."""
        return self.resource.list_kind if self.action == "list" else self.resource.kind

    @property
    def parameters(self) -> Iterator[tuple[_Schema, _Schema]]:
        """Each as it is described, and its schema."""
        kind = self.resource.source.kind
        for name in _PLACEHOLDER.findall(self.path):
            described = {"name": name, "in": "path", "description": f"{name} of the {kind}", "required": True}
            yield described, {"type": "string"}
        for name in _OF_LIST if self.action == "list" else _OF_READ:
            description, schema = _QUERY[name]
            yield {"name": name, "in": "query", "description": description.format(kind=kind)}, schema


def _operations(resource: Resource) -> Iterator[_Operation]:
    kind, source, of_namespace = resource.kind, resource.source, "namespaces/{namespace}"
    all_of, one = f"current samples of the {source.kind}s of", f"current sample of one {source.kind}"
    below = f"{of_namespace}/{source.plural}/{{name}}/{resource.subresource}"
    for action, path, operation_id, summary in (
        ("list", resource.plural, f"list{kind}ForAllNamespaces", f"{all_of} all namespaces"),
        ("list", f"{of_namespace}/{resource.plural}", f"listNamespaced{kind}", f"{all_of} a namespace"),
        ("get", f"{of_namespace}/{resource.plural}/{{name}}", f"readNamespaced{kind}", one),
        ("get", below, f"readNamespaced{kind}Of{source.kind}", f"{one}, as its subresource"),
    ):
        yield _Operation(action, path, operation_id, summary, resource)


class OpenApiDocuments:
    """OpenAPI of one API group."""

    def __init__(self, api_group: str, workloads: Sequence[Workload]) -> None:
        self._group = api_group
        self._workloads = workloads
        self._operations = [each for workload in workloads for each in _operations(workload.resource)]
        self._prefix = ".".join([*reversed(api_group.split(".")), API_VERSION])
        self.path = f"/openapi/v3/apis/{api_group}/{API_VERSION}"
        """Where the v3 document of the group's version is served."""
        body = encode(self._v3())
        self.hash = hashlib.sha512(body).hexdigest().upper()
        """Of the v3 document; clients send it along and cache for good what they get for it."""
        self._version = _document(body, self.hash, _VARIES)
        relative = f"{self.path}?hash={self.hash}"
        index = {"paths": {f"apis/{api_group}/{API_VERSION}": {"serverRelativeURL": relative}}}
        self.index = StaticDocument(encode(index))
        """``/openapi/v3``: lists our own version only, for all that is listed enters the cluster's own index."""
        v2 = encode(self._v2())
        self.v2 = _document(v2, hashlib.sha512(v2).hexdigest().upper(), _VARIES)
        """``/openapi/v2``."""

    def v3(self, asked_hash: str, now: datetime) -> StaticDocument:
        """The v3 document; one asked for by its own hash may be cached for a year."""
        if asked_hash != self.hash:
            return self._version
        expires = format_datetime(now + _A_YEAR, usegmt=True)
        headers = {**_VARIES, "Cache-Control": "public, immutable", "Expires": expires}
        return _document(self._version.body, self.hash, headers)

    def _v3(self) -> _Schema:
        return {
            "openapi": "3.0.0",
            "info": self._info(),
            "paths": {self._path(operation): self._v3_path(operation) for operation in self._operations},
            "components": {"schemas": self._schemas(_V3_REFERENCES)},
        }

    def _v2(self) -> _Schema:
        return {
            "swagger": "2.0",
            "info": self._info(),
            "paths": {self._path(operation): self._v2_path(operation) for operation in self._operations},
            "definitions": self._schemas(_V2_REFERENCES),
        }

    def _v3_path(self, operation: _Operation) -> _Schema:
        parameters = [{**described, "schema": schema} for described, schema in operation.parameters]
        responses: _Schema = {
            "200": self._v3_response("OK", operation.schema),
            "default": self._v3_response("Anything else.", _STATUS),
        }
        return {"parameters": parameters, "get": {**self._common(operation), "responses": responses}}

    def _v2_path(self, operation: _Operation) -> _Schema:
        parameters = [{**described, **schema} for described, schema in operation.parameters]
        responses: _Schema = {
            "200": {"description": "OK", "schema": self._reference(operation.schema, _V2_REFERENCES)},
            "default": {"description": "Anything else.", "schema": self._reference(_STATUS, _V2_REFERENCES)},
        }
        get = {
            **self._common(operation),
            "produces": [JSON],
            "schemes": ["https"],
            "responses": responses,
        }
        return {"parameters": parameters, "get": get}

    def _info(self) -> _Schema:
        return {"title": "Instance metrics", "version": __version__}

    def _path(self, operation: _Operation) -> str:
        return f"/apis/{self._group}/{API_VERSION}/{operation.path}"

    def _common(self, operation: _Operation) -> _Schema:
        first, *rest = self._group.split(".")
        tag = first + "".join(part.capitalize() for part in rest) + f"_{API_VERSION}"
        return {
            "tags": [tag],
            "description": operation.summary,
            "operationId": operation.operation_id,
            "x-kubernetes-action": operation.action,
            "x-kubernetes-group-version-kind": {
                "group": self._group,
                "version": API_VERSION,
                "kind": operation.resource.kind,
            },
        }

    def _v3_response(self, description: str, schema: str) -> _Schema:
        content = {"schema": self._reference(schema, _V3_REFERENCES)}
        return {
            "description": description,
            "content": {JSON: content},
        }

    def _reference(self, name: str, references: str) -> _Schema:
        return {"$ref": f"{references}{self._prefix}.{name}"}

    def _schemas(self, references: str) -> _Schema:
        found: _Schema = {}
        for workload in self._workloads:
            found |= workload.schemas(api_group=self._group, ref_prefix=references)
        return {**found, f"{self._prefix}.{_STATUS}": _STATUS_SCHEMA}


def _document(body: bytes, digest: str, headers: Mapping[str, str]) -> StaticDocument:
    return StaticDocument(body, etag=f'"{digest}"', headers=headers)


def _text(description: str) -> _Schema:
    return {"type": "string", "description": description}


_STATUS_SCHEMA: Final = {
    "type": "object",
    "description": "Why there is no other answer.",
    "properties": {
        "apiVersion": _text("Version of this document's schema."),
        "kind": _text("Name of this document's schema."),
        "metadata": {"type": "object", "description": "Always empty."},
        "status": _text("Failure."),
        "message": _text("For a person."),
        "reason": _text("One word for a program."),
        "details": {"type": "object", "description": "What it is about."},
        "code": {"type": "integer", "format": "int32", "description": "The HTTP status."},
    },
}
