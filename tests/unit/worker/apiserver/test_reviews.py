"""The two reviews: what is asked, what is understood."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from devicemanager.errors import DocumentError
from devicemanager.transport.failures import attempt
from devicemanager.worker.apiserver import reviews
from devicemanager.worker.apiserver.attributes import Attributes
from devicemanager.worker.apiserver.identity import User
from devicemanager.worker.apiserver.reviews import ReviewCache
from devicemanager.worker.single_flight import OverloadedError
from tests.timing import FakeClock


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


class Held:
    """Reviews that are not answered before the test says so."""

    def __init__(self, cache: ReviewCache[str, str], tasks: asyncio.TaskGroup) -> None:
        self._cache, self._tasks = cache, tasks
        self._answered = asyncio.Event()
        self.asked: list[str] = []

    async def begin(self, key: str, peer: str | None) -> bool:
        """Ask for a review; whether it is under way."""

        async def ask() -> str:
            self.asked.append(key)
            await self._answered.wait()
            return key

        review = self._tasks.create_task(attempt(self._cache.review(key, ask, peer=peer)))
        for _ in range(3):
            await asyncio.sleep(0)
        return not (review.done() and isinstance(review.result(), OverloadedError))

    async def answer(self) -> None:
        """Answer all that are under way."""
        self._answered.set()
        for _ in range(5):
            await asyncio.sleep(0)
        self._answered.clear()


@pytest_asyncio.fixture
async def held() -> AsyncIterator[Held]:
    """Four reviews at once for each kind of caller, three for an address."""
    cache: ReviewCache[str, str] = ReviewCache(FakeClock(), in_flight=4, per_peer=3)
    async with cache, asyncio.TaskGroup() as tasks:
        reviews_held = Held(cache, tasks)
        yield reviews_held
        await reviews_held.answer()


@pytest.mark.asyncio
async def test_a_flood_from_one_address_costs_no_other_address_its_review(held: Held) -> None:
    assert [await held.begin(f"made up {number}", "stranger") for number in range(5)] == [True] * 3 + [False] * 2
    assert await held.begin("honest", "10.0.0.1")
    assert not await held.begin("one more", "10.0.0.2")


@pytest.mark.asyncio
async def test_callers_behind_the_front_proxy_have_reviews_of_their_own(held: Held) -> None:
    for number in range(5):
        await held.begin(f"made up {number}", f"stranger-{number}")
    assert [await held.begin(f"user {number}", None) for number in range(5)] == [True] * 4 + [False]


@pytest.mark.asyncio
async def test_whoever_asks_what_is_under_way_or_remembered_is_not_counted(held: Held) -> None:
    for number in range(3):
        await held.begin(f"made up {number}", "stranger")
    assert await held.begin("made up 0", "stranger")
    await held.answer()
    assert await held.begin("made up 0", "stranger")
    assert held.asked == ["made up 0", "made up 1", "made up 2"]


@pytest.mark.asyncio
async def test_an_answer_makes_room_for_the_next_review(held: Held) -> None:
    for turn in range(3):
        for peer in ("stranger", None):
            assert all([await held.begin(f"{turn} {peer} {number}", peer) for number in range(3)])
        await held.answer()
