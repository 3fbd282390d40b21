"""The requests and limits of a pod that are in force, read from its spec and its status.

After a resize in place the spec has what was asked for, and the status what the kubelet has applied. A pod may have
requests and limits of its own beside those of its containers.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from itertools import islice
from typing import Final, NamedTuple, TypeAlias

from devicemanager.errors import DocumentError
from devicemanager.model.usage import Resources
from devicemanager.rules import quantity
from devicemanager.wire import json_values
from devicemanager.wire.json_values import items, mapping, member, text

_BYTES_PER_MIB: Final = 2**20

CONTAINERS_LIMIT: Final = 64
"""Lasting containers that are added up. Whoever may make pods can name thousands, whose sums take seconds; what the
kubelet measures of more is not added up either."""


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

    Of a pod with more than ``CONTAINERS_LIMIT`` containers only its own are known.

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
        own = _in_force(spec.get("resources"), status.get("resources"))
        containers = tuple(
            _in_force(member(container, "resources"), applied.get(text(member(container, "name")) or ""))
            for container in islice(_lasting_containers(spec), CONTAINERS_LIMIT + 1)
        )
        if len(containers) <= CONTAINERS_LIMIT:
            return _sums(own, containers)
        alone = _sums(own, ())
        return replace(alone, declared_limits=alone.limits)


_Quantities: TypeAlias = tuple[str | None, str | None, str | None]
"""Of CPU, memory and ephemeral storage as they are written, each None where there is none."""


_InForce: TypeAlias = tuple[_Quantities, _Quantities]
"""Requests, and limits."""


def _in_force(spec: object, status: object) -> _InForce:
    """The requests and limits of a container, or of the pod. A status that names nothing says nothing."""
    of_spec = mapping(member(spec, "requests")), mapping(member(spec, "limits"))
    of_status = mapping(member(status, "requests")), mapping(member(status, "limits"))
    # A resize in place changes CPU and memory only.
    resizable = of_status if any(of_status) else of_spec
    requests, limits = (
        (_text(applied.get("cpu")), _text(applied.get("memory")), _text(asked.get("ephemeral-storage")))
        for applied, asked in zip(resizable, of_spec, strict=True)
    )
    return requests, limits


def _lasting_containers(spec: Mapping[str, object]) -> Iterator[object]:
    """The containers that run as long as the pod lives: regular ones, and init containers that restart."""
    yield from items(spec.get("containers"))
    for container in items(spec.get("initContainers")):
        if member(container, "restartPolicy") == "Always":
            yield container


def _written(own: str | None, containers: Sequence[str | None]) -> _Written:
    named = tuple(value for value in containers if value is not None)
    return _Written(own, named, len(named) == len(containers) > 0)


def _text(value: object) -> str | None:
    """A quantity as it is written; empty text where it cannot be one, None where there is none."""
    if value is None:
        return None
    written = json_values.quantity(value)
    return written if written is not None and len(written) <= quantity.TEXT_LIMIT else ""


@lru_cache(maxsize=1024)
def _sums(own: _InForce, containers: tuple[_InForce, ...]) -> PodResources:
    """Remembered, because most pods ask for one of few sizes, and exact arithmetic takes its time."""
    (cpu, memory, storage), limits = (
        [_written(own[kind][place], [each[kind][place] for each in containers]) for place in range(3)]
        for kind in range(2)
    )
    return PodResources(
        requests=Resources(_sum(cpu, _millicores), _sum(memory, _mib), _sum(storage, _mib)),
        limits=Resources(
            _sum(limits[0], _millicores) if _limits(limits[0]) else None,
            _sum(limits[1], _mib) if _limits(limits[1]) else None,
            _sum(limits[2], _mib),
        ),
        declared_limits=Resources(
            _sum(limits[0], _millicores, none=0), _sum(limits[1], _mib, none=0), _sum(limits[2], _mib, none=0)
        ),
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
