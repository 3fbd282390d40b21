"""A list in pages: to its end, and no further than it makes sense."""

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from structlog.testing import capture_logs
from typing_extensions import override

from devicemanager.errors import DocumentError, FetchError
from devicemanager.model.usage import SourceState
from devicemanager.worker import pages
from devicemanager.worker.pages import Lister
from tests.timing import LoopClock
from tests.unit.worker.scripted import ScriptedCluster

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]

Page = tuple[list[Any], str]
"""Objects, and the token of the page that follows."""


class PagedCluster(ScriptedCluster):
    """Answers each request with what a function makes of the token."""

    def __init__(self, page: Callable[[str], Page]) -> None:
        super().__init__(LoopClock())
        self.page = page
        self.tokens: list[str] = []

    @override
    async def get(self, path: str, params: Mapping[str, str] | None = None, **_: Any) -> bytes:
        self.tokens.append((params or {}).get("continue", ""))
        await asyncio.sleep(0)
        items, following = self.page(self.tokens[-1])
        metadata = {"resourceVersion": "10", "continue": following}
        return json.dumps({"metadata": metadata, "items": items}).encode()


def numbered(count: int, size: int) -> Callable[[str], Page]:
    """That many objects in pages of a size."""

    def page(token: str) -> Page:
        first = int(token or 0)
        following = first + size
        return list(range(first, min(following, count))), str(following) if following < count else ""

    return page


async def test_pages_are_listed_to_the_end() -> None:
    cluster = PagedCluster(numbered(5, 2))

    listing = await Lister(cluster).list("/things", json.loads)

    assert (listing.items, listing.resource_version, listing.cut) == ((0, 1, 2, 3, 4), "10", None)
    assert cluster.tokens == ["", "2", "4"]


async def test_a_page_without_objects_is_not_the_end() -> None:
    answers = {"": ([1], "a"), "a": ([], "b"), "b": ([2], "")}

    listing = await Lister(PagedCluster(answers.__getitem__)).list("/things", json.loads)

    assert (listing.items, listing.cut) == ((1, 2), None)


@pytest.mark.parametrize(
    ("page", "requests"),
    [
        (lambda token: ([1], "again"), ["", "again"]),
        (lambda token: ([1], {"": "a", "a": "b", "b": "a"}[token]), ["", "a", "b"]),
    ],
    ids=["the same", "one before"],
)
async def test_a_list_that_comes_back_to_a_page_ends_there_and_says_so(
    page: Callable[[str], Page], requests: list[str]
) -> None:
    cluster = PagedCluster(page)
    with capture_logs() as logs:
        listing = await Lister(cluster).list("/things", json.loads)

    assert cluster.tokens == requests
    assert listing.items == (1,) * len(requests)
    assert listing.cut == "it goes on with a page that was read before"
    assert [(line["event"], line["path"], line["reason"]) for line in logs] == [
        ("list_cut_short", "/things", listing.cut)
    ]


@pytest.mark.parametrize("items", [[], [1]], ids=["empty pages", "one object each"])
async def test_a_list_of_ever_new_pages_ends(items: list[int]) -> None:
    cluster = PagedCluster(lambda token: (items, str(int(token or 0) + 1)))

    listing = await Lister(cluster).list("/things", json.loads, deadline_s=5)

    assert len(cluster.tokens) == pages.PAGES_LIMIT == 400
    assert listing.cut == "more than 400 pages"


@pytest.mark.parametrize(
    ("count", "cut"), [(3, None), (4, None), (5, "more than 4 objects"), (9, "more than 4 objects")]
)
async def test_too_long_a_list_is_cut_and_says_so(
    monkeypatch: pytest.MonkeyPatch, count: int, cut: str | None
) -> None:
    monkeypatch.setattr(pages, "LIST_LIMIT_ITEMS", 4)
    cluster = PagedCluster(numbered(count, 2))

    listing = await Lister(cluster).list("/things", json.loads)

    assert (listing.items, listing.cut) == (tuple(range(min(count, 4))), cut)
    assert len(cluster.tokens) == 2


async def test_objects_that_cannot_be_read_cost_themselves_and_one_line() -> None:
    def read(item: bytes) -> int:
        if int(item) % 2:
            raise DocumentError("odd")
        return int(item)

    with capture_logs() as logs:
        listing = await Lister(PagedCluster(numbered(100, 10)), LoopClock()).list("/things", read)

    assert len(listing.items) == 50
    assert [(line["event"], line["reason"]) for line in logs] == [("listed_object_unreadable", "odd")]


async def test_a_body_that_is_no_list_is_invalid() -> None:
    class Page(PagedCluster):
        @override
        async def get(self, path: str, params: Mapping[str, str] | None = None, **_: Any) -> bytes:
            return b"<html>"

    with pytest.raises(FetchError) as caught:
        await Lister(Page(numbered(1, 1))).list("/things", bytes)

    assert caught.value.state is SourceState.INVALID


async def test_a_list_takes_no_longer_than_its_time() -> None:
    class Slow(PagedCluster):
        @override
        async def get(self, path: str, params: Mapping[str, str] | None = None, **rest: Any) -> bytes:
            await asyncio.sleep(2)
            return await super().get(path, params, **rest)

    with pytest.raises(FetchError) as caught:
        await Lister(Slow(numbered(10, 1))).list("/things", bytes, deadline_s=5)

    assert caught.value.state is SourceState.TIMEOUT
    assert asyncio.get_running_loop().time() == pytest.approx(5)
