"""Kubernetes objects as the stand-in stores them. Pure: identifiers and times are arguments."""

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from devicemanager.demo.cluster.selectors import JsonObject
from devicemanager.model.allocation import Mode

INSTANCE_GROUP: Final = "worker.gpustack.ai"
"""The existing operator's group; Instances are its custom resource, whatever group our own API is served under."""

SYSTEM_NAMESPACE: Final = "gpustack-system"
ALLOCATION_ANNOTATION: Final = "device.gpustack.ai/accelerator.allocated"
AUTHENTICATION_CONFIG: Final = "extension-apiserver-authentication"
WHOLE_CARD_UNITS: Final = 1_600_000
DEVICE_MANAGER_PORT: Final = 32443
VERSION_PRIORITY: Final = 15
_IMAGE: Final = "registry.example/inference:1"


@dataclass(frozen=True, slots=True)
class Grant:
    """A card given to a container, as the allocator writes it."""

    manufacturer: str
    id: str
    index: int = 0
    mode: Mode = Mode.EXCLUSIVE
    units: int = WHOLE_CARD_UNITS
    container: str = "main"
    partition_id: str | None = None


@dataclass(frozen=True, slots=True)
class Amounts:
    """Requests or limits of a container, as Kubernetes quantities."""

    cpu: str = "4"
    memory: str = "8Gi"
    ephemeral_storage: str = "20Gi"

    def document(self) -> JsonObject:
        """As ``limits`` or ``requests`` of a container."""
        return {"cpu": self.cpu, "memory": self.memory, "ephemeral-storage": self.ephemeral_storage}


@dataclass(frozen=True, slots=True)
class InstanceSpec:
    """An Instance to be made, with its pod.

    Attributes:
        node: Where its pod runs; None for an Instance not scheduled yet (it gets no pod).
        grants: Cards its pod holds.
        annotation: The allocation annotation word for word; None makes one from ``grants``.
        containers: Names of the pod's containers.
    """

    namespace: str
    name: str
    node: str | None
    grants: Sequence[Grant] = ()
    annotation: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    containers: Sequence[str] = ("main",)
    limits: Amounts = field(default_factory=Amounts)
    requests: Amounts = field(default_factory=lambda: Amounts(cpu="2", memory="4Gi", ephemeral_storage="10Gi"))


def kubernetes_time(moment: datetime) -> str:
    """Whole seconds, UTC, as Kubernetes writes times."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def allocation_annotation(grants: Sequence[Grant]) -> str:
    """The allocation of a pod, in the shape the device plugin writes (containers -> devices -> groups)."""
    containers: dict[str, dict[tuple[str, str], list[JsonObject]]] = {}
    for grant in grants:
        group = containers.setdefault(grant.container, {}).setdefault(
            (f"{grant.manufacturer}-demo-card", grant.manufacturer), []
        )
        card: JsonObject = {"id": grant.id, "index": grant.index, "mode": int(grant.mode), "allocated": grant.units}
        if grant.partition_id is not None:
            card["allocatedPhysicalID"] = grant.partition_id
        group.append(card)
    return json.dumps(
        {
            container: {
                "devices": {
                    "groups": [
                        {"id": group_id, "manufacturer": manufacturer, "accelerators": cards}
                        for (group_id, manufacturer), cards in groups.items()
                    ]
                },
                "deviceIDs": [
                    f"{group_id}:{card['id']}:{number:04d}"
                    for (group_id, _), cards in groups.items()
                    for number, card in enumerate(cards)
                ],
            }
            for container, groups in containers.items()
        },
        separators=(",", ":"),
    )


def namespace(name: str, uid: str, created: datetime) -> JsonObject:
    """A Namespace."""
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": _metadata(name, uid, created),
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Active"},
    }


def node(name: str, uid: str, created: datetime) -> JsonObject:
    """A Node that is ready."""
    labels = {"kubernetes.io/hostname": name, "gpustack.ai/managed": "true"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {**_metadata(name, uid, created), "labels": labels},
        "spec": {},
        "status": {
            "addresses": [
                {"type": "InternalIP", "address": "127.0.0.1"},
                {"type": "Hostname", "address": name},
            ],
            "capacity": {"cpu": "64", "memory": "527949148Ki", "ephemeral-storage": "1843269240Ki"},
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    }


def instance(spec: InstanceSpec, uid: str, created: datetime) -> JsonObject:
    """The Instance custom resource, as the existing operator stores it."""
    status: JsonObject = {"phase": "Ready", "nodeName": spec.node} if spec.node else {"phase": "Starting"}
    return {
        "apiVersion": f"{INSTANCE_GROUP}/v1alpha1",
        "kind": "Instance",
        "metadata": {**_metadata(spec.name, uid, created, spec.namespace), "labels": dict(spec.labels)},
        "spec": {
            "type": "demo",
            "image": _IMAGE,
            "resources": {
                "cpu": spec.limits.cpu,
                "ram": spec.limits.memory,
                "localStorage": spec.limits.ephemeral_storage,
                "accelerator": str(len(spec.grants)),
            },
        },
        "status": status,
    }


def instance_pod(spec: InstanceSpec, instance_uid: str, uid: str, created: datetime, address: str) -> JsonObject:
    """The pod behind an Instance: same namespace and name, labelled with the Instance's UID."""
    annotation = spec.annotation if spec.annotation is not None else allocation_annotation(spec.grants)
    annotations = {ALLOCATION_ANNOTATION: annotation} if spec.grants or spec.annotation is not None else {}
    owner = {"apiVersion": f"{INSTANCE_GROUP}/v1alpha1", "kind": "Instance", "name": spec.name, "uid": instance_uid}
    metadata = {
        **_metadata(spec.name, uid, created, spec.namespace),
        "annotations": annotations,
        "labels": {**spec.labels, "app.kubernetes.io/part-of": instance_uid},
        "ownerReferences": [{**owner, "controller": True}],
    }
    resources = {"limits": spec.limits.document(), "requests": spec.requests.document()}
    containers = [
        {"name": name, "image": _IMAGE, "resources": resources if name == "main" else {}}
        for name in spec.containers
    ]
    return _running_pod(metadata, spec.node or "", address, containers)


def device_manager_pod(
    node_name: str,
    manufacturer: str,
    uid: str,
    created: datetime,
    address: str,
    port: int = DEVICE_MANAGER_PORT,
    in_namespace: str = SYSTEM_NAMESPACE,
) -> JsonObject:
    """A device manager's pod: one for each manufacturer on a node, with its HTTPS port named."""
    labels = {
        "app.kubernetes.io/component": "device-manager",
        "app.kubernetes.io/name": "gpustack-device-manager",
        "app.kubernetes.io/part-of": "gpustack-operator",
        "gpustack.ai/manufacturer": manufacturer,
    }
    name = f"device-manager-{manufacturer}-{uid[:5]}"
    container = {
        "name": "device-manager",
        "image": "registry.example/device-manager:1",
        "ports": [{"name": "https", "containerPort": port, "protocol": "TCP"}],
        "resources": {},
    }
    metadata = {**_metadata(name, uid, created, in_namespace), "labels": labels}
    return _running_pod(metadata, node_name, address, [container])


def api_service(group: str, version: str, ca: bytes, service: tuple[str, str], created: datetime) -> JsonObject:
    """The APIService of an aggregated API server; ``service`` is its namespace and name."""
    namespace_name, service_name = service
    return {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": f"{version}.{group}", "creationTimestamp": kubernetes_time(created)},
        "spec": {
            "group": group,
            "version": version,
            "groupPriorityMinimum": 100,
            "versionPriority": VERSION_PRIORITY,
            "caBundle": b64encode(ca).decode(),
            "service": {"namespace": namespace_name, "name": service_name, "port": 443},
        },
        "status": {},
    }


def authentication_config(client_ca: bytes, front_proxy_cas: bytes, allowed_names: Sequence[str]) -> JsonObject:
    """The ConfigMap that tells API servers which front proxies to trust, and in which headers."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"namespace": "kube-system", "name": AUTHENTICATION_CONFIG, "uid": "authentication-config"},
        "data": {
            "client-ca-file": client_ca.decode(),
            "requestheader-client-ca-file": front_proxy_cas.decode(),
            "requestheader-allowed-names": json.dumps(list(allowed_names)),
            "requestheader-username-headers": '["X-Remote-User"]',
            "requestheader-uid-headers": '["X-Remote-Uid"]',
            "requestheader-group-headers": '["X-Remote-Group"]',
            "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
        },
    }


def _metadata(name: str, uid: str, created: datetime, in_namespace: str = "") -> JsonObject:
    """The metadata of an object; without a namespace, of the cluster's scope."""
    metadata = {"name": name, "uid": uid, "creationTimestamp": kubernetes_time(created)}
    return {"namespace": in_namespace, **metadata} if in_namespace else metadata


def _running_pod(
    metadata: JsonObject, node_name: str, address: str, containers: Sequence[JsonObject]
) -> JsonObject:
    started = metadata["creationTimestamp"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"nodeName": node_name, "containers": list(containers)},
        "status": {
            "phase": "Running",
            "podIP": address,
            "podIPs": [{"ip": address}],
            "hostIP": "127.0.0.1",
            "startTime": started,
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": started}],
            "containerStatuses": [
                {
                    "name": container["name"],
                    "ready": True,
                    "started": True,
                    "restartCount": 0,
                    "state": {"running": {"startedAt": started}},
                }
                for container in containers
            ],
        },
    }
