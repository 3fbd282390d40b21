"""The requests and limits of a pod that are in force, read from its spec and its status.

After a resize in place the spec has what was asked for, and the status what the kubelet has applied. A pod may have
requests and limits of its own beside those of its containers.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Final, NamedTuple

from devicemanager.errors import DocumentError
from devicemanager.model.usage import Resources
from devicemanager.rules import quantity
from devicemanager.wire import json_values
from devicemanager.wire.json_values import items, mapping, member, text

_BYTES_PER_MIB: Final = 2**20

_RESIZABLE: Final = frozenset({"cpu", "memory"})
"""What a resize in place can change."""


class _Written(NamedTuple):
    """One resource as it is written.

    Attributes:
        own: The pod's own quantity, which wins; None where it has none.
        named: The quantities of its containers; of those that have none, nothing.
        complete: Whether every container has one.
    """

    own: str | None
    named: tuple[str, ...]
    complete: bool


@dataclass(frozen=True, slots=True)
class PodResources:
    """A pod's requests and limits, each figure None where it is not known or there is none.

    Attributes:
        requests: The pod's own; else the sum over the containers that run for its whole life: sidecars among them,
            init containers not.
        limits: What limits the pod: its own limit, else the sum, where each of these containers has one. Of
            ephemeral storage the sum of those that there are, by which the kubelet evicts.
        declared_limits: The same sums, in which a container without a limit counts as 0: 0 where none has one.
    """

    requests: Resources = field(default_factory=Resources)
    limits: Resources = field(default_factory=Resources)
    declared_limits: Resources = field(default_factory=lambda: Resources(0, 0, 0))

    @classmethod
    def of(cls, spec: Mapping[str, object], status: Mapping[str, object]) -> "PodResources":
        """Those of a pod. Anything malformed reads as absent, a quantity that is none makes its sum unknown."""
        applied = {
            name: member(entry, "resources")
            for key in ("initContainerStatuses", "containerStatuses")
            for entry in items(status.get(key))
            if (name := text(member(entry, "name"))) is not None
        }
        own = _InForce(spec.get("resources"), status.get("resources"))
        containers = tuple(
            _InForce(member(container, "resources"), applied.get(text(member(container, "name")) or ""))
            for container in _lasting_containers(spec)
        )
        requests, limits = (
            tuple(_written(own, containers, kind, resource) for resource in ("cpu", "memory", "ephemeral-storage"))
            for kind in ("requests", "limits")
        )
        return cls(_summed(*requests), _effective(*limits), _declared(*limits))


@dataclass(frozen=True, slots=True)
class _InForce:
    """The resources of a container, or of the pod: as the spec has them, and as the status does."""

    spec: object
    status: object

    def quantity(self, kind: str, resource: str) -> object:
        """As written; None where there is none. A status that names nothing says nothing."""
        says = mapping(member(self.status, "limits")) or mapping(member(self.status, "requests"))
        return member(self.status if says and resource in _RESIZABLE else self.spec, kind, resource)


def _lasting_containers(spec: Mapping[str, object]) -> Iterator[object]:
    """The containers that run as long as the pod lives: regular ones, and init containers that restart."""
    yield from items(spec.get("containers"))
    for container in items(spec.get("initContainers")):
        if member(container, "restartPolicy") == "Always":
            yield container


def _written(own: _InForce, containers: Sequence[_InForce], kind: str, resource: str) -> _Written:
    named = [value for each in containers if (value := each.quantity(kind, resource)) is not None]
    of_pod = own.quantity(kind, resource)
    return _Written(
        None if of_pod is None else _text(of_pod), tuple(map(_text, named)), len(named) == len(containers) > 0
    )


def _text(value: object) -> str:
    """A quantity as it is written; empty text where it cannot be one."""
    written = json_values.quantity(value)
    return written if written is not None and len(written) <= quantity.TEXT_LIMIT else ""


# Sums are remembered, because most pods ask for one of few sizes, and exact arithmetic takes its time.


@lru_cache(maxsize=1024)
def _summed(cpu: _Written, memory: _Written, storage: _Written) -> Resources:
    """The sums of what is named; None where nothing is."""
    return Resources(_sum(cpu, _millicores), _sum(memory, _mib), _sum(storage, _mib))


@lru_cache(maxsize=1024)
def _effective(cpu: _Written, memory: _Written, storage: _Written) -> Resources:
    """The limits of the pod as a whole."""
    return Resources(
        _sum(cpu, _millicores) if _limits(cpu) else None,
        _sum(memory, _mib) if _limits(memory) else None,
        _sum(storage, _mib),
    )


@lru_cache(maxsize=1024)
def _declared(cpu: _Written, memory: _Written, storage: _Written) -> Resources:
    """The sums in which no limit counts as 0."""
    return Resources(
        *(_sum(each, unit, none=0) for each, unit in ((cpu, _millicores), (memory, _mib), (storage, _mib)))
    )


def _limits(written: _Written) -> bool:
    """Whether a limit holds for the whole pod. One of 0 is none."""
    values = [_value(each) for each in ((written.own,) if written.own is not None else written.named)]
    return (written.complete or written.own is not None) and 0 not in values


def _sum(written: _Written, unit: Callable[[Sequence[Fraction]], int], none: int | None = None) -> int | None:
    values = [_value(each) for each in ((written.own,) if written.own is not None else written.named)]
    if None in values:
        return None
    return unit([value for value in values if value is not None]) if values else none


def _value(written: str) -> Fraction | None:
    """None for a quantity that cannot be understood."""
    try:
        value = quantity.parse(written)
    except DocumentError:
        return None
    return value if 0 <= value <= quantity.INT64_MAX else None


def _millicores(values: Sequence[Fraction]) -> int:
    return sum(quantity.millicores_ceil(value) for value in values)


def _mib(values: Sequence[Fraction]) -> int:
    return quantity.ceil(sum(values, Fraction()) / _BYTES_PER_MIB)
