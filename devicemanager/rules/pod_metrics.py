"""A pod's usage from an answer of metrics.k8s.io, and when the answer is not usable."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from devicemanager.model.accelerator import Figure, Reason
from devicemanager.model.pod_stats import ContainerState
from devicemanager.model.usage import ContainerMetrics, PodMetrics, PodUsage, SourceFailure, SourceState
from devicemanager.rules.kubelet import NO_STATES, PRECEDENCE
from devicemanager.rules.kubelet_blocks import HIGHEST_BYTES, HIGHEST_NANOCORES

STALE_AFTER: Final = timedelta(minutes=5)
"""metrics-server keeps figures for a minute or two. Their time may be the node's and is compared with the server's
clock, so the limit is wider than a kubelet's."""

_NO_DISK: Final = Reason.NOT_REPORTED
"""metrics.k8s.io carries CPU and memory only."""


def pod_usage(
    metrics: PodMetrics,
    *,
    pod_created_at: datetime | None,
    answered_at: datetime | None = None,
    own: Collection[str] | None = None,
    states: Mapping[str, ContainerState] = NO_STATES,
) -> PodUsage | SourceFailure:
    """The pod's usage: the sums over its containers that have not ended, absent when any of them is, or is missing.

    Args:
        metrics: The answer.
        pod_created_at: The pod's own creation; an entry measured before it belongs to an earlier pod of that name.
        answered_at: The server's own clock when it answered; None where it is not known.
        own: The names of the pod's containers, as its spec gives them. Other entries are not added up: some servers
            list the pod's sum under an empty name, and its sandbox as ``POD``. None where the spec is not known.
        states: Container name -> state, from the pod's status.

    Returns:
        The usage; a failure for an answer without a time or without containers, for an earlier pod's, and for one
        measured too long ago or in the future.
    """
    listed = _listed(metrics.containers, own)
    if metrics.timestamp is None or not listed:
        return SourceFailure(SourceState.NOT_SERVED, "metrics.k8s.io has no measurement of this pod yet")
    if pod_created_at is not None and metrics.timestamp < pod_created_at:
        return SourceFailure(SourceState.UNKNOWN_POD, "metrics.k8s.io only knows an earlier pod of this name")
    if answered_at is not None and answered_at - metrics.timestamp > STALE_AFTER:
        return SourceFailure(SourceState.STALE, "metrics.k8s.io measured this pod more than 5 minutes ago")
    if answered_at is not None and metrics.timestamp - answered_at > STALE_AFTER:
        return SourceFailure(SourceState.INVALID, "metrics.k8s.io names a time in the future")
    live = [entry for name, entry in listed.items() if states.get(name) is not ContainerState.ENDED]
    missing = any(state is ContainerState.RUNNING and name not in listed for name, state in states.items())
    gap = (Reason.NOT_YET,) if missing else ()
    cpu = _sum((*(entry.cpu_nanocores for entry in live), *gap), HIGHEST_NANOCORES)
    memory = _sum((*(entry.memory_bytes for entry in live), *gap), HIGHEST_BYTES)
    measured = not (isinstance(cpu, Reason) and isinstance(memory, Reason))
    return PodUsage(cpu, memory, _NO_DISK, _NO_DISK, measured_at=metrics.timestamp if measured else None)


def _listed(containers: Iterable[ContainerMetrics], own: Collection[str] | None) -> dict[str, ContainerMetrics]:
    """The pod's own containers, each once; of one listed twice, the figures in which all its entries agree."""
    listed: dict[str, ContainerMetrics] = {}
    for entry in containers:
        known = listed.get(entry.name, entry)
        if own is None or entry.name in own:
            listed[entry.name] = ContainerMetrics(
                entry.name,
                known.cpu_nanocores if known.cpu_nanocores == entry.cpu_nanocores else Reason.INVALID_DATA,
                known.memory_bytes if known.memory_bytes == entry.memory_bytes else Reason.INVALID_DATA,
            )
    return listed


def _sum(figures: Sequence[Figure], highest: int) -> Figure:
    reasons = [figure for figure in figures if isinstance(figure, Reason)]
    if reasons or not figures:
        return min(reasons, key=PRECEDENCE.index, default=Reason.NOT_REPORTED)
    total = sum(figure for figure in figures if not isinstance(figure, Reason))
    return total if total <= highest else Reason.INVALID_DATA
