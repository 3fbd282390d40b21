"""The attributes of a request, as Kubernetes authorizes them; routing uses them too. Pure.

The rules are those of the generic API server: a path under ``/apis`` with fewer than four parts is not a resource,
a collection is listed (or watched), a field selector that pins ``metadata.name`` names the object.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from devicemanager.worker.apiserver.selectors import SelectorError, pinned_name

_VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_READS: Final = frozenset({"GET", "HEAD"})
_NOT_WATCH: Final = frozenset({"false", "0"})


@dataclass(frozen=True, slots=True)
class Attributes:
    """One request, as a SubjectAccessReview describes it. Hashable: it is half of the authorization cache's key.

    Attributes:
        verb: ``get``, ``list``, ``watch`` ... for resources; the method in lower case for other paths.
        path: The decoded path; what is authorized when ``resource`` is empty.
        group: API group; empty for other paths, as are the following.
        version: API version.
        namespace: Empty for all namespaces.
        resource: Plural; empty when the path is no resource.
        subresource: Empty for the object itself.
        name: Empty for a collection.
        is_collection: The path names no object, whatever a field selector pins.
    """

    verb: str
    path: str
    group: str = ""
    version: str = ""
    namespace: str = ""
    resource: str = ""
    subresource: str = ""
    name: str = ""
    is_collection: bool = False

    @property
    def qualified_resource(self) -> str:
        """``instances.worker.gpustack.ai``."""
        return f"{self.resource}.{self.group}"


def parse_attributes(method: str, path: str, query: Mapping[str, str]) -> Attributes:
    """Describe a request by its method in upper case, its decoded path, and the first value of each parameter."""
    parts = path.strip("/").split("/")
    if parts[0] != "apis" or len(parts) < 4:
        return Attributes(verb=method.lower(), path=path)
    group, version, *rest = parts[1:]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2:
        namespace, *rest = rest[1:]
    resource, name, subresource = (*rest[:3], "", "")[:3]
    is_collection = not name
    if is_collection:
        name = _pinned(query)
    return Attributes(
        verb=_verb(method, query, is_collection),
        path=path,
        group=group,
        version=version,
        namespace=namespace,
        resource=resource,
        subresource=subresource,
        name=name,
        is_collection=is_collection,
    )


def _verb(method: str, query: Mapping[str, str], is_collection: bool) -> str:
    if method in _READS:
        if not is_collection:
            return "get"
        watch = query.get("watch")
        return "list" if watch is None or watch.lower() in _NOT_WATCH else "watch"
    if method == "DELETE" and is_collection:
        return "deletecollection"
    return _VERBS.get(method, "")


def _pinned(query: Mapping[str, str]) -> str:
    """The name that a field selector selects; empty also for a malformed one, which is refused later."""
    try:
        return pinned_name(query.get("fieldSelector", "")) or ""
    except SelectorError:
        return ""
