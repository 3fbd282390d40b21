"""Where a Node says its kubelet is."""

import json
from typing import Any

import pytest

from devicemanager.errors import DocumentError
from devicemanager.wire import nodes
from devicemanager.wire.nodes import NodeAddress


def parsed(**status: Any) -> nodes.Node:
    return nodes.parse(json.dumps({"kind": "Node", "status": status}).encode())


def test_addresses_keep_their_order_and_unknown_types() -> None:
    listed = [
        {"type": "InternalIP", "address": "10.0.0.7"},
        {"type": "InternalIP", "address": "fd00::7"},
        {"type": "NewKind", "address": "x"},
    ]
    node = parsed(addresses=listed, daemonEndpoints={"kubeletEndpoint": {"Port": 10251}})

    assert node.addresses == (
        NodeAddress("InternalIP", "10.0.0.7"),
        NodeAddress("InternalIP", "fd00::7"),
        NodeAddress("NewKind", "x"),
    )
    assert node.kubelet_port == 10251


@pytest.mark.parametrize("port", [0, -1, 65536, "10250", None, 1.5, True])
def test_an_invalid_port_reads_as_none(port: Any) -> None:
    assert parsed(daemonEndpoints={"kubeletEndpoint": {"Port": port}}).kubelet_port is None


@pytest.mark.parametrize("addresses", [None, {}, "10.0.0.7", [1, None, {}, {"type": "InternalIP"}]])
def test_invalid_addresses_are_left_out(addresses: Any) -> None:
    assert parsed(addresses=addresses) == nodes.Node((), None)


@pytest.mark.parametrize(
    ("capacity", "nanocores"),
    [
        ({"cpu": "64"}, 64_000_000_000),
        ({"cpu": 8}, 8_000_000_000),
        ({"cpu": "1500m"}, 1_500_000_000),
        ({"cpu": "0"}, None),
        ({"cpu": "-1"}, None),
        ({"cpu": "many"}, None),
        ({"cpu": True}, None),
        ({}, None),
        (None, None),
        ([], None),
    ],
)
def test_how_many_cores_it_has(capacity: Any, nanocores: int | None) -> None:
    assert parsed(capacity=capacity).cpu_nanocores == nanocores


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b"<html>"])
def test_what_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(DocumentError, match="Node"):
        nodes.parse(body)
