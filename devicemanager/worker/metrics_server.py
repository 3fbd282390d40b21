"""CPU and memory of one pod as ``metrics.k8s.io`` serves them: for when the kubelet does not answer.

Whoever serves that API (metrics-server, an adapter) keeps its own past samples, so an entry may be of an earlier
pod of the same name; ``rules.pod_metrics`` rejects it.
"""

from dataclasses import dataclass
from typing import Final

from devicemanager.clock import Clock
from devicemanager.errors import DocumentError, FetchError
from devicemanager.model.usage import PodMetrics, PodReading, SourceFailure, SourceState
from devicemanager.rules import freshness
from devicemanager.rules import pod_metrics as rules
from devicemanager.transport.failures import unreadable
from devicemanager.transport.messages import Received
from devicemanager.wire import pod_metrics
from devicemanager.wire.pods import Pod
from devicemanager.worker.cluster import Cluster, object_path

API: Final = "/apis/metrics.k8s.io/v1beta1"

READ_DEADLINE_S: Final = 3.0


@dataclass(frozen=True, slots=True)
class MetricsRead:
    """The answer for one namespace and name, perhaps of an earlier pod."""

    metrics: PodMetrics
    received: Received

    def reading(self, pod: Pod, clock: Clock) -> PodReading | SourceFailure:
        """The figures of this pod now; a failure if the answer is not about it."""
        usage = rules.pod_usage(
            self.metrics,
            pod_created_at=pod.created_at,
            answered_at=self.received.answered_at(clock),
            own=pod.container_names,
            states=pod.containers,
        )
        if isinstance(usage, SourceFailure):
            return usage
        # metrics-server's own clock gave the time; its Date header is the same clock, whatever ours says.
        age_s = freshness.age_s(
            timestamp=usage.measured_at,
            now=clock.now(),
            held_s=clock.monotonic() - self.received.received_monotonic_s,
            date=self.received.date,
        )
        return PodReading(usage, age_s)


class MetricsServer:
    """Reads metrics.k8s.io through the API server."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def read(self, name: tuple[str, str]) -> MetricsRead:
        """The entry of a namespace and name.

        Raises:
            FetchError: ``not_yet`` where the API knows no such pod, ``not_served`` where there is no such API.
        """
        namespace, pod = name
        path = object_path(f"{API}/namespaces", namespace) + object_path("/pods", pod)
        try:
            received = await self._cluster.fetch(path, deadline_s=READ_DEADLINE_S)
            return MetricsRead(pod_metrics.parse(received.body), received.without_body())
        except FetchError as error:
            raise _explained(error) from error
        except DocumentError as error:
            raise unreadable(error) from error


def _explained(error: FetchError) -> FetchError:
    if error.status != 404:
        return error
    if error.reason == "NotFound":
        return FetchError(SourceState.NOT_YET, "metrics.k8s.io has not measured this pod yet", status=404)
    return FetchError(SourceState.NOT_SERVED, "metrics.k8s.io is not served in this cluster", status=404)
