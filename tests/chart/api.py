"""A stand-in for kube-apiserver that holds objects, for the look-ups of helm's templates alone.

A mock where a cluster would be needed: discovery of the kinds that the chart renders, and reads of objects given.
"""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from typing_extensions import override

Object: TypeAlias = dict[str, Any]

KINDS: Mapping[str, Mapping[str, tuple[str, bool]]] = {
    "v1": {
        "Secret": ("secrets", True),
        "ConfigMap": ("configmaps", True),
        "Service": ("services", True),
        "ServiceAccount": ("serviceaccounts", True),
        "Namespace": ("namespaces", False),
    },
    "apps/v1": {"DaemonSet": ("daemonsets", True), "Deployment": ("deployments", True)},
    "policy/v1": {"PodDisruptionBudget": ("poddisruptionbudgets", True)},
    "apiregistration.k8s.io/v1": {"APIService": ("apiservices", False)},
    "rbac.authorization.k8s.io/v1": {
        "ClusterRole": ("clusterroles", False),
        "ClusterRoleBinding": ("clusterrolebindings", False),
        "Role": ("roles", True),
        "RoleBinding": ("rolebindings", True),
    },
}


def discovery(group_version: str) -> Object:
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version,
        "resources": [
            {
                "name": name,
                "singularName": "",
                "namespaced": namespaced,
                "kind": kind,
                "verbs": ["get", "list"],
            }
            for kind, (name, namespaced) in KINDS[group_version].items()
        ],
    }


def groups() -> Object:
    return {
        "kind": "APIGroupList",
        "apiVersion": "v1",
        "groups": [
            {
                "name": gv.split("/")[0],
                "versions": [{"groupVersion": gv, "version": gv.split("/")[1]}],
                "preferredVersion": {"groupVersion": gv, "version": gv.split("/")[1]},
            }
            for gv in KINDS
            if "/" in gv
        ],
    }


class HeldObjects:
    """What the stand-in holds.

    Attributes:
        objects: URL path -> object.
        url: Where it listens.
    """

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.url = ""

    def keep(self, document: Mapping[str, Any], *, release: tuple[str, str] | None = None) -> None:
        """Hold an object; ``release`` (name, namespace) marks it as helm marks what it installed."""
        api = document["apiVersion"]
        plural, namespaced = KINDS[api][document["kind"]]
        root = "/api/v1" if api == "v1" else f"/apis/{api}"
        inside = f"/namespaces/{document['metadata']['namespace']}" if namespaced else ""
        metadata = dict(document["metadata"])
        if release:
            owner = {"meta.helm.sh/release-name": release[0], "meta.helm.sh/release-namespace": release[1]}
            metadata["annotations"] = {**metadata.get("annotations", {}), **owner}
        self.objects[f"{root}{inside}/{plural}/{metadata['name']}"] = {**document, "metadata": metadata}

    def answer(self, path: str) -> Object | None:
        """The document at ``path``; None where there is none."""
        fixed: dict[str, Object] = {
            "/version": {"major": "1", "minor": "35", "gitVersion": "v1.35.0"},
            "/api": {"kind": "APIVersions", "versions": ["v1"]},
            "/apis": groups(),
            "/api/v1": discovery("v1"),
            **{f"/apis/{gv}": discovery(gv) for gv in KINDS if "/" in gv},
        }
        return fixed.get(path) or self.objects.get(path)


@contextmanager
def serving() -> Iterator[HeldObjects]:
    """A stand-in on a loopback port of its own."""
    store = HeldObjects()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            document = store.answer(urlsplit(self.path).path)
            status = 404 if document is None else 200
            missing = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
            payload = json.dumps(document or missing).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

        @override
        def log_message(self, format: str, *args: object) -> None:
            """Requests are recorded, not printed."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        store.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield store
        finally:
            server.shutdown()
            thread.join()
