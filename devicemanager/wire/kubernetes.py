"""Kubernetes objects as the API server sends them, decoded to the few fields that we use.

msgspec structs and not the official client's classes: those cost 25 MiB and half a second to load. Unknown keys
are ignored, so newer servers do not matter; null where a list or a map belongs reads as empty.
"""

from datetime import datetime
from typing import Final, TypeVar

import msgspec

from devicemanager.errors import DocumentError, excerpt

T = TypeVar("T")


class Document(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """Base of the structs below: camel case on the wire, immutable."""


class StatusDetails(Document, frozen=True):
    """What an error is about."""

    name: str = ""
    group: str = ""
    kind: str = ""


class Status(Document, frozen=True):
    """``v1 Status``: how the API server reports an error, as a body or as a watch event of type ERROR."""

    kind: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0
    details: StatusDetails | None = None


class ListMeta(Document, frozen=True):
    """Where a list stands."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class ListPage(Document, frozen=True):
    """One page of any list; the items stay bytes, for whoever knows their kind."""

    metadata: ListMeta = ListMeta()
    items: list[msgspec.Raw] | None = None


class WatchLine(Document, frozen=True):
    """One line of a watch."""

    type: str
    object: msgspec.Raw


class ObjectMeta(Document, frozen=True):
    """Of any object."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None


class AnyObject(Document, frozen=True):
    """An object of which only the metadata matters."""

    metadata: ObjectMeta = ObjectMeta()


class ContainerPort(Document, frozen=True):
    """A port that a container names."""

    name: str = ""
    container_port: int = 0


class ContainerResources(Document, frozen=True):
    """Quantities by resource name. A server that sends a bare number for one is tolerated."""

    requests: dict[str, str | int | float] | None = None
    limits: dict[str, str | int | float] | None = None


class Container(Document, frozen=True):
    """Of a pod's specification."""

    name: str = ""
    ports: list[ContainerPort] | None = None
    resources: ContainerResources | None = None


class PodSpec(Document, frozen=True):
    """Where a pod runs, and what it asked for."""

    node_name: str = ""
    containers: list[Container] | None = None


class Present(Document, frozen=True):
    """An object whose being there is all that matters."""


class ContainerState(Document, frozen=True):
    """Which state holds: one that is neither here is waiting."""

    running: Present | None = None
    terminated: Present | None = None


class ContainerStatus(Document, frozen=True):
    """Of one container, as the kubelet last reported it."""

    name: str = ""
    state: ContainerState | None = None


class PodCondition(Document, frozen=True):
    """One condition of a pod."""

    type: str = ""
    status: str = ""


class PodIP(Document, frozen=True):
    """One address of a pod."""

    ip: str = ""


class PodStatus(Document, frozen=True):
    """As the kubelet last reported it."""

    phase: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")
    conditions: list[PodCondition] | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None


class Pod(Document, frozen=True):
    """``v1 Pod``."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class InstanceStatus(Document, frozen=True):
    """Of an Instance: only where it runs."""

    node_name: str = ""


class Instance(Document, frozen=True):
    """``worker.gpustack.ai/v1alpha1 Instance``."""

    metadata: ObjectMeta = ObjectMeta()
    status: InstanceStatus | None = None


_LIST_PAGE: Final = msgspec.json.Decoder(ListPage)
_WATCH_LINE: Final = msgspec.json.Decoder(WatchLine)
_ANY_OBJECT: Final = msgspec.json.Decoder(AnyObject)
_STATUS: Final = msgspec.json.Decoder(Status)
_POD: Final = msgspec.json.Decoder(Pod)
_INSTANCE: Final = msgspec.json.Decoder(Instance)


def parse_list_page(body: bytes) -> ListPage:
    """One page of a list. Raises DocumentError."""
    return _decoded(_LIST_PAGE, body, "list")


def parse_watch_line(body: bytes) -> WatchLine:
    """One line of a watch. Raises DocumentError."""
    return _decoded(_WATCH_LINE, body, "watch event")


def parse_metadata(body: bytes) -> ObjectMeta:
    """The metadata of any object. Raises DocumentError."""
    return _decoded(_ANY_OBJECT, body, "object").metadata


def parse_pod(body: bytes) -> Pod:
    """A pod. Raises DocumentError."""
    return _decoded(_POD, body, "Pod")


def parse_instance(body: bytes) -> Instance:
    """An Instance. Raises DocumentError."""
    return _decoded(_INSTANCE, body, "Instance")


def parse_status(body: bytes) -> Status | None:
    """The Status that an error answer carries, or None when it carries something else."""
    try:
        status = _decoded(_STATUS, body, "Status")
    except DocumentError:
        return None
    return status if status.kind == "Status" else None


def _decoded(decoder: msgspec.json.Decoder[T], body: bytes, kind: str) -> T:
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DocumentError(f"not a Kubernetes {kind}: {excerpt(str(error))}") from error
