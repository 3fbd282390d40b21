"""The state of the stand-in cluster, shared by everything in it that answers requests."""

from collections.abc import Sequence

from devicemanager.clock import Clock
from devicemanager.demo.cluster.access import Access
from devicemanager.demo.cluster.aggregator import Aggregator
from devicemanager.demo.cluster.discovery import RESOURCES, Resource
from devicemanager.demo.cluster.kubelets import Kubelets
from devicemanager.demo.cluster.store import Store


class ClusterState:
    """The state of a cluster; may be changed at any moment.

    Attributes:
        clock: The time in the cluster.
        store: The objects. ``store.edit("pods", namespace, name, change)`` changes one and tells watchers.
        access: Tokens and rules.
        aggregator: The API servers registered behind this one.
        kubelets: What the nodes' kubelets measure.
        resources: What is served.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.store = Store()
        self.access = Access()
        self.aggregator = Aggregator()
        self.kubelets = Kubelets(self.store)
        self.resources: Sequence[Resource] = RESOURCES
