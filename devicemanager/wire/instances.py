"""``instances.worker.gpustack.ai``, the custom resource, read for the few facts that its metrics need."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from devicemanager.errors import DocumentError
from devicemanager.wire import timestamps
from devicemanager.wire.json_values import load_object, member, text, texts


@dataclass(frozen=True, slots=True)
class Instance:
    """One Instance.

    Attributes:
        node_name: ``status.nodeName``; None until its pod has run, and again once it is stopped.
        phase: ``status.phase`` (``Starting``, ``Ready``, ``Stopped`` …); None where it is not set.
    """

    namespace: str
    name: str
    uid: str
    created_at: datetime | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    node_name: str | None = None
    phase: str | None = None


def parse(body: bytes) -> Instance:
    """One Instance from the bytes of a GET.

    Raises:
        DocumentError: Not JSON, or an object without namespace, name or UID.
    """
    return from_object(load_object(body, "Instance"))


def from_object(document: object) -> Instance:
    """One Instance from decoded JSON: an item of a list, the object of a watch event.

    Raises:
        DocumentError: No object, or one without namespace, name or UID.
    """
    namespace = text(member(document, "metadata", "namespace"))
    name = text(member(document, "metadata", "name"))
    uid = text(member(document, "metadata", "uid"))
    if namespace is None or name is None or uid is None:
        raise DocumentError("Instance without namespace, name or uid")
    return Instance(
        namespace=namespace,
        name=name,
        uid=uid,
        created_at=timestamps.parse(member(document, "metadata", "creationTimestamp")),
        labels=texts(member(document, "metadata", "labels")),
        node_name=text(member(document, "status", "nodeName")),
        phase=text(member(document, "status", "phase")),
    )
