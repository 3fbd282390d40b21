"""The objects whose usage is served, such as Instances, read for the few facts that their metrics need."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from devicemanager.errors import DocumentError
from devicemanager.wire import timestamps
from devicemanager.wire.json_values import load_object, member, text, texts


@dataclass(frozen=True, slots=True)
class WorkloadObject:
    """One object, whatever its kind.

    Attributes:
        created_at: None where unknown.
        node_name: The node that the object itself names; None where its kind names none, or it has none now.
    """

    namespace: str
    name: str
    uid: str
    created_at: datetime | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    node_name: str | None = None


def parse(body: bytes, *, kind: str, node_name_at: Sequence[str] = ()) -> WorkloadObject:
    """One object from the bytes of a GET, or from an item of a list.

    Args:
        body: JSON.
        kind: For errors.
        node_name_at: Keys on the way to the node's name, such as ``status``, ``nodeName``; empty where there is
            none.

    Raises:
        DocumentError: Not JSON, or an object without namespace, name or UID.
    """
    document = load_object(body, kind)
    namespace = text(member(document, "metadata", "namespace"))
    name = text(member(document, "metadata", "name"))
    uid = text(member(document, "metadata", "uid"))
    if namespace is None or name is None or uid is None:
        raise DocumentError(f"{kind} without namespace, name or uid")
    return WorkloadObject(
        namespace=namespace,
        name=name,
        uid=uid,
        created_at=timestamps.parse(member(document, "metadata", "creationTimestamp")),
        labels=texts(member(document, "metadata", "labels")),
        node_name=text(member(document, *node_name_at)) if node_name_at else None,
    )
