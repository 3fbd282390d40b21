"""Which pods of device managers can be asked, and where."""

import json
from typing import Any

import pytest

from devicemanager.errors import DocumentError
from devicemanager.worker.device_manager_pods import describe

NAMESPACE = "gpustack-system"


def pod(**changes: Any) -> dict[str, Any]:
    document: dict[str, Any] = {
        "metadata": {
            "name": "dm-1",
            "namespace": NAMESPACE,
            "uid": "u-1",
            "labels": {"app.kubernetes.io/component": "device-manager", "gpustack.ai/manufacturer": "nvidia"},
            "creationTimestamp": "2026-08-12T09:15:04Z",
        },
        "spec": {
            "nodeName": "node-a",
            "containers": [{"name": "main", "ports": [{"name": "https", "containerPort": 8443}]}],
        },
        "status": {"podIP": "10.0.0.7", "conditions": [{"type": "Ready", "status": "True"}]},
    }
    for path, value in changes.items():
        *parents, last = path.split("__")
        target = document
        for parent in parents:
            target = target[parent]
        target[last] = value
    return document


def described(**changes: Any) -> str | None:
    found = describe(json.dumps(pod(**changes)).encode())
    return None if found is None else ",".join(map(str, found.urls))


def test_the_named_port_is_asked() -> None:
    assert described() == "https://10.0.0.7:8443/monitor/snapshot"


def test_without_a_named_port_it_is_the_usual_one() -> None:
    assert described(spec__containers=[]) == "https://10.0.0.7:32443/monitor/snapshot"


def test_an_ipv6_address_is_bracketed() -> None:
    assert described(status__podIP="fd00::7") == "https://[fd00::7]:8443/monitor/snapshot"


def test_both_addresses_of_a_pod_are_known_and_no_third() -> None:
    addresses = [{"ip": "10.0.0.7"}, {"ip": "fd00::7"}, {"ip": "fd00::8"}]
    assert described(status__podIPs=addresses) == (
        "https://10.0.0.7:8443/monitor/snapshot,https://[fd00::7]:8443/monitor/snapshot"
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"status__conditions": [{"type": "Ready", "status": "False"}]},
        {"status__conditions": []},
        {"status__podIP": None},
        {"metadata__deletionTimestamp": "2026-08-12T09:15:04Z"},
        {"metadata__labels": {"app.kubernetes.io/component": "device-manager"}},
        {"spec__nodeName": None},
    ],
    ids=str,
)
def test_a_pod_that_cannot_be_asked_is_none(changes: dict[str, Any]) -> None:
    assert described(**changes) is None


@pytest.mark.parametrize("address", ["evil.example", "10.0.0.7@evil.example", "10.0.0.7:1/", "127.1"])
def test_an_invalid_address_is_refused(address: str) -> None:
    with pytest.raises(DocumentError, match="address"):
        described(status__podIP=address)
