"""Reads what workloads of one kind use now.

Two reads of the API server at once, then every source at once, each within its own time. metrics.k8s.io is asked
when the kubelet fails, or has not answered for too long.
"""

from typing_extensions import override

from devicemanager.clock import Clock
from devicemanager.errors import FetchError
from devicemanager.model.usage import PodReading, SourceFailure
from devicemanager.rules.merge import KUBELET, METRICS_SERVER, PodOutcome
from devicemanager.rules.object_names import is_name
from devicemanager.worker import listing
from devicemanager.worker.deadlines import DEADLINES, Countdown, Deadlines
from devicemanager.worker.outcomes import (
    Answer,
    Choose,
    DeadlineExceeded,
    ListOutcome,
    ListResult,
    NotFound,
    Outcome,
    Reader,
    Select,
    Unavailable,
)
from devicemanager.worker.sources import Sources, assemble, of_pod
from devicemanager.worker.workloads.reads import WorkloadReads
from devicemanager.worker.workloads.workload import Located, NotLocated


class WorkloadReader(Reader):
    """Reads one workload of a kind, or all.

    Args:
        reads: Entered; reads the workloads' objects and pods.
        sources: Entered; reads the rest.
        clock: Times the answers.
        deadlines: Of the parts.
    """

    def __init__(
        self, reads: WorkloadReads, sources: Sources, clock: Clock, deadlines: Deadlines = DEADLINES
    ) -> None:
        self._reads = reads
        self._kind = reads.workload.resource.source.kind
        self._sources = sources
        self._clock = clock
        self._deadlines = deadlines

    @override
    async def read(self, namespace: str, name: str, *, deadline_s: float | None = None) -> Outcome:
        left = Countdown(self._whole_s(deadline_s))
        title = f"{self._kind} {namespace}/{name}"
        if not (is_name(namespace) and is_name(name)):
            return NotFound(f"{self._kind} {namespace!r}/{name!r} not found")
        located = await self._found((namespace, name), left)
        match located:
            case FetchError() if located.says_missing(name):
                return NotFound(f"{title} not found")
            case FetchError():
                return _ended(left, f"{title} cannot be read: {located.state}: {located.message}")
            case NotLocated():
                return Unavailable(located.message)
            case Located():
                return await self._measured(located, left)

    @override
    async def list(
        self,
        namespace: str | None = None,
        *,
        select: Select | None = None,
        choose: Choose | None = None,
        deadline_s: float | None = None,
    ) -> ListResult:
        left = Countdown(self._whole_s(deadline_s))
        if namespace is not None and not is_name(namespace):
            return ListOutcome(())
        return await listing.read_all(
            self._reads, self._sources, self._clock, namespace, select, choose, left, self._deadlines
        )

    def _whole_s(self, deadline_s: float | None) -> float:
        whole_s = self._deadlines.whole_s
        return whole_s if deadline_s is None else min(deadline_s, whole_s)

    async def _found(self, name: tuple[str, str], left: Countdown) -> Located | NotLocated | FetchError:
        deadline_s = left.at_most(self._deadlines.api_s)
        # Together, because one after the other would cost every answer a round trip for the sake of the few that
        # are not there.
        source_read = self._reads.source(name, deadline_s=deadline_s)
        pods_read = self._reads.pods(name, deadline_s=deadline_s)
        source = await source_read.outcome()
        if isinstance(source, FetchError):
            return source
        pods = await pods_read.outcome()
        return pods if isinstance(pods, FetchError) else self._reads.workload.locate(source, pods)

    async def _measured(self, located: Located, left: Countdown) -> Outcome:
        asked_at_s = self._clock.monotonic()
        deadline_s = left.at_most(self._deadlines.device_manager_s)
        snapshot_reads = {
            manufacturer: self._sources.snapshots.begin((located.node_name, manufacturer), deadline_s=deadline_s)
            for manufacturer in located.allocation.manufacturers
        }
        kubelet, metrics_server = await self._usage(located, left)
        if isinstance(kubelet, SourceFailure) and isinstance(metrics_server, SourceFailure):
            return _ended(left, _no_usage(located, kubelet, metrics_server))
        snapshots = {manufacturer: await read.outcome() for manufacturer, read in snapshot_reads.items()}
        usage = assemble(
            located,
            self._clock,
            kubelet=kubelet,
            metrics_server=metrics_server,
            snapshots=snapshots,
            asked_at_s=asked_at_s,
        )
        return Answer(usage)

    async def _usage(self, located: Located, left: Countdown) -> tuple[PodOutcome, PodOutcome | None]:
        """The kubelet's answer, and that of metrics.k8s.io if it was asked and has answered."""
        deadlines, name = self._deadlines, (located.pod.namespace, located.pod.name)
        kubelet_read = self._sources.begin_kubelet(
            located.node_name, [located.pod], deadline_s=left.at_most(deadlines.kubelet_s)
        )
        kubelet: PodOutcome | None = None
        if await kubelet_read.settled(deadlines.hedge_s):
            kubelet = of_pod(await kubelet_read.outcome(), located, self._clock)
            if isinstance(kubelet, PodReading):
                return kubelet, None
        fallback_read = self._sources.metrics.begin(name, deadline_s=left.at_most(deadlines.fallback_s))
        if kubelet is None:
            kubelet = of_pod(await kubelet_read.outcome(), located, self._clock)
        del kubelet_read  # it may be megabytes, and the other answer may take seconds
        if isinstance(kubelet, PodReading) and not await fallback_read.settled(0):
            return kubelet, None
        return kubelet, of_pod(await fallback_read.outcome(), located, self._clock)


def _ended(left: Countdown, message: str) -> Unavailable | DeadlineExceeded:
    return DeadlineExceeded(message) if left.over else Unavailable(message)


def _no_usage(located: Located, kubelet: SourceFailure, metrics_server: SourceFailure) -> str:
    said = "; ".join(
        f"{name}: {failure.state}" + (f", {failure.message}" if failure.message else "")
        for name, failure in ((f"{KUBELET} of node {located.node_name}", kubelet), (METRICS_SERVER, metrics_server))
    )
    return f"no figures of pod {located.pod.namespace}/{located.pod.name}: {said}"
