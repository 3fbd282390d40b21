"""The objects of the stand-in cluster by resource, with resource versions and the history for watches."""

import asyncio
import copy
from bisect import bisect_right
from collections.abc import AsyncGenerator, Callable, Iterable
from dataclasses import dataclass
from typing import Final

from devicemanager.demo.cluster.selectors import JsonObject, Predicate

HISTORY_LIMIT: Final = 20_000
"""Changes kept for later watches; older versions are answered with 410, as after etcd's compaction."""


class ExpiredError(Exception):
    """A resource version older than the history."""


@dataclass(frozen=True, slots=True)
class Change:
    """One object before and after; None where it did not exist."""

    version: int
    resource: str
    old: JsonObject | None
    new: JsonObject | None


class Store:
    """Objects of all resources. Stored objects are never edited in place, so a reader may keep them."""

    def __init__(self) -> None:
        self.version = 1
        self._objects: dict[str, dict[tuple[str, str], JsonObject]] = {}
        self._history: list[Change] = []
        self._oldest = 1
        self._changed = asyncio.Event()
        self._dropped = asyncio.Event()

    def put(self, resource: str, item: JsonObject) -> JsonObject:
        """Create or replace, by namespace and name; returns the object with its new resource version."""
        self.version += 1
        stored = {**item, "metadata": {**item["metadata"], "resourceVersion": str(self.version)}}
        objects = self._objects.setdefault(resource, {})
        key = _key(stored)
        self._record(resource, objects.get(key), stored)
        objects[key] = stored
        return stored

    def edit(self, resource: str, namespace: str, name: str, change: Callable[[JsonObject], None]) -> JsonObject:
        """Change a copy of an object and put it back.

        Raises:
            KeyError: There is no such object.
        """
        edited = copy.deepcopy(self._objects[resource][namespace, name])
        change(edited)
        return self.put(resource, edited)

    def delete(self, resource: str, namespace: str, name: str) -> None:
        """Remove an object.

        Raises:
            KeyError: There is no such object.
        """
        old = self._objects[resource].pop((namespace, name))
        self.version += 1
        self._record(resource, {**old, "metadata": {**old["metadata"], "resourceVersion": str(self.version)}}, None)

    def get(self, resource: str, namespace: str, name: str) -> JsonObject | None:
        """The object, or None."""
        return self._objects.get(resource, {}).get((namespace, name))

    def select(self, resource: str, namespace: str = "", *predicates: Predicate) -> list[JsonObject]:
        """Objects of a resource in order of namespace and name; an empty namespace means all."""
        found = sorted(self._objects.get(resource, {}).items())
        return [
            item
            for (item_namespace, _), item in found
            if namespace in {"", item_namespace} and all(matches(item) for matches in predicates)
        ]

    def forget_history(self) -> None:
        """Make every earlier resource version too old to watch from."""
        self._history.clear()
        self._oldest = self.version

    def drop_watches(self) -> None:
        """End every watch now open, as a restarting API server does."""
        self._dropped.set()
        self._dropped = asyncio.Event()
        self._wake()

    async def changes(self, resource: str, since: int) -> AsyncGenerator[Change, None]:
        """Every later change of a resource, for ever, until watches are dropped.

        Raises:
            ExpiredError: ``since`` is older than the history.
        """
        dropped = self._dropped
        while not dropped.is_set():
            if since < self._oldest:
                raise ExpiredError(f"too old resource version: {since} ({self._oldest})")
            changed = self._changed
            start = bisect_right(self._history, since, key=lambda change: change.version)
            for change in self._history[start:]:
                since = change.version
                if change.resource == resource:
                    yield change
            if changed is self._changed:
                await changed.wait()

    def _record(self, resource: str, old: JsonObject | None, new: JsonObject | None) -> None:
        self._history.append(Change(self.version, resource, old, new))
        if len(self._history) > 2 * HISTORY_LIMIT:
            del self._history[:HISTORY_LIMIT]
            self._oldest = self._history[0].version - 1
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def watch_event(change: Change, predicates: Iterable[Predicate]) -> tuple[str, JsonObject] | None:
    """A change as a watcher with a selector sees it: leaving the selection is a deletion, entering an addition."""
    predicates = tuple(predicates)
    before = change.old if change.old is not None and all(p(change.old) for p in predicates) else None
    after = change.new if change.new is not None and all(p(change.new) for p in predicates) else None
    match before, after:
        case None, None:
            return None
        case None, dict():
            return "ADDED", after
        case dict(), None:
            left = change.new if change.new is not None else before
            metadata = {**before["metadata"], "resourceVersion": left["metadata"]["resourceVersion"]}
            return "DELETED", {**before, "metadata": metadata}
        case _:
            return ("MODIFIED", after) if after is not None else None


def _key(item: JsonObject) -> tuple[str, str]:
    metadata = item["metadata"]
    return metadata.get("namespace", ""), metadata["name"]
