"""``metrics.k8s.io/v1beta1 PodMetrics``: the figures of one pod from metrics-server or an adapter."""

from collections.abc import Callable
from itertools import islice
from typing import Final

from devicemanager.errors import DocumentError, ExcessError
from devicemanager.model.accelerator import Figure, Reason
from devicemanager.model.usage import ContainerMetrics, PodMetrics
from devicemanager.rules import quantity
from devicemanager.wire import json_values, timestamps
from devicemanager.wire.json_values import items, load_object, member, text

CONTAINERS_LIMIT: Final = 256
"""Containers of one pod: a few times as many as any has. Exact arithmetic over tens of thousands takes a second."""


def parse(body: bytes) -> PodMetrics:
    """The figures of each container; a missing one is ``not_reported``, one that is no quantity ``invalid_data``.

    Raises:
        DocumentError: Not JSON, or not an object of kind PodMetrics (a missing ``kind`` passes).
        ExcessError: It has more containers than are read.
    """
    return from_object(load_object(body, "PodMetrics"))


def from_object(document: object) -> PodMetrics:
    """The same from decoded JSON.

    Raises:
        DocumentError: Not an object of kind PodMetrics.
        ExcessError: It has more containers than are read.
    """
    if not isinstance(document, dict) or document.get("kind", "PodMetrics") != "PodMetrics":
        raise DocumentError("not an object of kind PodMetrics")
    listed = list(islice(items(document.get("containers")), CONTAINERS_LIMIT + 1))
    if len(listed) > CONTAINERS_LIMIT:
        raise ExcessError(f"PodMetrics: more than {CONTAINERS_LIMIT} containers")
    return PodMetrics(timestamps.parse(document.get("timestamp")), tuple(map(_container, listed)))


def _container(entry: object) -> ContainerMetrics:
    return ContainerMetrics(
        name=text(member(entry, "name")) or "",
        cpu_nanocores=_figure(member(entry, "usage", "cpu"), quantity.nanocores),
        memory_bytes=_figure(member(entry, "usage", "memory"), quantity.bytes_),
    )


def _figure(value: object, read: Callable[[str], Figure]) -> Figure:
    if value is None:
        return Reason.NOT_REPORTED
    written = json_values.quantity(value)
    return Reason.INVALID_DATA if written is None else read(written)
