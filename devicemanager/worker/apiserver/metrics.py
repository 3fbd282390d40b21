"""The worker's own metrics: how it answers, how its sources answer, and when its certificate ends."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector
from typing_extensions import override

from devicemanager import __version__
from devicemanager.model.usage import WorkloadUsage
from devicemanager.worker.apiserver.attributes import Attributes
from devicemanager.worker.single_flight import Statistics
from devicemanager.worker.workloads.workload import Resource

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_PREFIX: Final = "devicemanager_worker"
_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25)
_VERBS: Final = frozenset({"get", "list", "watch", "head"})
_OTHER_PATHS: Final = frozenset({"apis", "openapi", "metrics", "healthz", "livez", "readyz"})


class WorkerMetrics:
    """Collects and writes them. Labels take closed sets of values only, whatever a caller or an annotation says.

    Args:
        not_after: End of the serving certificate's validity.
        in_flight: Reads under way at this moment.
        resources: Of every kind of workload.
        shared_reads: Counts of each kind of shared read, by its name.
        more: Further metrics, such as those of this process.
    """

    def __init__(
        self,
        not_after: Callable[[], datetime],
        in_flight: Callable[[], int],
        resources: Iterable[Resource],
        shared_reads: Callable[[], Mapping[str, Statistics]] = dict,
        more: Iterable[Collector] = (),
    ) -> None:
        self._registry = CollectorRegistry()
        self._resources = {
            name for each in resources for name in (each.plural, f"{each.source.plural}/{each.subresource}")
        }
        self._requests = Histogram(
            f"{_PREFIX}_request_duration_seconds",
            "Time from a complete request head to its answer.",
            ("verb", "resource", "code"),
            buckets=_BUCKETS,
            registry=self._registry,
        )
        self._known: dict[tuple[str, str, int], Histogram] = {}
        self._sources = Counter(
            f"{_PREFIX}_source_outcomes",
            "How asking a source for a part of an answer ended.",
            ("source", "state"),
            registry=self._registry,
        )
        Gauge(f"{_PREFIX}_reads_under_way", "Reads of workloads under way.", registry=self._registry).set_function(
            in_flight
        )
        Gauge(
            f"{_PREFIX}_certificate_not_after_timestamp_seconds",
            "When the serving certificate ends, in seconds since 1970.",
            registry=self._registry,
        ).set_function(lambda: not_after().timestamp())
        Gauge(f"{_PREFIX}_build_info", "Always 1.", ("version",), registry=self._registry).labels(__version__).set(
            1
        )
        self._registry.register(_SharedReads(shared_reads))
        for collector in more:
            self._registry.register(collector)

    def observe_request(self, attributes: Attributes, code: int, duration_s: float) -> None:
        """Count one answered request."""
        key = (attributes.verb, self._resource(attributes), code)
        child = self._known.get(key)
        if child is None:
            verb = attributes.verb if attributes.verb in _VERBS else "other"
            child = self._requests.labels(verb, key[1], str(code))
            if verb == attributes.verb:
                self._known[key] = child
        child.observe(duration_s)

    def observe_usages(self, usages: Iterable[WorkloadUsage]) -> None:
        """Count how the sources of these answers answered."""
        for usage in usages:
            for source in usage.sample.sources if usage.sample is not None else ():
                # The manufacturer is whatever an annotation says: one label value stands for all of them.
                self._sources.labels(source.name.partition("/")[0], source.state.value).inc()

    def _resource(self, attributes: Attributes) -> str:
        """What a request is about, as one of few words."""
        if attributes.resource:
            resource = attributes.resource + (f"/{attributes.subresource}" if attributes.subresource else "")
            return resource if resource in self._resources else "other"
        first = attributes.path.split("/", 2)[1] if attributes.path.startswith("/") else ""
        return first if first in _OTHER_PATHS else "other"

    def exposition(self) -> bytes:
        """The text that Prometheus reads."""
        return generate_latest(self._registry)


class _SharedReads(Collector):
    def __init__(self, statistics: Callable[[], Mapping[str, Statistics]]) -> None:
        self._statistics = statistics

    @override
    def collect(self) -> Iterator[CounterMetricFamily]:
        family = CounterMetricFamily(
            f"{_PREFIX}_shared_reads",
            "Reads of peers: sent (started), waited for together (joined), answered from what was kept (reused), "
            "ended without an answer (failed).",
            labels=("source", "outcome"),
        )
        for source, counts in sorted(self._statistics().items()):
            for outcome in ("started", "joined", "reused", "failed"):
                family.add_metric((source, outcome), getattr(counts, outcome))
        yield family
