"""The stand-in cluster as its users meet it: over TLS, with tokens, selectors and watches."""

import json
from datetime import UTC, datetime

import pytest

from devicemanager.demo.cluster.access import Rule
from devicemanager.demo.cluster.objects import InstanceSpec
from devicemanager.demo.cluster.stand_in import WORKER_TOKEN
from tests.cluster.client import Client
from tests.cluster.one_node import SUMMARY, WEB, WEB_METRICS
from tests.timing import FakeClock


@pytest.mark.asyncio
async def test_it_says_plainly_what_it_is(client: Client) -> None:
    async with client.get("/version") as answer:
        assert "stand-in" in answer.headers["Server"]
        assert "stand-in" in (await answer.json())["gitVersion"]


@pytest.mark.parametrize("header", ["Impersonate-User", "impersonate-group", "Impersonate-Extra-scopes"])
@pytest.mark.asyncio
async def test_nobody_is_answered_with_his_own_rights_who_asks_with_anothers(client: Client, header: str) -> None:
    async with client.get("/api/v1/nodes", **{header: "nobody"}) as answer:
        status = await answer.json()

    assert (answer.status, status["kind"], status["reason"]) == (403, "Status", "Forbidden")
    assert status["message"] == "the stand-in cluster lets nobody act as another user: ask without --as"


@pytest.mark.asyncio
async def test_an_instance_comes_with_its_pod(client: Client) -> None:
    uids = client.cluster.add_instance(WEB)

    status, instance = await client.read("/apis/worker.gpustack.ai/v1alpha1/namespaces/team-a/instances/web")
    assert (status, instance["metadata"]["uid"], instance["status"]["nodeName"]) == (200, uids.instance, "node-a")
    status, pod = await client.read("/api/v1/namespaces/team-a/pods/web")
    assert (status, pod["metadata"]["uid"]) == (200, uids.pod)
    assert pod["metadata"]["labels"]["app.kubernetes.io/part-of"] == uids.instance
    allocation = json.loads(pod["metadata"]["annotations"]["device.gpustack.ai/accelerator.allocated"])
    assert allocation["main"]["devices"]["groups"][0]["accelerators"] == [
        {"id": "GPU-1", "index": 0, "mode": 1, "allocated": 1_600_000}
    ]


@pytest.mark.asyncio
async def test_an_instance_that_is_not_scheduled_has_no_pod(client: Client) -> None:
    uids = client.cluster.add_instance(InstanceSpec("team-a", "web", None))

    assert uids.pod is None
    status, answer = await client.read("/api/v1/namespaces/team-a/pods/web")
    assert (status, answer["reason"], answer["message"]) == (404, "NotFound", 'pods "web" not found')


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("", ["device-manager", "web"]),
        ("?labelSelector=app%3Dweb", ["web"]),
        ("?labelSelector=app+notin+(web)", ["device-manager"]),
        ("?labelSelector=%21app", ["device-manager"]),
        (
            "?labelSelector=gpustack.ai/manufacturer%3Dnvidia&fieldSelector=spec.nodeName%3Dnode-a",
            ["device-manager"],
        ),
        ("?fieldSelector=spec.nodeName%3Dnode-b", []),
        ("?fieldSelector=metadata.name%21%3Dweb", ["device-manager"]),
    ],
)
@pytest.mark.asyncio
async def test_pods_are_selected_by_labels_and_fields(client: Client, query: str, names: list[str]) -> None:
    client.cluster.add_instance(WEB)
    client.cluster.add_device_manager("node-a", "nvidia", "127.0.0.2")

    _, answer = await client.read(f"/api/v1/pods{query}")

    found = [item["metadata"]["name"] for item in answer["items"]]
    assert [name if name == "web" else name[:14] for name in found] == names


@pytest.mark.asyncio
async def test_a_selector_that_makes_no_sense_is_refused(client: Client) -> None:
    status, answer = await client.read("/api/v1/pods?labelSelector=a%3Db%3Dc%3D(")
    assert (status, answer["reason"]) == (400, "BadRequest")


@pytest.mark.asyncio
async def test_a_long_list_comes_in_pages(client: Client) -> None:
    for number in range(5):
        client.cluster.add_node(f"node-{number}")

    names: list[str] = []
    token = ""
    while True:
        _, page = await client.read(f"/api/v1/nodes?limit=4&continue={token}")
        names += [item["metadata"]["name"] for item in page["items"]]
        token = page["metadata"].get("continue", "")
        if not token:
            break

    assert names == ["node-0", "node-1", "node-2", "node-3", "node-4", "node-a"]
    assert (await client.read("/api/v1/nodes?continue=bm8="))[0] == 400


@pytest.mark.asyncio
async def test_a_watch_tells_what_enters_changes_and_leaves_the_selection(client: Client) -> None:
    client.cluster.add_instance(WEB)
    _, listed = await client.read("/api/v1/pods")
    version = listed["metadata"]["resourceVersion"]

    async with client.get(f"/api/v1/pods?watch=true&labelSelector=app%3Dweb&resourceVersion={version}") as answer:
        store = client.cluster.store
        store.edit("pods", "team-a", "web", lambda pod: pod["status"].update(phase="Failed"))
        store.edit("pods", "team-a", "web", lambda pod: pod["metadata"]["labels"].update(app="other"))
        store.edit("pods", "team-a", "web", lambda pod: pod["metadata"]["labels"].update(app="web"))
        client.cluster.add_device_manager("node-a", "nvidia", "127.0.0.2")
        store.delete("pods", "team-a", "web")
        events = [json.loads(await answer.content.readline()) for _ in range(4)]
        client.cluster.store.drop_watches()
        rest = await answer.content.read()

    assert [event["type"] for event in events] == ["MODIFIED", "DELETED", "ADDED", "DELETED"]
    assert events[0]["object"]["status"]["phase"] == "Failed"
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert versions == sorted(set(versions))
    assert rest == b""


@pytest.mark.asyncio
async def test_a_watch_from_nowhere_begins_with_what_is_there(client: Client) -> None:
    async with client.get("/api/v1/nodes?watch=true") as answer:
        event = json.loads(await answer.content.readline())
    assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "node-a")


@pytest.mark.asyncio
async def test_a_watch_from_a_forgotten_version_is_told_to_list_again(client: Client) -> None:
    client.cluster.add_node("node-b")
    client.cluster.store.forget_history()
    async with client.get("/api/v1/nodes?watch=true&resourceVersion=1") as answer:
        event = json.loads(await answer.content.readline())
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")


@pytest.mark.asyncio
async def test_a_kubelet_knows_the_pods_of_its_node_only(client: Client) -> None:
    uids = client.cluster.add_instance(WEB)
    client.cluster.add_instance(InstanceSpec("team-a", "elsewhere", "node-b"))

    _, summary = await client.read(SUMMARY)

    assert summary["node"]["nodeName"] == "node-a"
    (entry,) = summary["pods"]
    assert entry["podRef"] == {"name": "web", "namespace": "team-a", "uid": uids.pod}
    assert 0 < entry["cpu"]["usageNanoCores"] < 4_000_000_000
    assert 0 < entry["memory"]["workingSetBytes"] < 8 * 1024**3
    assert entry["containers"][0]["rootfs"]["usedBytes"] < entry["ephemeral-storage"]["usedBytes"]


@pytest.mark.asyncio
async def test_metrics_api_agrees_with_the_kubelet(client: Client) -> None:
    client.cluster.add_instance(WEB)
    client.cluster.clock = FakeClock(datetime(2026, 8, 12, 9, 15, 4, tzinfo=UTC))

    _, summary = await client.read(SUMMARY)
    _, entry = await client.read(WEB_METRICS)

    assert entry["timestamp"] == summary["node"]["cpu"]["time"] == "2026-08-12T09:15:00Z"
    (container,) = entry["containers"]
    assert container["usage"]["cpu"] == f"{summary['pods'][0]['cpu']['usageNanoCores']}n"


@pytest.mark.asyncio
async def test_metrics_api_may_not_be_served(client: Client) -> None:
    client.cluster.add_instance(WEB)
    client.cluster.remove_metrics_api()
    status, answer = await client.read(WEB_METRICS)
    assert (status, answer["message"]) == (404, "the server could not find the requested resource")


@pytest.mark.parametrize(
    ("token", "status", "reason"),
    [(None, 403, "Forbidden"), ("nobody", 401, "Unauthorized"), ("tenant", 403, "Forbidden")],
)
@pytest.mark.asyncio
async def test_an_unauthorized_user_is_refused(client: Client, token: str | None, status: int, reason: str) -> None:
    client.cluster.add_user("tenant", "tina", ["team-a"])
    code, answer = await client.read("/api/v1/nodes", token)
    assert (code, answer["reason"]) == (status, reason)


@pytest.mark.asyncio
async def test_a_rule_allows_what_it_names_and_no_more(client: Client) -> None:
    client.cluster.add_user("tenant", "tina", ["team-a"])
    client.cluster.grant(Rule("team-a", ["get"], [""], ["pods"], namespace="team-a"))
    client.cluster.add_instance(WEB)

    assert (await client.read("/api/v1/namespaces/team-a/pods/web", "tenant"))[0] == 200
    assert (await client.read("/api/v1/namespaces/team-a/pods", "tenant"))[0] == 403
    status, answer = await client.read("/api/v1/namespaces/default/pods/web", "tenant")
    assert status == 403
    assert answer["message"] == (
        'pods "web" is forbidden: User "tina" cannot get resource "pods" in API group "" in the namespace "default"'
    )


@pytest.mark.parametrize(
    ("path", "status"),
    [
        (SUMMARY, 200),
        (WEB_METRICS, 200),
        ("/api/v1/namespaces/gpustack-system/pods?watch=true&timeoutSeconds=0.01", 200),
        ("/api/v1/namespaces/team-a/pods?watch=true", 403),
        ("/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication", 200),
        (
            "/api/v1/namespaces/kube-system/configmaps"
            "?fieldSelector=metadata.name%3Dextension-apiserver-authentication",
            200,
        ),
        ("/api/v1/namespaces/kube-system/configmaps", 403),
        ("/api/v1/nodes", 403),
        ("/api/v1/namespaces/team-a/events", 403),
    ],
)
@pytest.mark.asyncio
async def test_the_worker_may_do_what_it_needs(client: Client, path: str, status: int) -> None:
    client.cluster.add_instance(WEB)
    async with client.get(path, WORKER_TOKEN) as answer:
        assert answer.status == status


@pytest.mark.asyncio
async def test_token_review(client: Client) -> None:
    client.cluster.add_user("tenant", "tina", ["team-a"], uid="u-1")
    path = "/apis/authentication.k8s.io/v1/tokenreviews"

    status, good = await client.post(path, {"spec": {"token": "tenant"}}, WORKER_TOKEN)
    _, bad = await client.post(path, {"spec": {"token": "nobody"}}, WORKER_TOKEN)

    assert status == 201
    assert good["status"]["user"] == {
        "username": "tina",
        "uid": "u-1",
        "groups": ["team-a", "system:authenticated"],
    }
    assert "authenticated" not in bad["status"]
    assert bad["status"]["error"] == "invalid bearer token"


@pytest.mark.parametrize(
    ("user", "groups", "subresource", "allowed"),
    [
        ("tina", ["team-a"], "metrics", True),
        ("tina", ["team-a"], "", False),
        ("tina", [], "metrics", False),
        ("root", ["system:masters"], "", True),
    ],
)
@pytest.mark.asyncio
async def test_subject_access_review(
    client: Client, user: str, groups: list[str], subresource: str, *, allowed: bool
) -> None:
    client.cluster.grant(Rule("team-a", ["get"], ["worker.gpustack.ai"], ["instances/metrics"], namespace="team-a"))
    asked = {
        "namespace": "team-a",
        "verb": "get",
        "group": "worker.gpustack.ai",
        "resource": "instances",
        "subresource": subresource,
        "name": "web",
    }

    _, answer = await client.post(
        "/apis/authorization.k8s.io/v1/subjectaccessreviews",
        {"spec": {"user": user, "groups": groups, "resourceAttributes": asked}},
        WORKER_TOKEN,
    )

    assert answer["status"]["allowed"] is allowed


@pytest.mark.asyncio
async def test_system_authenticated_is_not_added_to_a_review(client: Client) -> None:
    """The trap of aggregated discovery: the aggregator's own user comes without groups."""
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    asked = {"path": "/apis/worker.gpustack.ai/v1", "verb": "get"}
    _, without = await client.post(path, {"spec": {"user": "u", "nonResourceAttributes": asked}})
    _, with_group = await client.post(
        path, {"spec": {"user": "u", "groups": ["system:authenticated"], "nonResourceAttributes": asked}}
    )
    assert (without["status"]["allowed"], with_group["status"]["allowed"]) == (False, True)


@pytest.mark.asyncio
async def test_a_large_answer_is_compressed_where_accepted(client: Client) -> None:
    for number in range(100):
        client.cluster.add_instance(InstanceSpec("team-a", f"web-{number}", "node-a"))
    async with client.get(SUMMARY) as answer:
        assert answer.headers["Content-Encoding"] == "gzip"
        assert len((await answer.json())["pods"]) == 100
    async with client.get(SUMMARY, **{"Accept-Encoding": "identity"}) as answer:
        assert "Content-Encoding" not in answer.headers
