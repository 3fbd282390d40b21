"""What a request asks for."""

import pytest

from devicemanager.demo.cluster.request_info import RequestInfo, parse_request


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("GET /version", RequestInfo("get", "/version")),
        ("GET /apis/a.b/v1", RequestInfo("get", "/apis/a.b/v1")),
        ("GET /api/v1/nodes", RequestInfo("list", "/api/v1/nodes", "", "v1", resource="nodes")),
        (
            "GET /api/v1/nodes/n%2Fx/proxy/stats/summary",
            RequestInfo(
                "get",
                "/api/v1/nodes/n/x/proxy/stats/summary",
                "",
                "v1",
                resource="nodes",
                name="n/x",
                subresource="proxy",
                rest="stats/summary",
            ),
        ),
        (
            "GET /api/v1/namespaces/a",
            RequestInfo("get", "/api/v1/namespaces/a", "", "v1", resource="namespaces", name="a"),
        ),
        (
            "GET /apis/g/v1/namespaces/a/things/b/metrics",
            RequestInfo(
                "get", "/apis/g/v1/namespaces/a/things/b/metrics", "g", "v1", "a", "things", "b", "metrics"
            ),
        ),
        (
            "POST /apis/g/v1/reviews",
            RequestInfo("create", "/apis/g/v1/reviews", "g", "v1", resource="reviews"),
        ),
    ],
)
def test_paths(line: str, expected: RequestInfo) -> None:
    method, path = line.split()
    assert parse_request(method, path, {}) == expected


@pytest.mark.parametrize(
    ("query", "verb", "selected"),
    [
        ({"watch": "true"}, "watch", ""),
        ({"watch": "1", "fieldSelector": "metadata.name=b"}, "watch", "b"),
        ({"watch": "0"}, "list", ""),
        ({"fieldSelector": "spec.nodeName=n,metadata.name==b"}, "list", "b"),
        ({"fieldSelector": "metadata.name!=b"}, "list", ""),
    ],
)
def test_a_collection_is_listed_or_watched(query: dict[str, str], verb: str, selected: str) -> None:
    info = parse_request("GET", "/api/v1/pods", query)
    assert (info.verb, info.name, info.selected_name) == (verb, "", selected)


def test_targets_are_spelled_as_rules_spell_them() -> None:
    assert parse_request("GET", "/api/v1/nodes/n/proxy", {}).target == "nodes/proxy"
    assert parse_request("GET", "/apis/g/v1/things", {}).target == "things.g"
