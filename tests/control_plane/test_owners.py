"""Objects that name an Instance of our group and version as their owner live exactly as long as it does.

Asked for such an owner, an answer of 404 makes the garbage collector delete the dependents, whatever else is true.
"""

import json
from typing import Any

import pytest

from tests.control_plane.cluster import ControlPlane, Object
from tests.control_plane.release import CLUSTER_ROLE, GROUP, Worker
from tests.timing import wait_until

NAMESPACE = "team-a"
COLLECTOR = "system:serviceaccount:kube-system:generic-garbage-collector"
KINDS = ("configmap", "pod", f"instances.v1alpha1.{GROUP}")


@pytest.fixture(scope="module", autouse=True)
def namespace(cluster: ControlPlane) -> None:
    """Made anew for these tests."""
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})


def new_instance(cluster: ControlPlane, name: str) -> str:
    """An Instance; returns its UID."""
    cluster.apply({"apiVersion": f"{GROUP}/v1alpha1", "kind": "Instance", **named(name)})
    found = cluster.get(f"instances.v1alpha1.{GROUP}", name, NAMESPACE)
    assert found is not None
    return str(found["metadata"]["uid"])


def named(name: str, *owners: Object) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": NAMESPACE, "ownerReferences": list(owners)}}


def owner(name: str, uid: str) -> Object:
    """A reference through our group and version, as an operator that was there before would have made it."""
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "Instance",
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def add_dependents(cluster: ControlPlane, of: str, uid: str) -> None:
    """One object of each kind of :data:`KINDS`, owned through our group and version."""
    name = f"{of}-dependent"
    container = {"name": "main", "image": "example.org/none"}
    cluster.apply(
        {"apiVersion": "v1", "kind": "ConfigMap", **named(name, owner(of, uid))},
        {"apiVersion": "v1", "kind": "Pod", **named(name, owner(of, uid)), "spec": {"containers": [container]}},
        {"apiVersion": f"{GROUP}/v1alpha1", "kind": "Instance", **named(name, owner(of, uid))},
    )


def dependents(cluster: ControlPlane, of: str) -> set[str]:
    """The kinds of those that live; one that is being deleted does not."""
    found = {kind: cluster.get(kind, f"{of}-dependent", NAMESPACE) for kind in KINDS}
    return {kind for kind, one in found.items() if one and "deletionTimestamp" not in one["metadata"]}


def looked_up(cluster: ControlPlane, name: str) -> list[int]:
    """The status of each answer that the garbage collector got about this Instance from our group."""
    path = f"/apis/{GROUP}/v1/namespaces/{NAMESPACE}/instances/{name}"
    return [
        event["responseStatus"]["code"]
        for event in cluster.audited()
        if event["requestURI"] == path
        and event["user"]["username"] == COLLECTOR
        and event["stage"] == "ResponseComplete"
    ]


def test_dependents_of_a_live_instance_are_kept_and_those_of_a_deleted_one_collected(
    cluster: ControlPlane, worker: Worker
) -> None:
    """The collector has asked for the owner, and has collected what has none: it has done all it wanted to."""
    uid = new_instance(cluster, "web")
    add_dependents(cluster, "web", uid)
    add_dependents(cluster, "never-was", "00000000-0000-4000-8000-000000000000")
    wait_until(lambda: not dependents(cluster, "never-was"), "what has no owner is collected")
    wait_until(lambda: looked_up(cluster, "web"), "the owner is looked up")
    assert set(looked_up(cluster, "web")) == {200}
    assert dependents(cluster, "web") == set(KINDS)

    cluster.kubectl("delete", f"instances.v1alpha1.{GROUP}", "web", "-n", NAMESPACE, "--cascade=background")
    wait_until(lambda: not dependents(cluster, "web"), "the dependents of a deleted Instance are collected")


def test_another_instance_of_the_same_name_is_not_the_owner(cluster: ControlPlane, worker: Worker) -> None:
    earlier = new_instance(cluster, "again")
    cluster.kubectl("delete", f"instances.v1alpha1.{GROUP}", "again", "-n", NAMESPACE)
    assert new_instance(cluster, "again") != earlier
    add_dependents(cluster, "again", earlier)
    wait_until(lambda: not dependents(cluster, "again"), "the dependents of the earlier one are collected")


def test_deletion_in_the_foreground_comes_to_its_end(cluster: ControlPlane, worker: Worker) -> None:
    """The Instance waits for its dependents, which are deleted because it is on its way out."""
    uid = new_instance(cluster, "waits")
    add_dependents(cluster, "waits", uid)
    wait_until(lambda: looked_up(cluster, "waits"), "the owner is looked up")
    kind = f"instances.v1alpha1.{GROUP}"
    cluster.kubectl("delete", kind, "waits", "-n", NAMESPACE, "--cascade=foreground", "--wait=false")
    wait_until(lambda: not dependents(cluster, "waits"), "the dependents are gone")
    wait_until(lambda: cluster.get(kind, "waits", NAMESPACE) is None, "and so is the Instance")


def test_while_the_worker_is_down_nothing_is_collected_and_later_only_what_should_be(
    cluster: ControlPlane, worker: Worker
) -> None:
    uid = new_instance(cluster, "away")
    worker.stop()
    try:
        add_dependents(cluster, "away", uid)
        wait_until(lambda: looked_up(cluster, "away"), "the owner is asked for in vain")
        assert set(looked_up(cluster, "away")) == {503}
        assert dependents(cluster, "away") == set(KINDS)
    finally:
        worker.start()
    wait_until(lambda: 200 in looked_up(cluster, "away"), "the owner is found")
    assert dependents(cluster, "away") == set(KINDS)
    cluster.kubectl("delete", f"instances.v1alpha1.{GROUP}", "away", "-n", NAMESPACE)
    wait_until(lambda: not dependents(cluster, "away"), "the dependents are collected")


def test_a_worker_that_cannot_read_instances_has_nothing_collected(cluster: ControlPlane, worker: Worker) -> None:
    """Its right is gone: 503, never 404."""
    uid = new_instance(cluster, "unreadable")
    role = json.loads(cluster.kubectl("get", "clusterrole", CLUSTER_ROLE, "-o", "json"))
    kept = [rule for rule in role["rules"] if "instances" not in rule["resources"]]
    cluster.kubectl("patch", "clusterrole", CLUSTER_ROLE, "--type=merge", "-p", json.dumps({"rules": kept}))
    try:
        add_dependents(cluster, "unreadable", uid)
        wait_until(lambda: looked_up(cluster, "unreadable"), "the owner is asked for in vain")
        assert set(looked_up(cluster, "unreadable")) == {503}
        assert dependents(cluster, "unreadable") == set(KINDS)
    finally:
        cluster.kubectl(
            "patch",
            "clusterrole",
            CLUSTER_ROLE,
            "--type=merge",
            "-p",
            json.dumps({"rules": role["rules"]}),
        )
    wait_until(lambda: 200 in looked_up(cluster, "unreadable"), "the owner is found")
    assert dependents(cluster, "unreadable") == set(KINDS)
