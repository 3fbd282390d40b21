"""Decisions, and what they are worth when they cannot be had."""

import json

import pytest

from devicemanager.errors import FetchError
from devicemanager.model.usage import SourceState
from devicemanager.worker.apiserver.attributes import Attributes, parse_attributes
from devicemanager.worker.apiserver.authorization import Authorizer, Decision, ReviewFailedError
from devicemanager.worker.apiserver.identity import ANONYMOUS, User
from devicemanager.worker.apiserver.reviews import ReviewCache
from tests.timing import FakeClock
from tests.unit.worker.apiserver.api_server import MadeUpApi

pytestmark = pytest.mark.asyncio

READ = parse_attributes("GET", "/apis/g.example/v1/namespaces/ns/instances/web/metrics", {})
VIEWER = User("viewer", groups=("system:authenticated",))


async def decided(api: MadeUpApi, user: User = VIEWER, attributes: Attributes = READ) -> Decision:
    async with ReviewCache[tuple[User, Attributes], Decision](FakeClock()) as access_reviews:
        return await Authorizer(api, access_reviews).decide(user, attributes)


@pytest.mark.parametrize(
    ("status", "allowed"),
    [
        ({"allowed": True}, True),
        ({"allowed": False}, False),
        ({}, False),
        ({"allowed": True, "denied": True}, False),
        ({"denied": True}, False),
    ],
)
async def test_answers(status: dict[str, object], allowed: bool) -> None:
    api = MadeUpApi(answer=json.dumps({"status": {**status, "reason": "because\nof this"}}).encode())
    assert await decided(api) == Decision(allowed, "because of this")


@pytest.mark.parametrize(
    "answer", [b"", b"{}", b'{"status":{"allowed":"true"}}', b'{"status":{"allowed":1}}', b"null"]
)
async def test_an_invalid_answer_allows_nothing(answer: bytes) -> None:
    with pytest.raises(ReviewFailedError):
        await decided(MadeUpApi(answer=answer))


async def test_no_answer_allows_nothing() -> None:
    with pytest.raises(ReviewFailedError):
        await decided(MadeUpApi(failure=FetchError(SourceState.FORBIDDEN, "no", status=403)))


async def test_exemptions_are_exact() -> None:
    api = MadeUpApi(allows=lambda _: False)
    assert (await decided(api, User("x", groups=("system:masters",)))).allowed
    for path in ("/healthz", "/livez", "/readyz"):
        assert (await decided(api, ANONYMOUS, Attributes("get", path))).allowed
    assert api.posts == []
    for path in ("/readyz/ping", "/readyz/", "/metrics", "/apis", "/version", "/"):
        assert not (await decided(api, ANONYMOUS, Attributes("get", path))).allowed
    assert not (await decided(api, User("system:masters"))).allowed


async def test_a_long_question_is_asked_each_time() -> None:
    api = MadeUpApi()
    long = User("viewer", groups=tuple(f"group-{number:04d}" for number in range(1000)))
    async with ReviewCache[tuple[User, Attributes], Decision](FakeClock()) as access_reviews:
        authorizer = Authorizer(api, access_reviews)
        for user, questions in ((VIEWER, 1), (long, 3)):
            for _ in range(2):
                await authorizer.decide(user, READ)
            assert len(api.posts) == questions
        assert len(access_reviews) == 1


async def test_every_part_of_user_and_request_counts() -> None:
    api = MadeUpApi()
    async with ReviewCache[tuple[User, Attributes], Decision](FakeClock()) as access_reviews:
        authorizer = Authorizer(api, access_reviews)
        for user in (VIEWER, User("other"), User("viewer", "uid"), User("viewer", extra=(("k", ("v",)),))):
            await authorizer.decide(user, READ)
        for path in (
            "namespaces/ns2/instances/web/metrics",
            "namespaces/ns/instances/db/metrics",
            "instancemetrics",
        ):
            await authorizer.decide(VIEWER, parse_attributes("GET", f"/apis/g.example/v1/{path}", {}))
    assert len(api.posts) == 7


async def test_probing_tells_whether_reviews_can_be_had_whatever_they_say() -> None:
    async with ReviewCache[tuple[User, Attributes], Decision](FakeClock()) as access_reviews:
        api = MadeUpApi(allows=lambda _: False, failure=FetchError(SourceState.FORBIDDEN, "no", status=403))
        authorizer = Authorizer(api, access_reviews)
        with pytest.raises(ReviewFailedError):
            await authorizer.probe()
        assert not authorizer.reached
        api.failure = None
        await authorizer.probe()
        assert authorizer.reached
