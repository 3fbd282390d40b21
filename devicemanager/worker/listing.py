"""Many workloads at once: one list of them, one of their pods, and one read of each peer on each of their nodes.

A node that does not answer costs its own rows their figures, and adds a warning; metrics.k8s.io is not asked, since
that would be one request for each pod.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from devicemanager.clock import Clock
from devicemanager.errors import FetchError
from devicemanager.model.usage import SourceState, WorkloadUsage
from devicemanager.rules.merge import ALLOCATION
from devicemanager.transport.failures import attempt
from devicemanager.wire.workload_objects import WorkloadObject
from devicemanager.worker.deadlines import Countdown, Deadlines
from devicemanager.worker.outcomes import Choose, DeadlineExceeded, ListOutcome, ListResult, Unavailable
from devicemanager.worker.sources import Sources, assemble, of_pod
from devicemanager.worker.workloads.reads import Name, WorkloadReads
from devicemanager.worker.workloads.workload import Located, NotLocated

PARALLEL_NODES: Final = 128
"""Nodes read at once for one list: 200 that do not answer still leave time for the others."""

WARNINGS: Final = 20
"""Named in one answer; the rest are counted."""

_UNREMARKABLE: Final = frozenset({SourceState.OK, SourceState.NOT_YET, SourceState.UNKNOWN_POD})
"""States that are about one pod, or about nothing, and not about the peer."""


async def read_all(
    reads: WorkloadReads,
    sources: Sources,
    clock: Clock,
    namespace: str | None,
    choose: Choose | None,
    left: Countdown,
    deadlines: Deadlines,
) -> ListResult:
    """The workloads of a namespace, or of all for None; see :meth:`~devicemanager.worker.outcomes.Reader.list`."""
    listed = await attempt(reads.all(namespace, deadline_s=left.at_most(deadlines.api_s)))
    if isinstance(listed, FetchError):
        message = f"{reads.workload.resource.source.kind}s cannot be listed: {listed.state}: {listed.message}"
        return DeadlineExceeded(message) if left.over else Unavailable(message)
    sources_by_name, pods = listed
    ordered = [each for _, each in sorted(sources_by_name.items())]
    chosen = ordered if choose is None else choose(ordered)
    rows = [(each, reads.workload.locate(each, pods.get((each.namespace, each.name), ()))) for each in chosen]
    measured = await _measured(
        [row for _, row in rows if isinstance(row, Located)], sources, clock, left, deadlines
    )
    items = tuple(measured.get((each.namespace, each.name)) or _unmeasured(each) for each, _ in rows)
    absences = {f"{each.namespace}/{each.name}": row.message for each, row in rows if isinstance(row, NotLocated)}
    return ListOutcome(items, _warnings(items), absences)


async def _measured(
    rows: Sequence[Located], sources: Sources, clock: Clock, left: Countdown, deadlines: Deadlines
) -> Mapping[Name, WorkloadUsage]:
    """The rows, each node's as soon as its sources have answered."""
    turns = asyncio.Semaphore(PARALLEL_NODES)
    by_node: dict[str, list[Located]] = {}
    for row in rows:
        by_node.setdefault(row.node_name, []).append(row)

    async def of_node(node: str, mine: Sequence[Located]) -> Sequence[WorkloadUsage]:
        async with turns:
            asked_at_s = clock.monotonic()
            kubelet_read = sources.begin_kubelet(
                node, [row.pod for row in mine], deadline_s=left.at_most(deadlines.kubelet_s)
            )
            deadline_s = left.at_most(deadlines.device_manager_s)
            snapshot_reads = {
                name: sources.snapshots.begin((node, name), deadline_s=deadline_s)
                for name in dict.fromkeys(name for row in mine for name in row.allocation.manufacturers)
            }
            kubelet = await kubelet_read.outcome()
            snapshots = {name: await read.outcome() for name, read in snapshot_reads.items()}
        return [
            assemble(row, clock, kubelet=of_pod(kubelet, row, clock), snapshots=snapshots, asked_at_s=asked_at_s)
            for row in mine
        ]

    async with asyncio.TaskGroup() as tasks:
        reads = [tasks.create_task(of_node(node, mine)) for node, mine in by_node.items()]
    return {(usage.namespace, usage.name): usage for read in reads for usage in read.result()}


def _unmeasured(source: WorkloadObject) -> WorkloadUsage:
    return WorkloadUsage(
        namespace=source.namespace,
        name=source.name,
        uid=source.uid,
        created_at=source.created_at,
        labels=source.labels,
        node_name=source.node_name,
    )


def _warnings(items: Sequence[WorkloadUsage]) -> tuple[str, ...]:
    """One line per failed peer, in the order of the rows, then one per unhealthy accelerator."""
    faults = {
        (item.node_name, report.name): report
        for item in items
        for report in (item.sample.sources if item.sample is not None else ())
        if report.state not in _UNREMARKABLE and report.name != ALLOCATION
    }
    peers = [
        f"node {node}: {name}: {report.state}" + (f", {report.message}" if report.message else "")
        for (node, name), report in faults.items()
    ]
    accelerators = {
        (item.node_name, card.manufacturer, card.id): f"node {item.node_name}: {card.health_warning}"
        for item in items
        for card in (item.sample.accelerators if item.sample is not None else ())
        if card.health_warning is not None
    }
    named = [*peers, *accelerators.values()]
    more = len(named) - WARNINGS
    return (*named[:WARNINGS], *([f"and {more} more"] if more > 0 else []))
