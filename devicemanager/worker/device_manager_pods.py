"""The pods of device managers: which can be asked, where, and in which order."""

import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, TypeAlias

from yarl import URL

from devicemanager.errors import DocumentError, excerpt
from devicemanager.settings.values import DEFAULT_PORT
from devicemanager.wire import pods

COMPONENT_LABEL: Final = "app.kubernetes.io/component"
COMPONENT: Final = "device-manager"
MANUFACTURER_LABEL: Final = "gpustack.ai/manufacturer"

PORT_NAME: Final = "https"
"""Of a pod's port; where it names none so, it listens at the default port."""

ADDRESSES_AT_MOST: Final = 2
"""Of one pod: one of each family."""

_OLDEST: Final = datetime.min.replace(tzinfo=UTC)

Place: TypeAlias = tuple[str, str]
"""A node, and a manufacturer."""


@dataclass(frozen=True, slots=True)
class DeviceManager:
    """A device manager's pod that can be reached.

    Attributes:
        urls: Of its snapshot, at its primary address first.
        created_at: During a rollout two may be ready; the newer one is asked first.
    """

    node: str
    manufacturer: str
    urls: tuple[URL, ...]
    created_at: datetime
    pod: str


def describe(item: bytes) -> DeviceManager | None:
    """The device manager in a pod; None for a pod that cannot be reached now.

    Raises:
        DocumentError: The bytes are no pod.
    """
    pod = pods.parse(item)
    manufacturer = pod.labels.get(MANUFACTURER_LABEL)
    if not pod.ready or pod.terminating or pod.node_name is None or not pod.pod_ips or not manufacturer:
        return None
    port = pod.ports.get(PORT_NAME, DEFAULT_PORT)
    urls = tuple(_snapshot_url(pod.name, address, port) for address in pod.pod_ips[:ADDRESSES_AT_MOST])
    return DeviceManager(pod.node_name, manufacturer, urls, pod.created_at or _OLDEST, pod.name)


def _snapshot_url(pod: str, address: str, port: int) -> URL:
    try:
        host = str(ipaddress.ip_address(address))
    except ValueError as error:
        raise DocumentError(f"pod {pod} has the address {excerpt(address, 64)!r}") from error
    return URL.build(scheme="https", host=host, port=port, path="/monitor/snapshot")


def newest_first(device_managers: Iterable[DeviceManager]) -> dict[Place, Sequence[DeviceManager]]:
    """By place; the newest answers, as long as it does."""
    found: dict[Place, list[DeviceManager]] = {}
    for each in sorted(device_managers, key=lambda each: (each.created_at, each.pod), reverse=True):
        found.setdefault((each.node, each.manufacturer), []).append(each)
    return dict(found)
