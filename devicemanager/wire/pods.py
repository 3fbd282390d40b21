"""Kubernetes Pods, read for what the worker needs of them: identity, place, containers, resources, annotations.

Used for the pod behind an Instance and for the device managers' own pods. Anything malformed but the identity reads
as absent.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from devicemanager.errors import DocumentError
from devicemanager.model.pod_stats import ContainerState
from devicemanager.wire import json_values, timestamps
from devicemanager.wire.json_values import items, load_object, mapping, member, text, texts
from devicemanager.wire.pod_resources import PodResources

STATIC_POD_ANNOTATIONS: Final = ("kubernetes.io/config.hash", "kubernetes.io/config.mirror")
"""On the mirror of a static pod: the UID under which most kubelets list its figures."""


@dataclass(frozen=True, slots=True)
class Pod:
    """One Pod.

    Attributes:
        node_name: None until it is scheduled.
        started_at: When the last of its running containers started, on the node's clock; None without one.
        phase: ``Pending``, ``Running``, ``Succeeded``, ``Failed`` or ``Unknown``; None where it is not set.
        pod_ips: The primary address first; none until it has one.
        ready: Whether the condition ``Ready`` is true.
        terminating: Whether a deletion has been asked for.
        container_names: Of every container, init and ephemeral container that the spec declares.
        containers: Name -> state, of every container, init and ephemeral container whose state the status gives.
        ports: Container port by its name, the first one of a name.
        resources: Its requests and limits, as they are in force.
    """

    namespace: str
    name: str
    uid: str
    created_at: datetime | None = None
    started_at: datetime | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    node_name: str | None = None
    phase: str | None = None
    pod_ips: tuple[str, ...] = ()
    ready: bool = False
    terminating: bool = False
    container_names: frozenset[str] = frozenset()
    containers: Mapping[str, ContainerState] = field(default_factory=dict)
    ports: Mapping[str, int] = field(default_factory=dict)
    resources: PodResources = field(default_factory=PodResources)

    @property
    def kubelet_uids(self) -> tuple[str, ...]:
        """The UIDs under which the kubelet may list this pod: its own first, then those of a static pod."""
        others = (self.annotations.get(key) for key in STATIC_POD_ANNOTATIONS)
        return tuple(dict.fromkeys((self.uid, *(uid for uid in others if uid))))


def parse(body: bytes) -> Pod:
    """One Pod from the bytes of a GET.

    Raises:
        DocumentError: Not JSON, or an object without namespace, name or UID.
    """
    return from_object(load_object(body, "Pod"))


def from_object(document: object) -> Pod:
    """One Pod from decoded JSON: an item of a list, the object of a watch event.

    Raises:
        DocumentError: No object, or one without namespace, name or UID.
    """
    metadata, status = mapping(member(document, "metadata")), mapping(member(document, "status"))
    namespace, name, uid = text(metadata.get("namespace")), text(metadata.get("name")), text(metadata.get("uid"))
    if namespace is None or name is None or uid is None:
        raise DocumentError("Pod without namespace, name or uid")
    spec = mapping(member(document, "spec"))
    return Pod(
        namespace=namespace,
        name=name,
        uid=uid,
        created_at=timestamps.parse(metadata.get("creationTimestamp")),
        started_at=max(_starts(status), default=None),
        labels=texts(metadata.get("labels")),
        annotations=texts(metadata.get("annotations")),
        node_name=text(spec.get("nodeName")),
        phase=text(status.get("phase")),
        pod_ips=tuple(dict.fromkeys(_addresses(status))),
        ready=_is_ready(status),
        terminating=metadata.get("deletionTimestamp") is not None,
        container_names=frozenset(_container_names(spec)),
        containers=_container_states(status),
        ports=_ports(spec),
        resources=PodResources.of(spec, status),
    )


def _addresses(status: Mapping[str, object]) -> Iterator[str]:
    for address in (status.get("podIP"), *(member(entry, "ip") for entry in items(status.get("podIPs")))):
        written = text(address)
        if written is not None:
            yield written


def _starts(status: Mapping[str, object]) -> Iterator[datetime]:
    for key in ("initContainerStatuses", "containerStatuses"):
        for entry in items(status.get(key)):
            started_at = timestamps.parse(member(entry, "state", "running", "startedAt"))
            if started_at is not None:
                yield started_at


def _is_ready(status: Mapping[str, object]) -> bool:
    return any(
        member(condition, "type") == "Ready" and member(condition, "status") == "True"
        for condition in items(status.get("conditions"))
    )


def _container_names(spec: Mapping[str, object]) -> Iterator[str]:
    for key in ("initContainers", "containers", "ephemeralContainers"):
        for container in items(spec.get(key)):
            name = text(member(container, "name"))
            if name is not None:
                yield name


def _container_states(status: Mapping[str, object]) -> dict[str, ContainerState]:
    states: dict[str, ContainerState] = {}
    for key in ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"):
        for entry in items(status.get(key)):
            name, state = text(member(entry, "name")), _state(entry)
            if name is not None and state is not None:
                states[name] = state
    return states


def _state(entry: object) -> ContainerState | None:
    """The state a status gives. One that gives none is waiting, by the API's own default."""
    state = mapping(member(entry, "state"))
    if state.get("running") is not None:
        return ContainerState.RUNNING
    if state.get("terminated") is not None or member(entry, "lastState", "terminated") is not None:
        return ContainerState.ENDED
    return ContainerState.WAITING


def _ports(spec: Mapping[str, object]) -> dict[str, int]:
    ports: dict[str, int] = {}
    for container in items(spec.get("containers")):
        for port in items(member(container, "ports")):
            name, number = text(member(port, "name")), json_values.integer(member(port, "containerPort"))
            if name is not None and number is not None and 1 <= number <= 65535:
                ports.setdefault(name, number)
    return ports
