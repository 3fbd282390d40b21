"""Kubernetes Nodes, read for where their kubelets listen. Anything malformed reads as absent."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from devicemanager.wire.json_values import integer, items, load_object, member, text


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
    """

    addresses: tuple[NodeAddress, ...]
    kubelet_port: int | None


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
    )


def _addresses(listed: object) -> Iterator[NodeAddress]:
    for entry in items(listed):
        kind, address = text(member(entry, "type")), text(member(entry, "address"))
        if kind is not None and address is not None:
            yield NodeAddress(kind, address)
