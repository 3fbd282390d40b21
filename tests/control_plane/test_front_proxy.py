"""What the cluster says of its front proxy is watched from a version that the API server still knows."""

import json

from tests.control_plane.cluster import ControlPlane, Object
from tests.control_plane.release import NAMESPACE, WORKER, Worker
from tests.timing import wait_until

NAME = "extension-apiserver-authentication"
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:{WORKER}"


def requests(cluster: ControlPlane, verb: str) -> list[Object]:
    """The worker's requests for the ConfigMap, each once."""
    return [
        event
        for event in cluster.audited()
        if event["user"]["username"] == ACCOUNT
        and event["verb"] == verb
        and event.get("objectRef", {}).get("resource") == "configmaps"
        and event["stage"] == ("ResponseStarted" if verb == "watch" else "ResponseComplete")
    ]


def test_after_a_compaction_and_a_restart_one_watch_is_enough(cluster: ControlPlane, worker: Worker) -> None:
    """The ConfigMap was written when the cluster was made; nothing knows that version any more."""
    worker.stop()
    cluster.compact()
    cluster.restart_api_server()
    lists, watches = len(requests(cluster, "list")), len(requests(cluster, "watch"))
    worker.start()
    wait_until(lambda: requests(cluster, "watch")[watches:], "the ConfigMap is watched")
    data = {"requestheader-allowed-names": json.dumps(["front-proxy-client", "another"])}
    cluster.kubectl("patch", "configmap", NAME, "-n", "kube-system", "-p", json.dumps({"data": data}))
    wait_until(lambda: '"another"' in worker.logged(), "a change comes by that watch")
    assert len(requests(cluster, "list")) == lists + 1
    assert [event["responseStatus"]["code"] for event in requests(cluster, "watch")[watches:]] == [200]
    assert "front_proxy_trust_not_current" not in worker.logged()
    assert "watch_failed" not in worker.logged()
    assert requests(cluster, "get") == []
