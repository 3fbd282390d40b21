"""The stand-in's kubelets and its metrics API with the faults that change what they say."""

import copy
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime, timedelta
from uuid import NAMESPACE_URL, uuid5

from aiohttp import web
from typing_extensions import override

from devicemanager.demo.cluster.kubelets import Kubelets
from devicemanager.demo.cluster.objects import kubernetes_time
from devicemanager.demo.cluster.responses import json_answer
from devicemanager.demo.cluster.selectors import JsonObject
from devicemanager.demo.cluster.store import Store
from tests.cluster.faults import Fault, Trouble


class FaultyKubelets(Kubelets):
    """The kubelets of all nodes, which say what the faults of the request under way make them say."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._faults: ContextVar[Sequence[Fault]] = ContextVar("faults", default=())

    @contextmanager
    def meeting(self, faults: Sequence[Fault]) -> Iterator[None]:
        """Answer requests of the ``with`` block with these faults."""
        token = self._faults.set(faults)
        try:
            yield
        finally:
            self._faults.reset(token)

    @override
    def summary(self, node: str, now: datetime) -> web.Response:
        answer = super().summary(node, now)
        for fault in self._faults.get():
            if fault.trouble is Trouble.STALE:
                earlier = super().summary(node, now - fault.behind)
                answer = json_answer(_document(answer) | {"pods": _document(earlier)["pods"]})
        return answer

    @override
    def running(self, pods: Sequence[JsonObject]) -> list[JsonObject]:
        absent = self._pods_with(Trouble.ABSENT_POD)
        earlier = self._pods_with(Trouble.EARLIER_POD)
        return [
            _earlier(pod) if _key(pod) in earlier else pod
            for pod in super().running(pods)
            if _key(pod) not in absent
        ]

    @override
    def entry(self, pod: JsonObject, at: datetime) -> JsonObject:
        """An earlier pod's entry dates from before its successor."""
        if pod.get("ended"):
            at = datetime.fromisoformat(pod["metadata"]["creationTimestamp"]) + timedelta(minutes=30)
        return super().entry(pod, at)

    def _pods_with(self, trouble: Trouble) -> set[tuple[str, str]]:
        return {fault.pod for fault in self._faults.get() if fault.trouble is trouble}


def _document(answer: web.Response) -> JsonObject:
    assert isinstance(answer.body, bytes)
    document: JsonObject = json.loads(answer.body)
    return document


def _key(pod: JsonObject) -> tuple[str, str]:
    return pod["metadata"]["namespace"], pod["metadata"]["name"]


def _earlier(pod: JsonObject) -> JsonObject:
    """An earlier pod of the same name."""
    earlier = copy.deepcopy(pod)
    metadata = earlier["metadata"]
    created = datetime.fromisoformat(metadata["creationTimestamp"]) - timedelta(hours=1)
    metadata["uid"] = str(uuid5(NAMESPACE_URL, f"earlier/{metadata['uid']}"))
    metadata["creationTimestamp"] = earlier["status"]["startTime"] = kubernetes_time(created)
    earlier["ended"] = True
    return earlier
