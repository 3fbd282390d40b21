"""What a metrics.k8s.io answer says a pod uses, and when it says nothing."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from devicemanager.model.accelerator import Figure, Reason
from devicemanager.model.pod_stats import ContainerState
from devicemanager.model.usage import PodMetrics, PodUsage, SourceFailure, SourceState
from devicemanager.rules.kubelet import NO_STATES, PRECEDENCE
from devicemanager.rules.quantity import INT64_MAX

_NO_DISK: Final = Reason.NOT_REPORTED
"""metrics.k8s.io carries CPU and memory only."""


def pod_usage(
    metrics: PodMetrics,
    *,
    pod_created_at: datetime | None,
    states: Mapping[str, ContainerState] = NO_STATES,
) -> PodUsage | SourceFailure:
    """The pod's usage: the sums over its containers that have not ended, absent when any of them is, or is missing.

    Args:
        metrics: The answer.
        pod_created_at: The pod's own creation; an entry measured before it belongs to an earlier pod of that name.
        states: Container name -> state, from the pod's status.

    Returns:
        The usage; a failure for an answer without a time or without containers, and for an earlier pod's.
    """
    if metrics.timestamp is None or not metrics.containers:
        return SourceFailure(SourceState.NOT_SERVED, "metrics.k8s.io has no measurement of this pod yet")
    if pod_created_at is not None and metrics.timestamp < pod_created_at:
        return SourceFailure(SourceState.UNKNOWN_POD, "metrics.k8s.io only knows an earlier pod of this name")
    live = [entry for entry in metrics.containers if states.get(entry.name) is not ContainerState.ENDED]
    listed = {entry.name for entry in metrics.containers}
    missing = any(state is ContainerState.RUNNING and name not in listed for name, state in states.items())
    gap = (Reason.NOT_YET,) if missing else ()
    cpu = _sum((*(entry.cpu_nanocores for entry in live), *gap))
    memory = _sum((*(entry.memory_bytes for entry in live), *gap))
    measured = not (isinstance(cpu, Reason) and isinstance(memory, Reason))
    return PodUsage(cpu, memory, _NO_DISK, _NO_DISK, measured_at=metrics.timestamp if measured else None)


def _sum(figures: Sequence[Figure]) -> Figure:
    reasons = [figure for figure in figures if isinstance(figure, Reason)]
    if reasons or not figures:
        return min(reasons, key=PRECEDENCE.index, default=Reason.NOT_REPORTED)
    total = sum(figure for figure in figures if not isinstance(figure, Reason))
    return total if total <= INT64_MAX else Reason.INVALID_DATA
