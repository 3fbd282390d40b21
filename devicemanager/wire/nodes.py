"""Kubernetes Nodes, read for where their kubelets listen. Anything malformed reads as absent."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from devicemanager.model.reasons import Reason
from devicemanager.rules import quantity as quantities
from devicemanager.wire.json_values import integer, items, load_object, member, quantity, text


class AddressType(StrEnum):
    """What kind of address it is; Kubernetes knows no others, but a Node may carry any word."""

    INTERNAL_IP = "InternalIP"
    HOSTNAME = "Hostname"
    EXTERNAL_IP = "ExternalIP"
    INTERNAL_DNS = "InternalDNS"
    EXTERNAL_DNS = "ExternalDNS"


@dataclass(frozen=True, slots=True)
class NodeAddress:
    """One address of a node.

    Attributes:
        type: An :class:`AddressType`, or a word that is none.
    """

    type: str
    address: str


@dataclass(frozen=True, slots=True)
class Node:
    """One Node.

    Attributes:
        addresses: In the order of its status; several of one type on a dual-stack node, its first family first.
        kubelet_port: None where the status names none.
        cpu_nanocores: What the machine has, in billionths of a core; None where the status does not say.
    """

    addresses: tuple[NodeAddress, ...]
    kubelet_port: int | None
    cpu_nanocores: int | None = None


def parse(body: bytes) -> Node:
    """One Node from the bytes of a GET.

    Raises:
        DocumentError: Not JSON, or no object.
    """
    document = load_object(body, "Node")
    port = integer(member(document, "status", "daemonEndpoints", "kubeletEndpoint", "Port"))
    return Node(
        addresses=tuple(_addresses(member(document, "status", "addresses"))),
        kubelet_port=port if port is not None and 1 <= port <= 65535 else None,
        cpu_nanocores=_nanocores(member(document, "status", "capacity", "cpu")),
    )


def _nanocores(value: object) -> int | None:
    written = quantity(value)
    figure = quantities.nanocores(written) if written is not None else None
    return None if figure is None or isinstance(figure, Reason) else figure or None


def _addresses(listed: object) -> Iterator[NodeAddress]:
    for entry in items(listed):
        kind, address = text(member(entry, "type")), text(member(entry, "address"))
        if kind is not None and address is not None:
            yield NodeAddress(kind, address)
