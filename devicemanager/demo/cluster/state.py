"""The state of the stand-in cluster, shared by everything in it that answers requests."""

from collections.abc import Sequence

from devicemanager.clock import Clock
from devicemanager.demo.cluster.access import Access
from devicemanager.demo.cluster.aggregator import Aggregator
from devicemanager.demo.cluster.discovery import METRICS, RESOURCES, Resource
from devicemanager.demo.cluster.faults import Faults
from devicemanager.demo.cluster.kubelets import Kubelets
from devicemanager.demo.cluster.request_log import RequestLog
from devicemanager.demo.cluster.store import Store


class ClusterState:
    """The state of a cluster; may be changed at any moment.

    Attributes:
        clock: The time in the cluster.
        store: The objects. ``store.edit("pods", namespace, name, change)`` changes one and tells watchers.
        access: Tokens and rules.
        faults: What goes wrong.
        requests: What was asked.
        aggregator: The API servers registered behind this one.
        kubelets: What the nodes' kubelets measure.
        metrics_served: Whether ``metrics.k8s.io`` exists.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.store = Store()
        self.access = Access()
        self.faults = Faults()
        self.requests = RequestLog()
        self.aggregator = Aggregator()
        self.kubelets = Kubelets(self.store)
        self.metrics_served = True

    @property
    def resources(self) -> Sequence[Resource]:
        """What is served now."""
        return RESOURCES if self.metrics_served else [entry for entry in RESOURCES if entry is not METRICS]
