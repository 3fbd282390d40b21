"""Lists in pages."""

import base64
import json
from dataclasses import dataclass

import pytest

from devicemanager.worker.apiserver.paging import Page, PageError, Position, parse_page


@dataclass(frozen=True)
class Item:
    namespace: str
    name: str


ITEMS = [Item("b", "x"), Item("a", "z"), Item("a", "y"), Item("b", "a")]
ORDERED = [Item("a", "y"), Item("a", "z"), Item("b", "a"), Item("b", "x")]


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5])
def test_all_pages_together_are_the_list(limit: int) -> None:
    token, found = "", []
    for _ in range(10):
        page, position, remaining = parse_page(str(limit), token).cut(ITEMS)
        found += page
        assert remaining == len(ORDERED) - len(found)
        if position is None:
            break
        token = position.encode()
    assert found == ORDERED


def test_without_a_limit_there_is_one_page() -> None:
    for limit in ("", "0", "-5"):
        assert parse_page(limit, "").cut(ITEMS) == (ORDERED, None, 0)


def test_what_comes_and_goes_between_pages_shifts_nothing() -> None:
    page, position, _ = Page(2).cut(ITEMS)
    assert page == ORDERED[:2]
    assert position is not None
    changed = [item for item in ITEMS if item != Item("a", "z")] + [Item("a", "a")]
    assert Page(2, position).cut(changed) == ([Item("b", "a"), Item("b", "x")], None, 0)


@pytest.mark.parametrize("limit", ["abc", "1.5", "", "1e3", "٣", "9" * 30, "--1"])
def test_limits_that_are_none(limit: str) -> None:
    if not limit:
        assert parse_page(limit, "") == Page()
        return
    with pytest.raises(PageError, match="invalid syntax"):
        parse_page(limit, "")


def encoded(document: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(document).encode()).decode()


@pytest.mark.parametrize(
    "token",
    [
        "x",
        "not base64!",
        "ü",
        encoded({"v": 2, "after": ["a", "b"]}),
        encoded({"v": 1, "after": ["a"]}),
        encoded({"v": 1, "after": [1, 2]}),
        encoded({"rv": 1, "start": "/x"}),
        encoded([]),
        "A" * 5000,
        pytest.param(base64.urlsafe_b64encode(b"[" * 1500).decode(), id="nested"),
    ],
)
def test_continue_tokens_of_other_servers_are_refused(token: str) -> None:
    with pytest.raises(PageError, match="continue key is not valid"):
        parse_page("", token)


def test_a_token_says_nothing_but_where() -> None:
    token = Position("team-a", "web").encode()
    assert parse_page("", token).after == Position("team-a", "web")
    assert "=" not in token


def test_a_continue_token_that_is_too_long_is_refused() -> None:
    with pytest.raises(PageError, match="it is too long"):
        parse_page("", "A" * 4096)
