"""All Instances at once: one list of them, one of their pods, and one read of each peer on each node.

A node that does not answer costs its own rows their figures, and adds a warning; metrics.k8s.io is not asked, since
that would be one request for each pod.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from devicemanager.clock import Clock
from devicemanager.errors import FetchError
from devicemanager.model.usage import InstanceUsage, SourceState
from devicemanager.rules.merge import ALLOCATION
from devicemanager.wire.instances import Instance
from devicemanager.worker.deadlines import Countdown, Deadlines
from devicemanager.worker.device_managers import Place, SnapshotRead
from devicemanager.worker.kubelet import NodeRead
from devicemanager.worker.outcomes import DeadlineExceeded, ListOutcome, ListResult, Unavailable
from devicemanager.worker.sources import Sources, assemble, of_pod
from devicemanager.worker.transport import attempt
from devicemanager.worker.workloads import Missing, Workload, Workloads, workload

PARALLEL_READS: Final = 128
"""Peers asked at once for one list: 200 silent nodes still leave time for the others."""

WARNINGS: Final = 20
"""Named in one answer; the rest are counted."""

_ROWS_IN_ONE_GO: Final = 100
"""Rows joined before others on the loop get their turn."""

_UNREMARKABLE: Final = frozenset({SourceState.OK, SourceState.NOT_YET, SourceState.UNKNOWN_POD})
"""States that say something of one pod, or nothing at all, and not of the peer."""


@dataclass(frozen=True, slots=True)
class _Read:
    """What every peer said that any row needs."""

    kubelets: Mapping[str, NodeRead | FetchError]
    snapshots: Mapping[Place, SnapshotRead | FetchError]


async def read_all(
    workloads: Workloads,
    sources: Sources,
    clock: Clock,
    namespace: str | None,
    left: Countdown,
    deadlines: Deadlines,
) -> ListResult:
    """Every Instance of a namespace, or of all for None; see :meth:`~devicemanager.worker.outcomes.Reader.list`."""
    listed = await attempt(workloads.all(namespace, deadline_s=left.at_most(deadlines.api_s)))
    if isinstance(listed, FetchError):
        message = f"Instances cannot be listed: {listed.state}: {listed.message}"
        return DeadlineExceeded(message) if left.over else Unavailable(message)
    instances, pods, version = listed
    rows = [(each, workload(each, pods.get(name))) for name, each in sorted(instances.items())]
    read = await _read_peers([row for _, row in rows if isinstance(row, Workload)], sources, left, deadlines)
    items: list[InstanceUsage] = []
    absences: dict[str, str] = {}
    for position, (instance, row) in enumerate(rows, start=1):
        if position % _ROWS_IN_ONE_GO == 0:
            await asyncio.sleep(0)
        if isinstance(row, Missing):
            absences[f"{instance.namespace}/{instance.name}"] = row.message
            items.append(_unmeasured(instance))
        else:
            items.append(_measured(row, read, clock))
    return ListOutcome(tuple(items), _warnings(items), version or None, absences)


async def _read_peers(rows: Sequence[Workload], sources: Sources, left: Countdown, deadlines: Deadlines) -> _Read:
    turns = asyncio.Semaphore(PARALLEL_READS)

    async def kubelet(node: str) -> NodeRead | FetchError:
        async with turns:
            return await sources.kubelets.begin(node, deadline_s=left.at_most(deadlines.kubelet_s)).outcome()

    async def snapshot(place: Place) -> SnapshotRead | FetchError:
        async with turns:
            deadline_s = left.at_most(deadlines.device_manager_s)
            return await sources.snapshots.begin(place, deadline_s=deadline_s).outcome()

    nodes = dict.fromkeys(row.node_name for row in rows)
    places = dict.fromkeys((row.node_name, name) for row in rows for name in row.allocation.manufacturers)
    async with asyncio.TaskGroup() as tasks:
        kubelets = {node: tasks.create_task(kubelet(node)) for node in nodes}
        snapshots = {place: tasks.create_task(snapshot(place)) for place in places}
    return _Read(
        {node: task.result() for node, task in kubelets.items()},
        {place: task.result() for place, task in snapshots.items()},
    )


def _measured(row: Workload, read: _Read, clock: Clock) -> InstanceUsage:
    return assemble(
        row,
        clock,
        kubelet=of_pod(read.kubelets[row.node_name], row, clock),
        snapshots={name: read.snapshots[row.node_name, name] for name in row.allocation.manufacturers},
    )


def _unmeasured(instance: Instance) -> InstanceUsage:
    return InstanceUsage(
        namespace=instance.namespace,
        name=instance.name,
        uid=instance.uid,
        created_at=instance.created_at,
        labels=instance.labels,
        node_name=instance.node_name,
    )


def _warnings(items: Iterable[InstanceUsage]) -> tuple[str, ...]:
    """One line per peer that cost rows their figures, in the order of the rows."""
    faults = {
        (item.node_name, report.name): report
        for item in items
        for report in (item.sample.sources if item.sample is not None else ())
        if report.state not in _UNREMARKABLE and report.name != ALLOCATION
    }
    named = [
        f"node {node}: {name}: {report.state}" + (f", {report.message}" if report.message else "")
        for (node, name), report in faults.items()
    ]
    more = len(named) - WARNINGS
    return (*named[:WARNINGS], *([f"and {more} more sources that did not answer"] if more > 0 else []))
