"""A stand-in for kube-apiserver that holds objects, for helm alone: look-ups, installs, upgrades and uninstalls.

A mock where a cluster would be needed. It discovers the kinds that the chart renders, and creates, merges, lists
and deletes objects of them without a look at what they hold.
"""

import base64
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import yaml
from typing_extensions import override

from devicemanager.demo.cluster.protobuf import fields

Object: TypeAlias = dict[str, Any]

KINDS: Mapping[str, Mapping[str, tuple[str, bool]]] = {
    "v1": {
        "Secret": ("secrets", True),
        "ConfigMap": ("configmaps", True),
        "Service": ("services", True),
        "ServiceAccount": ("serviceaccounts", True),
        "Namespace": ("namespaces", False),
        "ResourceQuota": ("resourcequotas", True),
    },
    "apiextensions.k8s.io/v1": {"CustomResourceDefinition": ("customresourcedefinitions", False)},
    "cert-manager.io/v1": {"Certificate": ("certificates", True), "Issuer": ("issuers", True)},
    "monitoring.coreos.com/v1": {"PodMonitor": ("podmonitors", True)},
    "networking.k8s.io/v1": {"NetworkPolicy": ("networkpolicies", True)},
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
                "verbs": ["create", "delete", "get", "list", "patch", "update"],
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
        deleted: URL paths of deleted objects, in order.
        moments: What it held after each write.
        url: Where it listens.
    """

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.deleted: list[str] = []
        self.moments: list[Mapping[str, Object]] = []
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
            # Every cluster has it, and the chart looks for it to tell whether there is one.
            "/apis/apiregistration.k8s.io/v1/apiservices/v1.": {
                "kind": "APIService",
                "apiVersion": "apiregistration.k8s.io/v1",
                "metadata": {"name": "v1."},
            },
            "/api/v1": discovery("v1"),
            **{f"/apis/{gv}": discovery(gv) for gv in KINDS if "/" in gv},
        }
        return fixed.get(path) or self.objects.get(path) or self._listed(path)

    def _listed(self, path: str) -> Object | None:
        """All objects of a collection; helm's selectors let through what it stored, and here nobody else stores."""
        last = path.rsplit("/", 1)[-1]
        kinds = [kind for known in KINDS.values() for kind, (plural, _) in known.items() if plural == last]
        if not kinds:
            return None
        items = [held for place, held in sorted(self.objects.items()) if place.rpartition("/")[0] == path]
        if path.endswith("/secrets"):
            items = [held for held in items if held["metadata"].get("labels", {}).get("owner") == "helm"]
        return {"kind": f"{kinds[0]}List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}

    def write(self, method: str, path: str, body: bytes) -> tuple[int, Object]:
        """Create, replace, merge or delete; the status and the object."""
        answer = self._write(method, path, body)
        self.moments.append(dict(self.objects))
        return answer

    def _write(self, method: str, path: str, body: bytes) -> tuple[int, Object]:
        if method == "DELETE":
            if path not in self.objects:
                return 404, {}
            self.deleted.append(path)
            return 200, self.objects.pop(path)
        document: Object = _secret(body) if body.startswith(b"k8s\0") else yaml.safe_load(body)
        if method == "POST":
            path = f"{path}/{document['metadata']['name']}"
            return (409, {}) if path in self.objects else (201, self._put(path, document))
        return 200, self._put(
            path, _merged(self.objects.get(path, {}), document) if method == "PATCH" else document
        )

    def _put(self, path: str, document: Object) -> Object:
        metadata = {"uid": path, "resourceVersion": "1", **document["metadata"]}
        self.objects[path] = {**document, "metadata": metadata}
        return self.objects[path]


def _secret(body: bytes) -> Object:
    """A Secret as protobuf, which is how helm 4 stores a release; field numbers of ``core/v1/generated.proto``."""
    message = list(fields(dict(fields(body[4:]))[2]))
    metadata = list(fields(dict(message)[1]))
    entries = [dict(fields(value)) for number, value in message if number == 2]
    labels = [dict(fields(value)) for number, value in metadata if number == 11]
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": dict(metadata)[1].decode(),
            "labels": {entry[1].decode(): entry[2].decode() for entry in labels},
        },
        "data": {entry[1].decode(): base64.b64encode(entry[2]).decode() for entry in entries},
        "type": dict(message)[3].decode(),
    }


def _merged(old: Object, patch: Object) -> Object:
    """A JSON merge patch (RFC 7386)."""
    merged = dict(old)
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict) and isinstance(merged.get(key), dict):
            merged[key] = _merged(merged[key], value)
        else:
            merged[key] = value
    return merged


@contextmanager
def serving() -> Iterator[HeldObjects]:
    """A stand-in on a loopback port of its own."""
    store = HeldObjects()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            document = store.answer(urlsplit(self.path).path)
            self._send(404 if document is None else 200, document or {})

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            self._send(*store.write(self.command, urlsplit(self.path).path, body))

        do_PUT = do_PATCH = do_DELETE = do_POST  # noqa: N815 - the names are http.server's

        def _send(self, status: int, document: Object) -> None:
            reason = {404: "NotFound", 409: "AlreadyExists"}.get(status, "")
            failure = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": status}
            payload = json.dumps(failure if reason else document).encode()
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
