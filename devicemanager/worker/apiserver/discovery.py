"""What is served, in the three forms in which clients discover it. Static bytes, made once per process.

Nothing here depends on any source: a group whose discovery fails holds up the deletion of namespaces everywhere in
the cluster. The same version gives the same bytes, so that replicas agree.
"""

import hashlib
from collections.abc import Sequence
from typing import Final

from devicemanager.worker.apiserver.documents import StaticDocument, encode
from devicemanager.worker.apiserver.negotiation import Discovery
from devicemanager.worker.workloads.workload import API_VERSION, Resource

_VERBS: Final = ("get", "list")


class DiscoveryDocuments:
    """All discovery documents of one API group.

    Attributes:
        groups: ``/apis``, in each form.
        group: ``/apis/<group>``.
        resources: ``/apis/<group>/v1``.
    """

    def __init__(self, api_group: str, resources: Sequence[Resource]) -> None:
        self.api_group = api_group
        self.groups = {
            Discovery.LEGACY: StaticDocument(encode(_group_list(api_group))),
            Discovery.V2: _aggregated(api_group, resources, Discovery.V2),
            Discovery.V2BETA1: _aggregated(api_group, resources, Discovery.V2BETA1),
        }
        group = {"kind": "APIGroup", "apiVersion": "v1", **_group_entry(api_group)}
        self.group = StaticDocument(encode(group))
        self.resources = StaticDocument(encode(_resource_list(api_group, resources)))


def _group_list(api_group: str) -> dict[str, object]:
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group_entry(api_group)]}


def _group_entry(api_group: str) -> dict[str, object]:
    version = {"groupVersion": f"{api_group}/{API_VERSION}", "version": API_VERSION}
    return {"name": api_group, "versions": [version], "preferredVersion": version}


def _resource_list(api_group: str, resources: Sequence[Resource]) -> dict[str, object]:
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{api_group}/{API_VERSION}",
        "resources": [entry for resource in resources for entry in _entries(resource)],
    }


def _entries(resource: Resource) -> list[dict[str, object]]:
    source = resource.source
    usage: dict[str, object] = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": True,
        "kind": resource.kind,
        "verbs": list(_VERBS),
        "shortNames": list(resource.short_names),
        "categories": list(resource.categories),
    }
    # Without verbs: hidden from people, and yet clients can tell what instances/metrics belongs to.
    owner = {
        "name": source.plural,
        "singularName": source.singular,
        "namespaced": True,
        "kind": source.kind,
        "verbs": [],
    }
    subresource = {
        "name": f"{source.plural}/{resource.subresource}",
        "singularName": "",
        "namespaced": True,
        "kind": resource.kind,
        "verbs": ["get"],
    }
    return [usage, *([owner] if source.is_owner else []), subresource]


def _aggregated(api_group: str, resources: Sequence[Resource], version: Discovery) -> StaticDocument:
    body = encode(
        {
            "kind": "APIGroupDiscoveryList",
            "apiVersion": f"apidiscovery.k8s.io/{version}",
            "metadata": {},
            "items": [
                {
                    "metadata": {"name": api_group},
                    "versions": [
                        {
                            "version": API_VERSION,
                            "resources": [
                                entry
                                for resource in resources
                                for entry in _aggregated_entries(api_group, resource)
                            ],
                            "freshness": "Current",
                        }
                    ],
                }
            ],
        }
    )
    return StaticDocument(
        body,
        f"application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList",
        etag=f'"{hashlib.sha512(body).hexdigest().upper()}"',
        headers={"Vary": "Accept", "Cache-Control": "public"},
    )


def _aggregated_entries(api_group: str, resource: Resource) -> list[dict[str, object]]:
    source = resource.source
    kind = {"group": api_group, "version": API_VERSION, "kind": resource.kind}
    # A subresource has its place below an entry of its parent; one of no kind is no resource to any client, and yet
    # must be an object, or old clients crash.
    no_kind = {"group": "", "version": "", "kind": ""}
    return [
        {
            "resource": resource.plural,
            "responseKind": kind,
            "scope": "Namespaced",
            "singularResource": resource.singular,
            "verbs": list(_VERBS),
            "shortNames": list(resource.short_names),
            "categories": list(resource.categories),
        },
        {
            "resource": source.plural,
            "responseKind": {**kind, "kind": source.kind} if source.is_owner else no_kind,
            "scope": "Namespaced",
            "singularResource": source.singular if source.is_owner else "",
            "verbs": [],
            "subresources": [{"subresource": resource.subresource, "responseKind": kind, "verbs": ["get"]}],
        },
    ]
