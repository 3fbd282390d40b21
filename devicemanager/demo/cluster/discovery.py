"""Discovery documents of the stand-in cluster: the legacy ones, one per group, and the aggregated one. Pure."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from devicemanager.demo.cluster.selectors import JsonObject

AGGREGATED_TYPE: Final = "application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"
_AGGREGATED_VERSIONS: Final = ("v2", "v2beta1")
_STORED: Final = ("get", "list", "watch")


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource.

    Attributes:
        subresources: Name, kind and verbs of each.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    verbs: Sequence[str] = _STORED
    short_names: Sequence[str] = ()
    categories: Sequence[str] = ()
    subresources: Sequence[tuple[str, str, Sequence[str]]] = ()

    @property
    def target(self) -> str:
        """As rules, faults and the store spell it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def group_version(self) -> str:
        """As ``apiVersion`` spells it."""
        return f"{self.group}/{self.version}" if self.group else self.version


def _review(group: str, plural: str, kind: str) -> Resource:
    return Resource(group, "v1", plural, kind, namespaced=False, verbs=("create",))


METRICS: Final = Resource("metrics.k8s.io", "v1beta1", "pods", "PodMetrics", verbs=("get", "list"))
INSTANCES: Final = Resource(
    "worker.gpustack.ai", "v1alpha1", "instances", "Instance", short_names=("inst",), categories=("gpustack",)
)
RESOURCES: Final = (
    Resource("", "v1", "configmaps", "ConfigMap", short_names=("cm",)),
    Resource("", "v1", "events", "Event", short_names=("ev",)),
    Resource("", "v1", "namespaces", "Namespace", namespaced=False, short_names=("ns",)),
    Resource(
        "",
        "v1",
        "nodes",
        "Node",
        namespaced=False,
        short_names=("no",),
        subresources=(("proxy", "NodeProxyOptions", ("get",)),),
    ),
    Resource("", "v1", "pods", "Pod", short_names=("po",), categories=("all",)),
    Resource("", "v1", "services", "Service", short_names=("svc",), categories=("all",)),
    Resource("apiregistration.k8s.io", "v1", "apiservices", "APIService", namespaced=False),
    _review("authentication.k8s.io", "tokenreviews", "TokenReview"),
    _review("authorization.k8s.io", "selfsubjectaccessreviews", "SelfSubjectAccessReview"),
    _review("authorization.k8s.io", "subjectaccessreviews", "SubjectAccessReview"),
    INSTANCES,
    METRICS,
)


@dataclass(frozen=True, slots=True)
class GroupVersion:
    """One version of a group in the aggregated form.

    Attributes:
        priority: Higher comes first in its group; a custom resource has 100.
        resources: As ``APIResourceDiscovery`` items.
    """

    group: str
    version: str
    resources: Sequence[JsonObject]
    priority: int = 100
    freshness: str = "Current"


def own_group_versions(resources: Sequence[Resource]) -> list[GroupVersion]:
    """The groups the stand-in itself serves, in the order of ``resources``."""
    found: dict[tuple[str, str], list[JsonObject]] = {}
    for resource in resources:
        found.setdefault((resource.group, resource.version), []).append(_discovery_item(resource))
    return [GroupVersion(group, version, items) for (group, version), items in found.items()]


def aggregated(group_versions: Sequence[GroupVersion], version: str) -> JsonObject:
    """An ``APIGroupDiscoveryList``; versions of a group in order of priority."""
    groups: dict[str, list[GroupVersion]] = {}
    for group_version in group_versions:
        groups.setdefault(group_version.group, []).append(group_version)
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": f"apidiscovery.k8s.io/{version}",
        "metadata": {},
        "items": [
            {
                "metadata": {"name": group} if group else {},
                "versions": [
                    {"version": entry.version, "resources": list(entry.resources), "freshness": entry.freshness}
                    for entry in sorted(versions, key=lambda entry: -entry.priority)
                ],
            }
            for group, versions in groups.items()
        ],
    }


def api_group_list(group_versions: Sequence[GroupVersion]) -> JsonObject:
    """``GET /apis`` in the legacy form."""
    names = dict.fromkeys(entry.group for entry in group_versions if entry.group)
    return {
        "kind": "APIGroupList",
        "apiVersion": "v1",
        "groups": [_group_body(name, group_versions) for name in names],
    }


def api_group(name: str, group_versions: Sequence[GroupVersion]) -> JsonObject | None:
    """``GET /apis/<group>``; None for an unknown group."""
    if all(entry.group != name for entry in group_versions):
        return None
    return {"kind": "APIGroup", "apiVersion": "v1", **_group_body(name, group_versions)}


def api_versions() -> JsonObject:
    """``GET /api`` in the legacy form."""
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}


def api_resource_list(group: str, version: str, resources: Sequence[Resource]) -> JsonObject | None:
    """``GET /apis/<group>/<version>``; None for an unknown one."""
    served = [resource for resource in resources if (resource.group, resource.version) == (group, version)]
    if not served:
        return None
    items: list[JsonObject] = []
    for resource in served:
        items.append(
            {
                "name": resource.plural,
                "singularName": _singular(resource),
                "namespaced": resource.namespaced,
                "kind": resource.kind,
                "verbs": list(resource.verbs),
                **_names(resource),
            }
        )
        items.extend(
            {
                "name": f"{resource.plural}/{name}",
                "singularName": "",
                "namespaced": resource.namespaced,
                "kind": kind,
                "verbs": list(verbs),
            }
            for name, kind, verbs in resource.subresources
        )
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": served[0].group_version,
        "resources": items,
    }


def negotiate(accept: str) -> str | None:
    """The aggregated version a client prefers; an empty text for the legacy form; None for neither (406)."""
    clauses = [clause.strip() for clause in accept.split(",") if clause.strip()] or ["*/*"]
    for clause in clauses:
        media_type, *parameters = (part.strip() for part in clause.split(";"))
        if media_type not in {"application/json", "application/*", "*/*"}:
            continue
        asked = dict(parameter.split("=", 1) for parameter in parameters if "=" in parameter)
        asked = {key: value for key, value in asked.items() if key in {"g", "v", "as"}}
        if not asked:
            return ""
        for version in _AGGREGATED_VERSIONS:
            if asked == {"g": "apidiscovery.k8s.io", "v": version, "as": "APIGroupDiscoveryList"}:
                return version
    return None


def entity_tag(body: bytes) -> str:
    """The quoted ``ETag`` of a discovery document."""
    return f'"{hashlib.sha256(body).hexdigest().upper()}"'


def _discovery_item(resource: Resource) -> JsonObject:
    item: JsonObject = {
        "resource": resource.plural,
        "responseKind": {"group": resource.group, "version": resource.version, "kind": resource.kind},
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": _singular(resource),
        "verbs": list(resource.verbs),
        **_names(resource),
    }
    if resource.subresources:
        item["subresources"] = [
            {
                "subresource": name,
                "responseKind": {"group": resource.group, "version": resource.version, "kind": kind},
                "verbs": list(verbs),
            }
            for name, kind, verbs in resource.subresources
        ]
    return item


def _names(resource: Resource) -> Mapping[str, list[str]]:
    names = {"shortNames": list(resource.short_names), "categories": list(resource.categories)}
    return {key: value for key, value in names.items() if value}


def _singular(resource: Resource) -> str:
    return "" if resource is METRICS else resource.kind.lower()


def _group_body(name: str, group_versions: Sequence[GroupVersion]) -> JsonObject:
    mine = sorted((entry for entry in group_versions if entry.group == name), key=lambda entry: -entry.priority)
    versions = [{"groupVersion": f"{name}/{entry.version}", "version": entry.version} for entry in mine]
    return {"name": name, "versions": versions, "preferredVersion": versions[0]}
