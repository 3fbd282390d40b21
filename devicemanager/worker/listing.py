"""Many workloads at once: one list of them, one of their pods, and one read of each peer on each of their nodes.

A node that does not answer costs its own rows their figures, and adds a warning; metrics.k8s.io is not asked, since
that would be one request for each pod.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import compress
from typing import Final

from devicemanager.clock import Clock
from devicemanager.errors import FetchError
from devicemanager.model.usage import SourceState, WorkloadUsage
from devicemanager.rules.merge import ALLOCATION, PodOutcome
from devicemanager.transport.failures import attempt
from devicemanager.wire.pods import Pod
from devicemanager.wire.steps import Steps
from devicemanager.wire.workload_objects import WorkloadObject
from devicemanager.worker.deadlines import Countdown, Deadlines
from devicemanager.worker.kubelet import NodeRead
from devicemanager.worker.outcomes import Choose, DeadlineExceeded, ListOutcome, ListResult, Select, Unavailable
from devicemanager.worker.single_flight import Pending
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
    select: Select | None,
    choose: Choose | None,
    left: Countdown,
    deadlines: Deadlines,
) -> ListResult:
    """The workloads of a namespace, or of all for None; see :meth:`~devicemanager.worker.outcomes.Reader.list`."""
    kind = reads.workload.resource.source.kind
    listed = await attempt(reads.all(namespace, deadline_s=left.at_most(deadlines.api_s)))
    if isinstance(listed, FetchError):
        return _unlisted(kind, listed, left)
    ordered = sorted(listed.items, key=lambda each: (each.namespace, each.name))
    if select is not None:
        wanted = await sources.slices.map(select, ordered)
        ordered = list(compress(ordered, wanted))
    chosen = ordered if choose is None else choose(ordered)
    pods = await attempt(reads.pods_of_many(namespace, chosen, deadline_s=left.at_most(deadlines.api_s)))
    if isinstance(pods, FetchError):
        return _unlisted(kind, pods, left)

    def located(source: WorkloadObject) -> Located | NotLocated:
        found = pods.get((source.namespace, source.name), ())
        if isinstance(found, FetchError):
            return NotLocated(
                f"the pods of {kind} {source.namespace}/{source.name} cannot be read: {found.message}"
            )
        return reads.workload.locate(source, found)

    rows = list(zip(chosen, await sources.slices.map(located, chosen), strict=True))
    measured = await _measured(
        [row for _, row in rows if isinstance(row, Located)], sources, clock, left, deadlines
    )
    items = tuple(measured.get((each.namespace, each.name)) or _unmeasured(each) for each, _ in rows)
    absences = {f"{each.namespace}/{each.name}": row.message for each, row in rows if isinstance(row, NotLocated)}
    warnings = await sources.slices.run(_warnings(items))
    return ListOutcome(items, (*_missing(kind, listed.cut, pods.values()), *warnings), absences)


def _unlisted(kind: str, error: FetchError, left: Countdown) -> Unavailable | DeadlineExceeded:
    message = f"{kind}s cannot be listed: {error.state}: {error.message}"
    return DeadlineExceeded(message) if left.over else Unavailable(message)


def _missing(kind: str, cut: str | None, pods: Iterable[Sequence[Pod] | FetchError]) -> Iterator[str]:
    """What the API server itself did not give."""
    if cut is not None:
        yield f"not all {kind}s are listed: {cut}"
    failures = [each for each in pods if isinstance(each, FetchError)]
    if failures:
        yield f"the pods of {len(failures)} {kind}s cannot be read: {failures[0].state}: {failures[0].message}"


async def _measured(
    rows: Sequence[Located],
    sources: Sources,
    clock: Clock,
    left: Countdown,
    deadlines: Deadlines,
) -> Mapping[Name, WorkloadUsage]:
    """The rows, each node's as soon as its sources have answered."""
    turns = asyncio.Semaphore(PARALLEL_NODES)
    by_node: dict[str, list[Located]] = {}
    for row in rows:
        by_node.setdefault(row.node_name, []).append(row)

    async def figures(kubelet: Pending[NodeRead], mine: Sequence[Located]) -> Sequence[PodOutcome]:
        read = await kubelet.outcome()
        return await sources.slices.map(lambda row: of_pod(read, row, clock), mine)

    async def of_node(node: str, mine: Sequence[Located]) -> Sequence[WorkloadUsage]:
        async with turns:
            asked_at_s = clock.monotonic()
            kubelet_s, snapshot_s = map(left.at_most, (deadlines.kubelet_s, deadlines.device_manager_s))
            snapshot_reads = {
                name: sources.snapshots.begin((node, name), deadline_s=snapshot_s)
                for name in dict.fromkeys(name for row in mine for name in row.allocation.manufacturers)
            }
            # No name for the read: it may be megabytes, and device managers may take seconds.
            outcomes = await figures(
                sources.begin_kubelet(node, [row.pod for row in mine], deadline_s=kubelet_s), mine
            )
            snapshots = {name: await read.outcome() for name, read in snapshot_reads.items()}
            return await sources.slices.map(
                lambda each: assemble(each[0], clock, kubelet=each[1], snapshots=snapshots, asked_at_s=asked_at_s),
                zip(mine, outcomes, strict=True),
            )

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


def _warnings(items: Sequence[WorkloadUsage]) -> Steps[tuple[str, ...]]:
    """One line per failed peer, in the order of the rows, then one per unhealthy accelerator; in steps of a row."""
    peers: dict[tuple[str | None, str], str] = {}
    accelerators: dict[tuple[str | None, str, str], str] = {}
    for item in items:
        if item.sample is None:
            continue
        for report in item.sample.sources:
            if report.state not in _UNREMARKABLE and report.name != ALLOCATION:
                said = f": {report.state}" + (f", {report.message}" if report.message else "")
                peers[item.node_name, report.name] = f"node {item.node_name}: {report.name}{said}"
        for card in item.sample.accelerators:
            if (warning := card.health_warning) is not None:
                accelerators[item.node_name, card.manufacturer, card.id] = f"node {item.node_name}: {warning}"
        yield
    named = [*peers.values(), *accelerators.values()]
    more = len(named) - WARNINGS
    return (*named[:WARNINGS], *([f"and {more} more"] if more > 0 else []))
