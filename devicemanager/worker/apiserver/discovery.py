"""What is served, in the three forms in which clients discover it. Static bytes, made once per process.

Nothing here depends on any source: a group whose discovery fails holds up the deletion of namespaces everywhere in
the cluster. The same version gives the same bytes, so that replicas agree.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import yaml

from devicemanager.worker.apiserver.negotiation import Discovery, Encoding

VERSION: Final = "v1"
KIND: Final = "InstanceMetrics"
LIST_KIND: Final = "InstanceMetricsList"

METRICS: Final = "instancemetrics"
INSTANCES: Final = "instances"
SUBRESOURCE: Final = "metrics"

_METRICS_VERBS: Final = ("get", "list")
_SHORT_NAMES: Final = ("im",)
_CATEGORIES: Final = ("gpustack",)


@dataclass(frozen=True, slots=True)
class StaticDocument:
    """Bytes ready to be sent.

    Attributes:
        content_type: Exactly as it must appear: clients compare the whole of it.
        etag: Quoted; None for documents that carry none.
        headers: To be sent beside.
    """

    body: bytes
    content_type: str
    etag: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


class DiscoveryDocuments:
    """All discovery documents of one API group."""

    def __init__(self, api_group: str) -> None:
        self.api_group = api_group
        self._groups: dict[tuple[Discovery, Encoding], StaticDocument] = {
            (Discovery.LEGACY, encoding): static(_group_list(api_group), encoding) for encoding in Encoding
        }
        for version in (Discovery.V2, Discovery.V2BETA1):
            self._groups[version, Encoding.JSON] = _aggregated(api_group, version)
        self._group = {encoding: static(_group(api_group), encoding) for encoding in Encoding}
        self._resources = {encoding: static(_resource_list(api_group), encoding) for encoding in Encoding}

    def groups(self, form: Discovery, encoding: Encoding) -> StaticDocument:
        """``/apis``."""
        return self._groups[form, encoding]

    def group(self, encoding: Encoding) -> StaticDocument:
        """``/apis/<group>``."""
        return self._group[encoding]

    def resources(self, encoding: Encoding) -> StaticDocument:
        """``/apis/<group>/v1``."""
        return self._resources[encoding]


def static(document: Mapping[str, object], encoding: Encoding) -> StaticDocument:
    """Encode a document once."""
    return StaticDocument(encode(document, encoding), encoding.value)


def encode(document: object, encoding: Encoding, *, pretty: bool = False) -> bytes:
    """One document as bytes, with a newline at the end as the API server sends it.

    A path or a header may hold bytes that are no UTF-8; they reach us as surrogates and leave as JSON escapes.
    """
    if encoding is Encoding.YAML:
        text = yaml.dump(document, Dumper=_DUMPER, default_flow_style=False, allow_unicode=True)
    elif pretty:
        text = json.dumps(document, ensure_ascii=False, allow_nan=False, indent=2) + "\n"
    else:
        text = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n"
    return text.encode("utf-8", "backslashreplace")


def _aggregated(api_group: str, version: Discovery) -> StaticDocument:
    body = encode(_group_discovery_list(api_group, version), Encoding.JSON)
    return StaticDocument(
        body,
        f"application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList",
        etag=f'"{hashlib.sha512(body).hexdigest().upper()}"',
        headers={"Vary": "Accept", "Cache-Control": "public"},
    )


def _group(api_group: str) -> dict[str, object]:
    return {"kind": "APIGroup", "apiVersion": "v1", **_group_entry(api_group)}


def _group_list(api_group: str) -> dict[str, object]:
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group_entry(api_group)]}


def _group_entry(api_group: str) -> dict[str, object]:
    version = {"groupVersion": f"{api_group}/{VERSION}", "version": VERSION}
    return {"name": api_group, "versions": [version], "preferredVersion": version}


def _resource_list(api_group: str) -> dict[str, object]:
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{api_group}/{VERSION}",
        "resources": [
            {
                "name": METRICS,
                "singularName": METRICS,
                "namespaced": True,
                "kind": KIND,
                "verbs": list(_METRICS_VERBS),
                "shortNames": list(_SHORT_NAMES),
                "categories": list(_CATEGORIES),
            },
            # Without verbs: hidden from people, and yet clients can tell what instances/metrics belongs to.
            {"name": INSTANCES, "singularName": "instance", "namespaced": True, "kind": "Instance", "verbs": []},
            {
                "name": f"{INSTANCES}/{SUBRESOURCE}",
                "singularName": "",
                "namespaced": True,
                "kind": KIND,
                "verbs": ["get"],
            },
        ],
    }


def _group_discovery_list(api_group: str, version: Discovery) -> dict[str, object]:
    metrics_kind = {"group": api_group, "version": VERSION, "kind": KIND}
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": f"apidiscovery.k8s.io/{version}",
        "metadata": {},
        "items": [
            {
                "metadata": {"name": api_group},
                "versions": [
                    {
                        "version": VERSION,
                        "resources": [
                            {
                                "resource": METRICS,
                                "responseKind": metrics_kind,
                                "scope": "Namespaced",
                                "singularResource": METRICS,
                                "verbs": list(_METRICS_VERBS),
                                "shortNames": list(_SHORT_NAMES),
                                "categories": list(_CATEGORIES),
                            },
                            {
                                "resource": INSTANCES,
                                "responseKind": {"group": api_group, "version": VERSION, "kind": "Instance"},
                                "scope": "Namespaced",
                                "singularResource": "instance",
                                "verbs": [],
                                "subresources": [
                                    {"subresource": SUBRESOURCE, "responseKind": metrics_kind, "verbs": ["get"]}
                                ],
                            },
                        ],
                        "freshness": "Current",
                    }
                ],
            }
        ],
    }


_DUMPER: Final = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
