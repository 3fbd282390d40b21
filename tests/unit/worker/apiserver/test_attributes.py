"""What a request asks for, by the rules of the generic API server."""

import pytest

from devicemanager.worker.apiserver.attributes import Attributes, parse_attributes

PREFIX = "/apis/g.example/v1"


def resource(verb: str, path: str, **parts: object) -> Attributes:
    return Attributes(verb, path, "g.example", "v1", **parts)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("method", "path", "query", "expected"),
    [
        ("GET", "/apis", {}, Attributes("get", "/apis")),
        ("GET", "/apis/g.example", {}, Attributes("get", "/apis/g.example")),
        ("HEAD", PREFIX, {}, Attributes("head", PREFIX)),
        ("POST", "/metrics", {}, Attributes("post", "/metrics")),
        ("GET", "/", {}, Attributes("get", "/")),
        (
            "GET",
            f"{PREFIX}/things",
            {},
            resource("list", f"{PREFIX}/things", resource="things", is_collection=True),
        ),
        (
            "HEAD",
            f"{PREFIX}/namespaces/ns/things/x",
            {"watch": "true"},
            resource("get", f"{PREFIX}/namespaces/ns/things/x", namespace="ns", resource="things", name="x"),
        ),
        (
            "GET",
            f"{PREFIX}/namespaces/ns/things/x/sub",
            {},
            resource(
                "get",
                f"{PREFIX}/namespaces/ns/things/x/sub",
                namespace="ns",
                resource="things",
                name="x",
                subresource="sub",
            ),
        ),
        (
            "GET",
            f"{PREFIX}/namespaces/ns",
            {},
            resource("get", f"{PREFIX}/namespaces/ns", resource="namespaces", name="ns"),
        ),
        (
            "GET",
            f"{PREFIX}/things",
            {"fieldSelector": "metadata.name=x"},
            resource("list", f"{PREFIX}/things", resource="things", name="x", is_collection=True),
        ),
        (
            "GET",
            f"{PREFIX}/things",
            {"fieldSelector": "nonsense"},
            resource("list", f"{PREFIX}/things", resource="things", is_collection=True),
        ),
    ],
)
def test_requests(method: str, path: str, query: dict[str, str], expected: Attributes) -> None:
    assert parse_attributes(method, path, query) == expected


@pytest.mark.parametrize(
    ("watch", "verb"),
    [
        ("true", "watch"),
        ("1", "watch"),
        ("", "watch"),
        ("nonsense", "watch"),
        ("false", "list"),
        ("False", "list"),
        ("0", "list"),
    ],
)
def test_a_list_is_a_watch_when_it_says_so_in_whatever_words(watch: str, verb: str) -> None:
    assert parse_attributes("GET", f"{PREFIX}/things", {"watch": watch}).verb == verb


@pytest.mark.parametrize(
    ("method", "one", "many"),
    [
        ("POST", "create", "create"),
        ("PUT", "update", "update"),
        ("PATCH", "patch", "patch"),
        ("DELETE", "delete", "deletecollection"),
        ("OPTIONS", "", ""),
    ],
)
def test_writes(method: str, one: str, many: str) -> None:
    assert parse_attributes(method, f"{PREFIX}/namespaces/ns/things/x", {}).verb == one
    assert parse_attributes(method, f"{PREFIX}/namespaces/ns/things", {}).verb == many
