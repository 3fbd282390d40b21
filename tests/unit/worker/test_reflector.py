"""A copy kept by list and watch, against a scripted API server in virtual time."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest
import pytest_asyncio
from structlog.testing import capture_logs
from typing_extensions import override

from devicemanager.errors import DocumentError, FetchError
from devicemanager.model.usage import SourceState
from devicemanager.transport.messages import Received
from devicemanager.worker import reflector as reflector_module
from devicemanager.worker.cluster import BODY_LIMIT_BYTES, Cluster
from devicemanager.worker.reflector import Reflector
from devicemanager.worker.watch_stream import WatchEvent

UNREACHABLE = FetchError(SourceState.UNREACHABLE, "cannot connect")
REFUSED = FetchError(SourceState.FORBIDDEN, "watch is forbidden", status=403)
"""As the first of a watch: it is not even opened."""
GONE = FetchError(SourceState.INVALID, "too old resource version", status=410)


def thing(uid: str, version: int = 1, value: str = "x") -> bytes:
    return json.dumps({"metadata": {"uid": uid, "resourceVersion": str(version)}, "value": value}).encode()


class ScriptedCluster(Cluster):
    """Lists what it holds, and plays watches from a script; an exhausted script leaves the last watch open."""

    def __init__(self) -> None:
        self.pages: list[list[bytes]] = [[]]
        self.version = 10
        self.failures: list[FetchError] = []
        self.watches: list[Sequence[WatchEvent | FetchError | float]] = []
        self.lists = 0
        self.watched_from: list[tuple[float, str]] = []
        self.idle = asyncio.Event()

    @override
    async def get(
        self,
        path: str,
        params: Mapping[str, str] | None = None,
        *,
        deadline_s: float = 10.0,
        limit_bytes: int = BODY_LIMIT_BYTES,
    ) -> bytes:
        params = params or {}
        if self.failures:
            raise self.failures.pop(0)
        number = int(params.get("continue", "0"))
        self.lists += not number
        more = str(number + 1) if number + 1 < len(self.pages) else ""
        document: dict[str, Any] = {"metadata": {"resourceVersion": str(self.version), "continue": more}}
        items = b",".join(self.pages[number])
        return json.dumps(document).encode()[:-1] + b',"items":[' + items + b"]}"

    @override
    @asynccontextmanager
    async def watch(
        self, path: str, params: Mapping[str, str] | None = None, *, resource_version: str
    ) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        self.watched_from.append((asyncio.get_running_loop().time(), resource_version))
        script = self.watches.pop(0) if self.watches else None
        if script and script[0] is REFUSED:
            raise REFUSED
        async with aclosing(self._events(script)) as events:
            yield events

    async def _events(
        self, script: "Sequence[WatchEvent | FetchError | float] | None"
    ) -> AsyncGenerator[WatchEvent, None]:
        if script is None:
            self.idle.set()
            await asyncio.Event().wait()
        for event in script or ():
            if isinstance(event, FetchError):
                raise event
            if isinstance(event, float):  # seconds in which nothing happens
                await asyncio.sleep(event)
            else:
                yield event

    @override
    async def fetch(self, *args: Any, **kwargs: Any) -> Received:
        raise NotImplementedError

    @override
    async def post(self, path: str, body: bytes, *, deadline_s: float = 10.0) -> bytes:
        raise NotImplementedError


def describe(item: bytes) -> str | None:
    value = json.loads(item)["value"]
    if value == "bad":
        raise DocumentError("a bad one")
    return str(value) if value != "ignored" else None


@pytest.fixture
def scripted() -> ScriptedCluster:
    return ScriptedCluster()


@pytest_asyncio.fixture
async def reflector(scripted: ScriptedCluster) -> AsyncIterator[Reflector[str]]:
    yield Reflector(
        scripted, "/things", describe, params={"labelSelector": "a=b"}, name="things", jitter=lambda: 0.5
    )


async def follow(reflector: Reflector[str], scripted: ScriptedCluster) -> None:
    """Runs until the script is exhausted."""
    async with asyncio.timeout(1000), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(reflector.run())
        await scripted.idle.wait()
        running.cancel()


pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]


async def test_changes_are_applied(reflector: Reflector[str], scripted: ScriptedCluster) -> None:
    scripted.pages = [[thing("a"), thing("b"), thing("c", value="ignored"), thing("d", value="bad")]]
    scripted.watches = [
        [
            WatchEvent("ADDED", thing("e", 11)),
            WatchEvent("MODIFIED", thing("a", 12, "y")),
            WatchEvent("DELETED", thing("b", 13)),
            WatchEvent("MODIFIED", thing("e", 14, "ignored")),
            WatchEvent("MODIFIED", thing("c", 15, "z")),
        ]
    ]

    await follow(reflector, scripted)

    assert reflector.items == {"a": "y", "c": "z"}
    assert reflector.synced
    assert reflector.problem is None


async def test_a_watch_goes_on_where_the_last_one_ended(
    reflector: Reflector[str], scripted: ScriptedCluster
) -> None:
    scripted.watches = [
        [WatchEvent("ADDED", thing("a", 11)), WatchEvent("BOOKMARK", thing("", 40))],
        [],
    ]

    await follow(reflector, scripted)

    assert [version for _, version in scripted.watched_from] == ["10", "40", "40"]
    assert reflector.items == {"a": "x"}
    assert scripted.lists == 1


@pytest.mark.parametrize("gone", [GONE])
async def test_a_version_too_old_is_listed_again(
    reflector: Reflector[str], scripted: ScriptedCluster, gone: FetchError
) -> None:
    scripted.pages = [[thing("a")]]
    scripted.watches = [[WatchEvent("ADDED", thing("b", 11)), gone]]

    await follow(reflector, scripted)

    assert scripted.lists == 2
    assert reflector.items == {"a": "x"}  # b went while nobody watched
    assert reflector.problem is None


async def test_an_outage_leaves_the_copy_and_is_retried_ever_more_slowly(
    reflector: Reflector[str], scripted: ScriptedCluster
) -> None:
    scripted.pages = [[thing("a")]]
    scripted.watches = [[UNREACHABLE] for _ in range(9)]

    await follow(reflector, scripted)

    assert reflector.items == {"a": "x"}
    starts = [at for at, _ in scripted.watched_from]
    pauses = [later - earlier for earlier, later in pairwise(starts)]
    assert pauses == [1, 2, 4, 8, 15, 15, 15, 15, 15]


async def test_waiting_for_the_first_list_ends_with_its_failure(
    reflector: Reflector[str], scripted: ScriptedCluster
) -> None:
    scripted.failures = [FetchError(SourceState.FORBIDDEN, "pods is forbidden", status=403)]
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(reflector.run())
        await reflector.settled()
        assert not reflector.synced
        assert reflector.problem is not None
        assert reflector.problem.state is SourceState.FORBIDDEN
        await scripted.idle.wait()
        assert reflector.synced
        assert reflector.problem is None
        running.cancel()


async def test_the_copy_is_bounded(
    reflector: Reflector[str], scripted: ScriptedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reflector_module, "LIST_LIMIT_ITEMS", 2)
    scripted.watches = [[WatchEvent("ADDED", thing(str(number), 11 + number)) for number in range(5)]]

    with capture_logs() as logs:
        await follow(reflector, scripted)

    assert set(reflector.items) == {"0", "1"}
    assert [(line["event"], line["reason"]) for line in logs] == [
        ("watched_collection_cut_short", "more than 2 objects")
    ]


async def test_an_event_that_is_no_object_starts_the_watch_again(
    reflector: Reflector[str], scripted: ScriptedCluster
) -> None:
    scripted.watches = [[WatchEvent("ADDED", b"7"), WatchEvent("ADDED", thing("a"))]]

    await follow(reflector, scripted)

    assert len(scripted.watched_from) == 2
    assert reflector.items == {}


async def test_recovery_is_noted_when_the_watch_is_open_and_not_before(
    reflector: Reflector[str], scripted: ScriptedCluster
) -> None:
    scripted.watches = [[REFUSED], [REFUSED], [REFUSED]]
    with capture_logs() as logs:
        await follow(reflector, scripted)

    assert [line["event"] for line in logs] == ["watch_failed", "watch_recovered"]
    assert reflector.problem is None


async def test_a_watch_that_lasted_begins_its_pauses_anew(
    reflector: Reflector[str], scripted: ScriptedCluster
) -> None:
    scripted.watches = [*[[REFUSED]] * 4, [300.0, UNREACHABLE], [REFUSED], [300.0, UNREACHABLE]]

    with capture_logs() as logs:
        await follow(reflector, scripted)

    starts = [at for at, _ in scripted.watched_from]
    assert [later - earlier for earlier, later in pairwise(starts)] == [1, 2, 4, 8, 301, 2, 301]
    states = [line.get("state", "recovered") for line in logs]
    assert states == ["forbidden", "recovered", "unreachable", "forbidden", "recovered", "unreachable", "recovered"]


async def test_a_watch_that_is_cut_off_again_and_again_is_said_to_fail_once(
    reflector: Reflector[str], scripted: ScriptedCluster
) -> None:
    scripted.watches = [*[[UNREACHABLE]] * 30, [60.0, UNREACHABLE]]

    with capture_logs() as logs:
        await follow(reflector, scripted)

    assert [line["event"] for line in logs] == ["watch_failed", "watch_recovered"] * 2


async def test_a_watch_that_ends_as_it_should_is_no_failure(
    reflector: Reflector[str], scripted: ScriptedCluster
) -> None:
    scripted.watches = [[UNREACHABLE], [], []]

    with capture_logs() as logs:
        await follow(reflector, scripted)

    assert [line["event"] for line in logs] == ["watch_failed", "watch_recovered"]
    assert [at for at, _ in scripted.watched_from] == [0, 1, 2, 3]


@pytest.mark.parametrize(("retry_after_s", "expected"), [(None, 1), (0, 1), (7, 7), (60, 60), (86_400, 60)])
@pytest.mark.parametrize("of_list", [True, False], ids=["list", "watch"])
async def test_an_api_server_is_left_alone_for_as_long_as_it_asks(
    reflector: Reflector[str],
    scripted: ScriptedCluster,
    retry_after_s: int | None,
    expected: float,
    of_list: bool,
) -> None:
    busy = FetchError(SourceState.UNREACHABLE, "busy", status=429, retry_after_s=retry_after_s)
    if of_list:
        scripted.failures = [busy]
    else:
        scripted.watches = [[busy]]

    await follow(reflector, scripted)

    assert scripted.watched_from[-1][0] == expected


async def test_replicas_do_not_come_back_at_the_same_moment(scripted: ScriptedCluster) -> None:
    times = set()
    for _ in range(10):
        peer = ScriptedCluster()
        peer.watches = [[REFUSED]]
        began_s = asyncio.get_running_loop().time()
        await follow(Reflector(peer, "/things", describe, name="things"), peer)
        times.add(round(peer.watched_from[-1][0] - began_s, 3))
    assert len(times) > 5
    assert all(0.5 <= waited <= 1.5 for waited in times)


async def test_a_collection_may_be_listed_again_whatever_the_watch_says(scripted: ScriptedCluster) -> None:
    seen: list[dict[str, str]] = []
    scripted.pages = [[thing("a")]]
    copy: Reflector[str] = Reflector(
        scripted,
        "/things",
        describe,
        name="things",
        recheck_s=60,
        changed=lambda: seen.append({**copy.items}),
        jitter=lambda: 0.5,
    )
    # Ends that come again and again must not put the next list off.
    scripted.watches = [[], [], [WatchEvent("ADDED", thing("b", 11))]]
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(130):
            await copy.run()

    assert scripted.lists == 3
    assert seen == [{"a": "x"}, {"a": "x", "b": "x"}, {"a": "x"}, {"a": "x"}]
    assert [at for at, version in scripted.watched_from] == [0, 1, 2, 3, 60, 120]
