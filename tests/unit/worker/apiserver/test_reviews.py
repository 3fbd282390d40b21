"""The two reviews: what is asked, what is understood."""

from typing import Any

import pytest

from devicemanager.errors import DocumentError
from devicemanager.worker.apiserver import reviews
from devicemanager.worker.apiserver.attributes import Attributes
from devicemanager.worker.apiserver.identity import User


def test_an_access_review_of_a_resource_leaves_out_what_is_empty() -> None:
    user = User("viewer", groups=("dev",))
    attributes = Attributes("get", "/p", "g.example", "v1", "ns", "instances", "metrics", "web")
    assert reviews.access_review(user, attributes) == {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": "viewer",
            "groups": ["dev"],
            "resourceAttributes": {
                "namespace": "ns",
                "verb": "get",
                "group": "g.example",
                "version": "v1",
                "resource": "instances",
                "subresource": "metrics",
                "name": "web",
            },
        },
    }
    everywhere = Attributes("list", "/p", "g.example", "v1", resource="instancemetrics", is_collection=True)
    spec: Any = reviews.access_review(User("viewer", "u-1", (), (("k", ("v",)),)), everywhere)["spec"]
    assert set(spec["resourceAttributes"]) == {"verb", "group", "version", "resource"}
    assert (spec["uid"], spec["extra"]) == ("u-1", {"k": ["v"]})


def test_an_access_review_of_a_path() -> None:
    spec: Any = reviews.access_review(User("viewer"), Attributes("get", "/apis"))["spec"]
    assert spec == {"user": "viewer", "groups": [], "nonResourceAttributes": {"path": "/apis", "verb": "get"}}


def test_a_token_review_as_the_real_one_answers() -> None:
    good = {"authenticated": True, "user": {"username": "bot", "uid": "u", "groups": ["a"], "extra": {"k": ["v"]}}}
    assert reviews.reviewed_user(good) == User("bot", "u", ("a",), (("k", ("v",)),))
    assert reviews.reviewed_user({"user": {}, "error": "invalid bearer token"}) is None
    assert reviews.reviewed_user({"authenticated": False, "user": {"username": "bot"}}) is None
    assert reviews.reviewed_user({"authenticated": "true", "user": {"username": "bot"}}) is None


@pytest.mark.parametrize(
    "user",
    [
        None,
        {},
        {"username": ""},
        {"username": 1},
        {"username": "x", "groups": "system:masters"},
        {"username": "x", "groups": [1]},
        {"username": "x", "uid": 1},
        {"username": "x", "extra": []},
        {"username": "x", "extra": {"k": "v"}},
    ],
)
def test_a_review_that_names_no_user_is_refused(user: object) -> None:
    with pytest.raises(DocumentError):
        reviews.reviewed_user({"authenticated": True, "user": user})


class Scripted:
    """Answers with the same bytes, and remembers the deadlines it was given."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.deadlines: list[float] = []

    async def post(self, path: str, body: bytes, *, deadline_s: float) -> bytes:
        self.deadlines.append(deadline_s)
        return self.answer


@pytest.mark.asyncio
async def test_one_question_may_take_ten_seconds() -> None:
    api = Scripted(b'{"status":{"allowed":true}}')
    assert await reviews.ask(api, "/p", {}) == {"allowed": True}
    assert api.deadlines == [10.0]


@pytest.mark.asyncio
@pytest.mark.parametrize("answer", [b"", b"<html>", b"[]", b"{}", b'{"status":null}', b"[" * 100_000, b'"x"'])
async def test_what_is_no_review_is_not_understood(answer: bytes) -> None:
    with pytest.raises(DocumentError):
        await reviews.ask(Scripted(answer), "/p", {})
