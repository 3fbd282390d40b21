"""The stand-in's kubelets and its metrics API: figures of the pods in the store."""

from collections.abc import Sequence
from datetime import datetime

from aiohttp import web

from devicemanager.demo.cluster import figures
from devicemanager.demo.cluster.discovery import METRICS, Resource
from devicemanager.demo.cluster.request_info import RequestInfo
from devicemanager.demo.cluster.responses import failure, json_answer, not_found, object_list, unknown_path
from devicemanager.demo.cluster.selectors import JsonObject
from devicemanager.demo.cluster.store import Store


class Kubelets:
    """The kubelets of all nodes.

    Attributes:
        step: How often they measure, and the metrics API with them; whole seconds.
    """

    def __init__(self, store: Store) -> None:
        self.step = figures.STEP
        self._store = store
        self._pods_by_node: dict[str, list[JsonObject]] = {}
        self._indexed_version = 0

    def proxied(self, resource: Resource, info: RequestInfo, now: datetime) -> web.Response:
        """``/api/v1/nodes/<node>/proxy/stats/summary``."""
        if self._store.get("nodes", "", info.name) is None:
            return not_found(resource, info.name)
        if info.rest != "stats/summary":
            return unknown_path()
        return self.summary(info.name, now)

    def summary(self, node: str, now: datetime) -> web.Response:
        """``/stats/summary`` of one node."""
        at = figures.housekeeping_time(now, self.step)
        return json_answer(figures.stats_summary(node, self.running(self._pods_on(node)), at))

    def pod_metrics(self, info: RequestInfo, now: datetime) -> web.Response:
        """``pods.metrics.k8s.io``: one or a list."""
        at = figures.housekeeping_time(now, self.step)
        store = self._store
        if info.verb == "list":
            entries = [self.entry(pod, at) for pod in self.running(store.select("pods", info.namespace))]
            return json_answer(object_list(METRICS, entries, store.version, {}))
        pod = store.get("pods", info.namespace, info.name)
        for found in self.running([] if pod is None else [pod]):
            return json_answer(self.entry(found, at))
        details = {"name": f"{info.namespace}/{info.name}", "group": METRICS.group, "kind": "podmetrics"}
        return failure(404, f'podmetrics.metrics.k8s.io "{info.namespace}/{info.name}" not found', details)

    def running(self, pods: Sequence[JsonObject]) -> list[JsonObject]:
        """Those of these pods that are running."""
        return [pod for pod in pods if pod["status"]["phase"] == "Running"]

    def entry(self, pod: JsonObject, at: datetime) -> JsonObject:
        """A pod's entry in ``pods.metrics.k8s.io``."""
        return figures.pod_metrics(pod, at)

    def _pods_on(self, node: str) -> list[JsonObject]:
        """A node's pods; the index is rebuilt when the store has changed."""
        store = self._store
        if self._indexed_version != store.version:
            self._indexed_version = store.version
            self._pods_by_node.clear()
            for pod in store.select("pods"):
                self._pods_by_node.setdefault(pod["spec"].get("nodeName", ""), []).append(pod)
        return self._pods_by_node.get(node, [])
