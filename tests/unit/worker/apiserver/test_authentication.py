"""Identity without a network: the rules, each with what breaks it."""

import pytest
from multidict import CIMultiDict

from devicemanager.errors import FetchError
from devicemanager.model.usage import SourceState
from devicemanager.worker.apiserver.authentication import Authenticator, UnauthorizedError, common_name
from devicemanager.worker.apiserver.identity import ANONYMOUS, User, authenticated
from devicemanager.worker.apiserver.request_header import FrontProxyTrust
from devicemanager.worker.apiserver.reviews import TOKEN_REVIEWS, ReviewCache
from tests.timing import FakeClock
from tests.unit.worker.apiserver.api_server import FRONT_PROXY, MadeUpApi

TRUST = FrontProxyTrust(
    ca_pem="pem",
    allowed_names=(FRONT_PROXY,),
    username_headers=("X-Remote-User", "X-Other-User"),
    uid_headers=(),
    group_headers=("X-Remote-Group", "X-Other-Group"),
    extra_prefixes=("x-remote-extra-",),
)


def certificate(*names: str, not_after: str = "Jan  1 00:00:00 2030 GMT") -> dict[str, object]:
    return {"subject": tuple((("commonName", name),) for name in names), "notAfter": not_after}


async def identified(
    *headers: tuple[str, str],
    shown: dict[str, object] | None = None,
    trust: FrontProxyTrust | None = TRUST,
    api: MadeUpApi | None = None,
) -> User:
    clock = FakeClock()
    async with ReviewCache[bytes, User | str](clock) as tokens:
        authenticator = Authenticator(lambda: trust, api or MadeUpApi(), tokens, clock)
        return await authenticator.authenticate(CIMultiDict(headers), shown)


def test_common_names() -> None:
    assert common_name(certificate("a")) == "a"
    assert common_name(certificate()) is None
    assert common_name(certificate("a", "b")) is None
    assert common_name({}) is None
    assert common_name({"subject": ((("organizationName", "x"), ("commonName", "a")),)}) == "a"


@pytest.mark.asyncio
async def test_without_a_credential_or_with_an_empty_user_header_a_caller_is_anonymous() -> None:
    assert await identified() == ANONYMOUS
    assert await identified(("X-Remote-User", ""), shown=certificate(FRONT_PROXY)) == ANONYMOUS


@pytest.mark.asyncio
async def test_the_first_user_header_that_is_not_empty_names_the_user() -> None:
    user = await identified(
        ("X-Remote-User", ""),
        ("X-Other-User", "second"),
        ("X-Other-Group", "b"),
        ("X-Remote-Group", "a"),
        ("X-Remote-Uid", "not trusted: no header is configured"),
        shown=certificate(FRONT_PROXY),
    )
    assert user == User("second", "", ("a", "b", "system:authenticated"), ())


@pytest.mark.asyncio
async def test_no_names_allow_any_name_of_that_ca() -> None:
    anyone = FrontProxyTrust("pem", (), ("X-Remote-User",))
    assert (await identified(("X-Remote-User", "u"), shown=certificate("x"), trust=anyone)).name == "u"


@pytest.mark.asyncio
async def test_a_certificate_before_the_trust_is_known_is_refused() -> None:
    with pytest.raises(UnauthorizedError):
        await identified(("X-Remote-User", "u"), shown=certificate(FRONT_PROXY), trust=None)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "header", [("X-Remote-User", "u\udcff"), ("X-Remote-Group", "\udcff"), ("X-Remote-Extra-k", "\udcff")]
)
async def test_bytes_that_are_no_text_are_refused(header: tuple[str, str]) -> None:
    name = [] if header[0] == "X-Remote-User" else [("X-Remote-User", "u")]
    with pytest.raises(UnauthorizedError, match="UTF-8"):
        await identified(*name, header, shown=certificate(FRONT_PROXY))


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("header", "key"),
    [
        ("X-Remote-Extra-Scopes", "scopes"),
        ("x-remote-EXTRA-A%2fB", "a/b"),
        ("X-Remote-Extra-Bad%zz", "bad%zz"),
        ("X-Remote-Extra-Bad%f", "bad%f"),
        ("X-Remote-Extra-%ff", "%ff"),
        ("X-Remote-Extra-%C3%BC", "ü"),
    ],
)
async def test_extras_are_lower_cased_then_decoded_and_kept_raw_when_malformed(header: str, key: str) -> None:
    user = await identified(("X-Remote-User", "u"), (header, "v1"), (header, "v2"), shown=certificate(FRONT_PROXY))
    assert user.extra == ((key, ("v1", "v2")),)


@pytest.mark.asyncio
async def test_a_token_is_asked_about_once_in_ten_seconds_and_never_kept_as_it_is() -> None:
    api, clock = MadeUpApi(tokens={"good": {"username": "bot"}}), FakeClock()
    async with ReviewCache[bytes, User | str](clock) as tokens:
        authenticator = Authenticator(lambda: TRUST, api, tokens, clock)
        for token, works in (("good", True), ("bad", False)):
            headers = CIMultiDict([("Authorization", f"bearer  {token}")])
            for _ in range(3):
                if works:
                    assert (await authenticator.authenticate(headers, None)).name == "bot"
                else:
                    with pytest.raises(UnauthorizedError):
                        await authenticator.authenticate(headers, None)
        assert [spec["token"] for spec in api.specs(TOKEN_REVIEWS)] == ["good", "bad"]
        api.tokens.clear()
        clock.advance(10)
        with pytest.raises(UnauthorizedError):
            await authenticator.authenticate(CIMultiDict([("Authorization", "Bearer good")]), None)
        assert not any(b"good" in key for key in tokens._kept)


@pytest.mark.asyncio
async def test_a_token_that_cannot_be_checked_is_refused_and_asked_about_again() -> None:
    api, clock = MadeUpApi(tokens={"good": {"username": "bot"}}), FakeClock()
    api.failure = FetchError(SourceState.FORBIDDEN, "no", status=403)
    headers = CIMultiDict([("Authorization", "Bearer good")])
    async with ReviewCache[bytes, User | str](clock) as tokens:
        authenticator = Authenticator(lambda: TRUST, api, tokens, clock)
        with pytest.raises(UnauthorizedError):
            await authenticator.authenticate(headers, None)
        api.failure = None
        assert (await authenticator.authenticate(headers, None)).name == "bot"


@pytest.mark.asyncio
async def test_tokens_that_no_token_looks_like_are_not_even_asked_about() -> None:
    api = MadeUpApi()
    for value in ("", "Bearer", "Bearer ", "Basic abc", "Bearer a b", "Bearer ü", "Bearer a\tb", "Negotiate x"):
        with pytest.raises(UnauthorizedError):
            await identified(("Authorization", value), api=api)
    assert api.posts == []


def test_authenticated_callers_get_the_group_system_authenticated() -> None:
    assert authenticated(User("u")).groups == ("system:authenticated",)
    for already in (
        User("u", groups=("system:authenticated",)),
        User("u", groups=("system:unauthenticated",)),
        ANONYMOUS,
    ):
        assert authenticated(already) == already


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("shown", "trust"),
    [
        (certificate("kubelet"), TRUST),
        (certificate(), TRUST),
        (certificate(FRONT_PROXY, "kubelet"), TRUST),
        (certificate(FRONT_PROXY, not_after="Aug 12 09:15:05 2026 GMT"), TRUST),
        (certificate(FRONT_PROXY, not_after="never"), TRUST),
        (certificate(FRONT_PROXY), None),
    ],
    ids=["not allowed", "nameless", "two names", "ended", "of no end", "before the CA is known"],
)
async def test_a_certificate_that_is_not_the_front_proxys_is_refused_unless_a_token_says_who_it_is(
    shown: dict[str, object], trust: FrontProxyTrust | None
) -> None:
    api = MadeUpApi(tokens={"good": {"username": "bot"}})
    claim = ("X-Remote-User", "admin")

    found = await identified(claim, ("Authorization", "Bearer good"), shown=shown, trust=trust, api=api)

    assert found == authenticated(User("bot"))
    asked = len(api.posts)
    for headers in (
        [claim],
        [],
        [claim, ("Authorization", "Bearer bad")],
        [claim, ("Authorization", "Basic eDp5")],
    ):
        with pytest.raises(UnauthorizedError):
            await identified(*headers, shown=shown, trust=trust, api=api)
    assert len(api.posts) == asked + 1  # about the bad token


@pytest.mark.asyncio
async def test_the_front_proxys_own_mistakes_are_not_mended_by_a_token() -> None:
    api = MadeUpApi(tokens={"good": {"username": "bot"}})
    headers = [("X-Remote-User", "a"), ("X-Remote-User", "b"), ("Authorization", "Bearer good")]
    with pytest.raises(UnauthorizedError):
        await identified(*headers, shown=certificate(FRONT_PROXY), api=api)
    assert api.posts == []
