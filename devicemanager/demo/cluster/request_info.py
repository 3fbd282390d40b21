"""What a request to a Kubernetes API asks for, read from its method, path and query. Pure.

The rules are kube-apiserver's own (apiserver ``request/requestinfo.go``), as far as the stand-in serves them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

_METHOD_VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


@dataclass(frozen=True, slots=True)
class RequestInfo:
    """One request.

    Attributes:
        verb: ``get``, ``list``, ``watch``, ``create`` ...; the lower-case method for paths that name no resource.
        path: The decoded path.
        group: API group; empty for the core group and for paths that name no resource.
        resource: Plural; empty for paths that name no resource.
        name: Of the object, in the path; empty for a collection.
        selected_name: The only name a field selector lets through; authorization counts it as the name.
        rest: What follows the subresource (``stats/summary`` behind ``proxy``).
    """

    verb: str
    path: str
    group: str = ""
    version: str = ""
    namespace: str = ""
    resource: str = ""
    name: str = ""
    subresource: str = ""
    rest: str = ""
    selected_name: str = ""

    @property
    def authorized_name(self) -> str:
        """The name that authorization is asked about."""
        return self.name or self.selected_name

    @property
    def rule_resource(self) -> str:
        """As rules spell it: ``instances/metrics``."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource

    @property
    def target(self) -> str:
        """The same with its group: ``nodes/proxy``, ``instances/metrics.worker.gpustack.ai``."""
        plural = self.rule_resource
        return f"{plural}.{self.group}" if self.group else plural


def parse_request(method: str, raw_path: str, query: Mapping[str, str]) -> RequestInfo:
    """Read a request: its method in upper case, its percent-encoded path, the first value of each parameter."""
    parts = [unquote(part) for part in raw_path.split("/") if part]
    path = "/" + "/".join(parts)
    match parts:
        case ["api", version, *rest] if rest:
            group = ""
        case ["apis", group, version, *rest] if rest:
            pass
        case _:
            return RequestInfo(method.lower(), path)
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    resource, name, subresource = (*rest[:3], "", "", "")[:3]
    return RequestInfo(
        verb=_verb(method, name, query),
        path=path,
        group=group,
        version=version,
        namespace=namespace,
        resource=resource,
        name=name,
        subresource=subresource,
        rest="/".join(rest[3:]),
        selected_name="" if name else _named_by_selector(query),
    )


def _verb(method: str, name: str, query: Mapping[str, str]) -> str:
    if method not in {"GET", "HEAD"}:
        return _METHOD_VERBS.get(method, method.lower())
    if query.get("watch", "false") not in {"false", "0"}:
        return "watch"
    return "get" if name else "list"


def _named_by_selector(query: Mapping[str, str]) -> str:
    for requirement in query.get("fieldSelector", "").split(","):
        key, separator, value = requirement.partition("=")
        if key == "metadata.name" and separator:
            return value.removeprefix("=")
    return ""
