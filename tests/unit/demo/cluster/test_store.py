"""Objects, versions and changes."""

from contextlib import aclosing

import pytest

from devicemanager.demo.cluster.selectors import JsonObject, Predicate
from devicemanager.demo.cluster.store import HISTORY_LIMIT, Change, ExpiredError, Store, watch_event


def thing(name: str, color: str = "red") -> JsonObject:
    return {"metadata": {"namespace": "a", "name": name}, "color": color}


def test_versions_grow_and_what_was_read_stays_as_it_was() -> None:
    store = Store()
    first = store.put("things", thing("x"))
    second = store.edit("things", "a", "x", lambda item: item.update(color="blue"))

    assert int(first["metadata"]["resourceVersion"]) < int(second["metadata"]["resourceVersion"])
    assert (first["color"], second["color"]) == ("red", "blue")
    assert store.get("things", "a", "x") == second


def test_what_is_deleted_is_gone() -> None:
    store = Store()
    store.put("things", thing("x"))
    store.delete("things", "a", "x")
    assert store.get("things", "a", "x") is None
    assert store.select("things") == []
    with pytest.raises(KeyError):
        store.delete("things", "a", "x")


def test_lists_are_in_order_and_of_one_namespace() -> None:
    store = Store()
    for name in ("b", "a"):
        store.put("things", thing(name))
    store.put("things", {"metadata": {"namespace": "z", "name": "a"}})
    assert [item["metadata"]["name"] for item in store.select("things", "a")] == ["a", "b"]
    assert len(store.select("things")) == 3


@pytest.mark.asyncio
async def test_changes_come_in_order_of_one_resource_only() -> None:
    store = Store()
    since = store.version
    store.put("things", thing("x"))
    store.put("others", thing("y"))
    store.delete("things", "a", "x")
    async with aclosing(store.changes("things", since)) as changes:
        first, second = await anext(changes), await anext(changes)
    assert (first.old, first.new is not None) == (None, True)
    assert (second.old, second.new) == (store_copy(first), None)


def store_copy(change: Change) -> JsonObject:
    """A deletion carries the object with the version of the deletion."""
    assert change.new is not None
    return {**change.new, "metadata": {**change.new["metadata"], "resourceVersion": str(change.version + 2)}}


@pytest.mark.asyncio
async def test_a_version_older_than_the_history_is_refused() -> None:
    store = Store()
    store.put("things", thing("x"))
    store.forget_history()
    async with aclosing(store.changes("things", 1)) as changes:
        with pytest.raises(ExpiredError):
            await anext(changes)


@pytest.mark.asyncio
async def test_the_history_is_bounded() -> None:
    store = Store()
    for _ in range(2 * HISTORY_LIMIT + 10):
        store.put("things", thing("x"))
    async with aclosing(store.changes("things", 1)) as changes:
        with pytest.raises(ExpiredError):
            await anext(changes)
    async with aclosing(store.changes("things", store.version - 5)) as changes:
        assert (await anext(changes)).version == store.version - 4


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (None, "red", "ADDED"),
        ("red", "red", "MODIFIED"),
        ("red", "blue", "DELETED"),
        ("blue", "red", "ADDED"),
        ("red", None, "DELETED"),
        ("blue", "blue", None),
        ("blue", None, None),
    ],
)
def test_a_watcher_sees_its_selection(old: str | None, new: str | None, expected: str | None) -> None:
    def versioned(color: str | None, version: str) -> JsonObject | None:
        return None if color is None else {"metadata": {"name": "x", "resourceVersion": version}, "color": color}

    is_red: Predicate = lambda item: item["color"] == "red"  # noqa: E731 - a predicate is all it is
    event = watch_event(Change(2, "things", versioned(old, "1"), versioned(new, "2")), [is_red])
    assert (event[0] if event else None) == expected
