"""Kubernetes Pods, read for what the worker needs of them: identity, place, containers, resources, annotations.

Used for the pod behind an Instance and for the device managers' own pods. Anything malformed but the identity reads
as absent.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from fractions import Fraction
from functools import lru_cache
from typing import Final

from devicemanager.errors import DocumentError
from devicemanager.model.pod_stats import ContainerState
from devicemanager.model.usage import Resources
from devicemanager.rules import quantity
from devicemanager.wire import json_values, timestamps
from devicemanager.wire.json_values import items, load_object, mapping, member, text, texts

STATIC_POD_ANNOTATION: Final = "kubernetes.io/config.hash"
"""On the mirror of a static pod: the UID under which the kubelet's own figures list it."""

_BYTES_PER_MIB: Final = 2**20


@dataclass(frozen=True, slots=True)
class Pod:
    """One Pod.

    Attributes:
        node_name: None until it is scheduled.
        phase: ``Pending``, ``Running``, ``Succeeded``, ``Failed`` or ``Unknown``; None where it is not set.
        pod_ip: The primary address; None until it has one.
        ready: Whether the condition ``Ready`` is true.
        terminating: Whether a deletion has been asked for.
        container_names: Of every container, init and ephemeral container that the spec declares.
        containers: Name -> state, of every container, init and ephemeral container whose state the status gives.
        ports: Container port by its name, the first one of a name.
        requests: Sum over the containers that run for the pod's whole life (sidecars among them, init containers
            not).
        limits: The same of the limits.
    """

    namespace: str
    name: str
    uid: str
    created_at: datetime | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    node_name: str | None = None
    phase: str | None = None
    pod_ip: str | None = None
    ready: bool = False
    terminating: bool = False
    container_names: frozenset[str] = frozenset()
    containers: Mapping[str, ContainerState] = field(default_factory=dict)
    ports: Mapping[str, int] = field(default_factory=dict)
    requests: Resources = field(default_factory=Resources)
    limits: Resources = field(default_factory=Resources)

    @property
    def kubelet_uid(self) -> str:
        """The UID under which the kubelet lists this pod's figures."""
        return self.annotations.get(STATIC_POD_ANNOTATION) or self.uid


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
    lasting = tuple(_lasting_containers(spec))
    return Pod(
        namespace=namespace,
        name=name,
        uid=uid,
        created_at=timestamps.parse(metadata.get("creationTimestamp")),
        labels=texts(metadata.get("labels")),
        annotations=texts(metadata.get("annotations")),
        node_name=text(spec.get("nodeName")),
        phase=text(status.get("phase")),
        pod_ip=text(status.get("podIP")),
        ready=_is_ready(status),
        terminating=metadata.get("deletionTimestamp") is not None,
        container_names=frozenset(_container_names(spec)),
        containers=_container_states(status),
        ports=_ports(spec),
        requests=_summed(lasting, "requests"),
        limits=_summed(lasting, "limits"),
    )


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


def _lasting_containers(spec: Mapping[str, object]) -> Iterator[object]:
    """The containers that run as long as the pod lives: regular ones, and init containers that restart."""
    yield from items(spec.get("containers"))
    for container in items(spec.get("initContainers")):
        if member(container, "restartPolicy") == "Always":
            yield container


def _summed(containers: tuple[object, ...], kind: str) -> Resources:
    named = [mapping(member(container, "resources", kind)) for container in containers]
    return _resources(_written(named, "cpu"), _written(named, "memory"), _written(named, "ephemeral-storage"))


def _written(named: list[Mapping[str, object]], resource: str) -> tuple[str, ...]:
    """Every container's quantity of a resource as it is written; empty text where that cannot be one."""
    quantities = (json_values.quantity(entry[resource]) for entry in named if entry.get(resource) is not None)
    return tuple(one if one is not None and len(one) <= quantity.TEXT_LIMIT else "" for one in quantities)


@lru_cache(maxsize=1024)
def _resources(cpu: tuple[str, ...], memory: tuple[str, ...], storage: tuple[str, ...]) -> Resources:
    """The sums. Remembered, because most pods ask for one of few sizes, and exact arithmetic takes its time."""
    cores, bytes_, stored = _values(cpu), _values(memory), _values(storage)
    return Resources(
        cpu_millicores=None if cores is None else sum(quantity.millicores_ceil(value) for value in cores),
        memory_mib=None if bytes_ is None else _mib(sum(bytes_, Fraction())),
        ephemeral_storage_mib=None if stored is None else _mib(sum(stored, Fraction())),
    )


def _values(written: tuple[str, ...]) -> list[Fraction] | None:
    """None when no container names the resource, or one of the quantities cannot be understood."""
    values: list[Fraction] = []
    for text_ in written:
        try:
            value = quantity.parse(text_)
        except DocumentError:
            return None
        if not 0 <= value <= quantity.INT64_MAX:
            return None
        values.append(value)
    return values or None


def _mib(value: Fraction) -> int:
    return quantity.ceil(value / _BYTES_PER_MIB)
