"""The stand-in's kubelets and its metrics API: figures of the pods in the store, changed by the active faults."""

import copy
from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import NAMESPACE_URL, uuid5

from aiohttp import web

from devicemanager.demo.cluster import figures
from devicemanager.demo.cluster.discovery import METRICS, Resource
from devicemanager.demo.cluster.faults import Fault, Trouble
from devicemanager.demo.cluster.objects import kubernetes_time
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

    def proxied(
        self, resource: Resource, info: RequestInfo, now: datetime, faults: Sequence[Fault]
    ) -> web.Response:
        """``/api/v1/nodes/<node>/proxy/stats/summary``."""
        if self._store.get("nodes", "", info.name) is None:
            return not_found(resource, info.name)
        if info.rest != "stats/summary":
            return unknown_path()
        return self.summary(info.name, now, faults)

    def summary(self, node: str, now: datetime, faults: Sequence[Fault]) -> web.Response:
        """``/stats/summary`` of one node."""
        node_at = pods_at = figures.housekeeping_time(now, self.step)
        for fault in faults:
            if fault.trouble is Trouble.STALE:
                pods_at = node_at - fault.behind
        pods = _seen(self._pods_on(node), faults)
        return json_answer(figures.stats_summary(node, pods, node_at, pods_at))

    def pod_metrics(self, info: RequestInfo, now: datetime, faults: Sequence[Fault]) -> web.Response:
        """``pods.metrics.k8s.io``: one or a list."""
        at = figures.housekeeping_time(now, self.step)
        store = self._store
        if info.verb == "list":
            pods = _seen(store.select("pods", info.namespace), faults)
            entries = [figures.pod_metrics(pod, _entry_time(pod, at)) for pod in pods]
            return json_answer(object_list(METRICS, entries, store.version, {}))
        pod = store.get("pods", info.namespace, info.name)
        for seen in _seen([] if pod is None else [pod], faults):
            return json_answer(figures.pod_metrics(seen, _entry_time(seen, at)))
        details = {"name": f"{info.namespace}/{info.name}", "group": METRICS.group, "kind": "podmetrics"}
        return failure(404, f'podmetrics.metrics.k8s.io "{info.namespace}/{info.name}" not found', details)

    def _pods_on(self, node: str) -> list[JsonObject]:
        """A node's pods; the index is rebuilt when the store has changed."""
        store = self._store
        if self._indexed_version != store.version:
            self._indexed_version = store.version
            self._pods_by_node.clear()
            for pod in store.select("pods"):
                self._pods_by_node.setdefault(pod["spec"].get("nodeName", ""), []).append(pod)
        return self._pods_by_node.get(node, [])


def _seen(pods: Sequence[JsonObject], faults: Sequence[Fault]) -> list[JsonObject]:
    """The running pods, with the faults applied."""
    absent = {fault.pod for fault in faults if fault.trouble is Trouble.ABSENT_POD}
    earlier = {fault.pod for fault in faults if fault.trouble is Trouble.EARLIER_POD}
    seen = []
    for pod in pods:
        key = (pod["metadata"]["namespace"], pod["metadata"]["name"])
        if pod["status"]["phase"] == "Running" and key not in absent:
            seen.append(_earlier(pod) if key in earlier else pod)
    return seen


def _earlier(pod: JsonObject) -> JsonObject:
    """An earlier pod of the same name."""
    earlier = copy.deepcopy(pod)
    metadata = earlier["metadata"]
    created = datetime.fromisoformat(metadata["creationTimestamp"]) - timedelta(hours=1)
    metadata["uid"] = str(uuid5(NAMESPACE_URL, f"earlier/{metadata['uid']}"))
    metadata["creationTimestamp"] = earlier["status"]["startTime"] = kubernetes_time(created)
    earlier["ended"] = True
    return earlier


def _entry_time(pod: JsonObject, at: datetime) -> datetime:
    """When metrics.k8s.io measured a pod; an earlier pod's entry dates from before its successor."""
    if pod.get("ended"):
        return datetime.fromisoformat(pod["metadata"]["creationTimestamp"]) + timedelta(minutes=30)
    return at
