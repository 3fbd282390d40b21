"""Finding a device manager and asking it, over real TLS, whatever it answers."""

import asyncio
import gzip
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from structlog.testing import capture_logs
from typing_extensions import override

from devicemanager.clock import Clock, SystemClock
from devicemanager.errors import FetchError
from devicemanager.model.usage import SourceState
from devicemanager.rules import retries
from devicemanager.rules.freshness import is_stale
from devicemanager.tls.certificates import Authority
from devicemanager.transport import peer_time
from devicemanager.worker import device_managers as device_managers_module
from devicemanager.worker.cluster import ClusterClient
from devicemanager.worker.device_managers import DeviceManagers
from tests.cluster.faults import Fault, Trouble
from tests.cluster.stand_in import StandInCluster
from tests.timing import until
from tests.unit.worker.conftest import SERVER_NAME, DeviceManagerPeer, Handler, SkewedClock, card, snapshot_document

NAMESPACE = "gpustack-system"
PLACE = ("node-a", "nvidia")


@asynccontextmanager
async def following(
    cluster: ClusterClient, tls: Callable[[], ssl.SSLContext] | None, clock: Clock | None = None
) -> AsyncIterator[DeviceManagers]:
    managers = DeviceManagers(cluster, tls, clock or SystemClock(), namespace=NAMESPACE, server_name=SERVER_NAME)
    async with managers, asyncio.TaskGroup() as tasks:
        task = tasks.create_task(managers.follow())
        yield managers
        task.cancel()


@pytest_asyncio.fixture
async def managers(
    cluster: ClusterClient, stand_in_cluster: StandInCluster, device_manager: DeviceManagerPeer
) -> AsyncIterator[DeviceManagers]:
    """One device manager for nvidia on node-a, ready."""
    stand_in_cluster.add_device_manager(*PLACE, "127.0.0.1", device_manager.port)
    context = await asyncio.to_thread(device_manager.client_context)
    async with following(cluster, lambda: context) as managers:
        yield managers


@pytest.mark.asyncio
async def test_the_snapshot_is_read(managers: DeviceManagers, device_manager: DeviceManagerPeer) -> None:
    read = await managers.read(PLACE)

    [found] = read.snapshot.cards["nvidia"]
    assert (found.id, found.figures["memory_total"], found.figures["temperature"]) == ("GPU-1", 81920, 51)
    assert device_manager.requests == ["/monitor/snapshot"]
    age_s = read.reading(SystemClock()).age_s
    assert age_s is not None
    assert 0 <= age_s < 5


@pytest.mark.asyncio
async def test_nothing_of_another_manufacturer_is_kept(
    managers: DeviceManagers, device_manager: DeviceManagerPeer
) -> None:
    document = snapshot_document({**card("GPU-1"), "partitions": [{"id": "MIG-1"}]})
    others = {**card("GPU-2"), "partitions": [{"id": "MIG-2"}]}
    document["groups"].append({"manufacturer": "amd", "accelerators": [others]})
    document["slices"] = {
        "schemaVersion": 1,
        "usages": [
            {"manufacturer": name, "podUID": "u", "container": "main", "deviceID": "GPU-1", "memoryUsedMiB": 1}
            for name in ("nvidia", "amd")
        ],
        "devices": [{"manufacturer": name, "deviceID": "GPU-1"} for name in ("nvidia", "amd")],
    }
    device_manager.document = document

    found = (await managers.read(PLACE)).snapshot

    assert set(found.cards) == {"nvidia"}
    assert found.slices is not None
    assert set(found.slices) == {"nvidia"}
    assert set(found.slice_devices) == {"nvidia"}
    assert set(found.partitions) == {"nvidia"}


@pytest.mark.parametrize("place", [("node-a", "amd"), ("node-b", "nvidia"), ("node", "nvidia"), ("node-a", "nvid")])
@pytest.mark.asyncio
async def test_a_place_without_a_device_manager_is_not_served(
    managers: DeviceManagers, device_manager: DeviceManagerPeer, place: tuple[str, str]
) -> None:
    with pytest.raises(FetchError, match="no ready device manager") as caught:
        await managers.read(place)

    assert caught.value.state is SourceState.NOT_SERVED
    assert device_manager.requests == []


@pytest.mark.asyncio
async def test_an_answer_for_another_node_is_refused(
    managers: DeviceManagers, device_manager: DeviceManagerPeer
) -> None:
    device_manager.document["nodeName"] = "node-b"

    with pytest.raises(FetchError, match="another node: 'node-b'") as caught:
        await managers.read(PLACE)

    assert (caught.value.state, caught.value.message) == (SourceState.INVALID, "it answers for another node")


def body(content: bytes, **headers: str) -> Handler:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(
            body=content, headers={name.replace("_", "-"): value for name, value in headers.items()}
        )

    return answer


async def drip(request: web.Request) -> web.StreamResponse:
    stream = web.StreamResponse()
    await stream.prepare(request)
    while True:
        await stream.write(b" ")
        await asyncio.sleep(0.02)


async def endless(request: web.Request) -> web.StreamResponse:
    stream = web.StreamResponse()
    await stream.prepare(request)
    while True:
        await stream.write(b" " * 65_536)
        await asyncio.sleep(0)  # the peer lives on our own loop, and a write does not always wait


async def half(request: web.Request) -> web.StreamResponse:
    stream = web.StreamResponse(headers={"Content-Length": "1000"})
    await stream.prepare(request)
    await stream.write(b'{"groups":')
    assert request.transport is not None
    request.transport.close()
    return stream


async def hang_up(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def redirect(request: web.Request) -> web.StreamResponse:
    return web.Response(status=307, headers={"Location": "https://elsewhere.example/"})


async def broken(request: web.Request) -> web.StreamResponse:
    return web.Response(status=500, text="no")


async def forbidden(request: web.Request) -> web.StreamResponse:
    return web.Response(status=403)


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        pytest.param(drip, SourceState.TIMEOUT, id="slow drip"),
        pytest.param(endless, SourceState.INVALID, id="endless body"),
        pytest.param(
            body(gzip.compress(b" " * 50_000_000), Content_Encoding="gzip"), SourceState.INVALID, id="gzip bomb"
        ),
        pytest.param(half, SourceState.INVALID, id="half a body"),
        pytest.param(hang_up, SourceState.UNREACHABLE, id="hangs up"),
        pytest.param(redirect, SourceState.INVALID, id="redirect"),
        pytest.param(broken, SourceState.UNREACHABLE, id="500"),
        pytest.param(forbidden, SourceState.FORBIDDEN, id="403"),
        pytest.param(body(b"<!doctype html><title>Sign in</title>"), SourceState.INVALID, id="200 with HTML"),
        pytest.param(body(b'{"groups":[],"periodSeconds":NaN}'), SourceState.INVALID, id="NaN, which is no JSON"),
        pytest.param(body(b"[]"), SourceState.INVALID, id="no object"),
        pytest.param(body(b""), SourceState.INVALID, id="nothing"),
        pytest.param(body(b'{"groups":' + b"[" * 50_000), SourceState.INVALID, id="deep"),
    ],
)
@pytest.mark.asyncio
async def test_a_bad_answer_is_a_failure_and_asked_for_again_only_where_that_may_help(
    managers: DeviceManagers,
    device_manager: DeviceManagerPeer,
    monkeypatch: pytest.MonkeyPatch,
    answer: Handler,
    state: SourceState,
) -> None:
    await managers.read(PLACE)
    monkeypatch.setattr(device_managers_module, "READ_DEADLINE_S", 0.7)
    device_manager.requests.clear()
    device_manager.answer = answer

    with pytest.raises(FetchError) as caught:
        await managers.read(PLACE)

    assert caught.value.state is state
    assert "127.0.0.1" not in caught.value.message
    asked = len(device_manager.requests)
    # A failure that may have passed in a moment is tried again; aiohttp itself does so too, where a kept connection
    # was closed under it before any answer.
    assert asked >= retries.ATTEMPTS if answer in {half, hang_up, broken} else asked == 1


@pytest.mark.asyncio
async def test_a_certificate_of_another_authority_is_refused(
    cluster: ClusterClient, stand_in_cluster: StandInCluster, device_manager: DeviceManagerPeer, tmp_path: Path
) -> None:
    impostor = DeviceManagerPeer(tmp_path / "impostor")
    await impostor.start()
    stand_in_cluster.add_device_manager(*PLACE, "127.0.0.1", impostor.port)
    context = await asyncio.to_thread(device_manager.client_context)
    async with following(cluster, lambda: context) as managers:
        with pytest.raises(FetchError, match="certificate not accepted") as caught:
            await managers.read(PLACE)
    await impostor.stop()

    assert caught.value.state is SourceState.UNREACHABLE
    assert impostor.requests == []


@pytest.mark.asyncio
async def test_a_certificate_for_another_name_is_refused(
    cluster: ClusterClient, stand_in_cluster: StandInCluster, tmp_path: Path
) -> None:
    other = DeviceManagerPeer(tmp_path / "other", name="node-b.example")
    await other.start()
    stand_in_cluster.add_device_manager(*PLACE, "127.0.0.1", other.port)
    context = await asyncio.to_thread(other.client_context)
    async with following(cluster, lambda: context) as managers:
        with pytest.raises(FetchError, match="Hostname mismatch") as caught:
            await managers.read(PLACE)
    await other.stop()

    assert caught.value.state is SourceState.UNREACHABLE


@pytest.mark.asyncio
async def test_a_client_certificate_that_is_not_accepted_is_named_as_what_it_may_be(
    cluster: ClusterClient, stand_in_cluster: StandInCluster, device_manager: DeviceManagerPeer, tmp_path: Path
) -> None:
    stand_in_cluster.add_device_manager(*PLACE, "127.0.0.1", device_manager.port)
    Authority.create("another").client("worker").write(tmp_path / "other")
    context = await asyncio.to_thread(device_manager.client_context)
    context.load_cert_chain(tmp_path / "other" / "tls.crt", tmp_path / "other" / "tls.key")

    async with following(cluster, lambda: context) as managers:
        with pytest.raises(FetchError, match="a certificate of ours that it does not accept") as caught:
            await managers.read(PLACE)

    assert caught.value.state is SourceState.UNREACHABLE
    assert device_manager.requests == []


@pytest.mark.asyncio
async def test_without_a_client_pair_it_says_so(
    cluster: ClusterClient, stand_in_cluster: StandInCluster, device_manager: DeviceManagerPeer
) -> None:
    stand_in_cluster.add_device_manager(*PLACE, "127.0.0.1", device_manager.port)
    async with following(cluster, None) as managers:
        with pytest.raises(FetchError, match="no client certificate was given") as caught:
            await managers.read(PLACE)

    assert caught.value.state is SourceState.UNAUTHORIZED


@pytest.mark.asyncio
async def test_pods_that_cannot_be_listed_are_said_to_be_forbidden(
    cluster: ClusterClient, stand_in_cluster: StandInCluster, device_manager: DeviceManagerPeer
) -> None:
    stand_in_cluster.access.rules.clear()
    async with following(cluster, device_manager.client_context) as managers:
        with pytest.raises(FetchError, match="cannot be listed: HTTP 403") as caught:
            await managers.read(PLACE)

    assert caught.value.state is SourceState.FORBIDDEN


@pytest.mark.asyncio
async def test_that_pods_cannot_be_listed_is_no_device_managers_fault(
    cluster: ClusterClient, stand_in_cluster: StandInCluster, device_manager: DeviceManagerPeer
) -> None:
    stand_in_cluster.faults.switch_on("pods", Fault(Trouble.HTML))
    async with following(cluster, device_manager.client_context) as managers:
        with pytest.raises(FetchError, match="cannot be listed") as caught:
            await managers.read(PLACE)

    assert (caught.value.state, caught.value.by_peer) == (SourceState.INVALID, False)


@pytest.mark.asyncio
async def test_who_answers_at_a_place_changes_with_its_pod(
    managers: DeviceManagers, stand_in_cluster: StandInCluster, device_manager: DeviceManagerPeer
) -> None:
    await managers.read(PLACE)
    [old] = managers.answering(PLACE)
    stand_in_cluster.store.delete("pods", NAMESPACE, old.pod)
    stand_in_cluster.add_device_manager(*PLACE, "127.0.0.1", device_manager.port)
    await until(lambda: managers.answering(PLACE) - {old})

    [new] = managers.answering(PLACE)
    assert new != old
    assert managers.answering(("node-b", "nvidia")) == frozenset()


@pytest.mark.asyncio
async def test_pods_are_followed_and_not_listed_for_each_read(
    managers: DeviceManagers, stand_in_cluster: StandInCluster, device_manager: DeviceManagerPeer
) -> None:
    for _ in range(5):
        await managers.read(PLACE)
    assert len(stand_in_cluster.requests.matching("pods", verb="list")) == 1

    await stand_in_cluster.requests.wait_for(1, "pods", verb="watch")
    [pod] = stand_in_cluster.store.select("pods", NAMESPACE)

    def end(pod: dict[str, Any]) -> None:
        pod["metadata"]["deletionTimestamp"] = "2026-08-12T09:15:04Z"

    changes = managers._pods.changes
    stand_in_cluster.store.edit("pods", NAMESPACE, pod["metadata"]["name"], end)
    await until(lambda: managers._pods.changes > changes)

    with pytest.raises(FetchError, match="no ready device manager"):
        await managers.read(PLACE)
    assert len(stand_in_cluster.requests.matching("pods", verb="list")) == 1


# A pod beside another, as in a rollout


@pytest_asyncio.fixture
async def newer(
    stand_in_cluster: StandInCluster,
    managers: DeviceManagers,
    device_manager: DeviceManagerPeer,
    tmp_path: Path,
) -> AsyncIterator[DeviceManagerPeer]:
    """A second device manager at the same place, of the same authority and ready, newer than the first."""
    peer = DeviceManagerPeer(tmp_path / "newer", authority=device_manager.authority)
    peer.document = snapshot_document(card("GPU-1", memoryUsage=1))
    await peer.start()
    name = stand_in_cluster.add_device_manager(*PLACE, "127.0.0.1", peer.port)

    def date(pod: dict[str, Any]) -> None:
        pod["metadata"]["creationTimestamp"] = "2999-01-01T00:00:00Z"

    stand_in_cluster.store.edit("pods", NAMESPACE, name, date)
    await until(lambda: any(each.created_at.year == 2999 for each in managers._pods.items.values()))
    yield peer
    await peer.stop()


async def memory_used(managers: DeviceManagers) -> object:
    [found] = (await managers.read(PLACE)).snapshot.cards["nvidia"]
    return found.figures["memory_used"]


@pytest.mark.asyncio
async def test_of_two_the_newer_answers(
    managers: DeviceManagers, newer: DeviceManagerPeer, device_manager: DeviceManagerPeer
) -> None:
    assert await memory_used(managers) == 1
    assert device_manager.requests == []


@pytest.mark.parametrize("answer", [broken, forbidden, hang_up, redirect, body(b"<html>")])
@pytest.mark.asyncio
async def test_where_the_newer_fails_the_next_one_answers(
    managers: DeviceManagers, newer: DeviceManagerPeer, answer: Handler
) -> None:
    newer.answer = answer

    assert await memory_used(managers) == 20480
    asked = len(newer.requests)
    assert asked > 0
    assert await memory_used(managers) == 20480
    assert len(newer.requests) == asked  # set aside


@pytest.mark.asyncio
async def test_a_newer_one_that_refuses_connections_costs_no_card(
    managers: DeviceManagers, newer: DeviceManagerPeer
) -> None:
    await newer.stop()

    assert await memory_used(managers) == 20480


@pytest.mark.asyncio
async def test_a_newer_one_that_is_silent_leaves_time_for_the_next(
    managers: DeviceManagers, newer: DeviceManagerPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_managers_module, "READ_DEADLINE_S", 0.6)
    newer.answer = drip

    assert await memory_used(managers) == 20480


@pytest.mark.asyncio
async def test_pods_that_are_all_silent_have_had_the_time_that_was_shared_between_them(
    managers: DeviceManagers,
    device_manager: DeviceManagerPeer,
    newer: DeviceManagerPeer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(device_managers_module, "READ_DEADLINE_S", 0.6)
    monkeypatch.setattr(peer_time, "ENOUGH_S", 0.4)
    newer.answer = device_manager.answer = drip
    with peer_time.measured(), pytest.raises(FetchError) as caught:
        await managers.read(PLACE)

    assert (caught.value.state, caught.value.by_peer) == (SourceState.TIMEOUT, True)


@pytest.mark.asyncio
async def test_a_newer_one_for_another_node_is_set_aside(
    managers: DeviceManagers, newer: DeviceManagerPeer
) -> None:
    newer.document["nodeName"] = "node-b"

    assert await memory_used(managers) == 20480
    assert await memory_used(managers) == 20480
    assert len(newer.requests) == 1


@pytest.mark.asyncio
async def test_a_newer_one_without_a_sample_does_not_hide_the_older_ones(
    managers: DeviceManagers, newer: DeviceManagerPeer, device_manager: DeviceManagerPeer
) -> None:
    newer.document = {"timestamp": "0001-01-01T00:00:00Z", "periodSeconds": 15, "groups": []}
    assert await memory_used(managers) == 20480

    device_manager.document = newer.document
    read = await managers.read(PLACE)
    assert read.snapshot.timestamp is None


@pytest.mark.asyncio
async def test_a_newer_pod_that_cannot_prove_who_it_is_hides_nothing_and_is_named(
    managers: DeviceManagers, stand_in_cluster: StandInCluster, device_manager: DeviceManagerPeer, tmp_path: Path
) -> None:
    impostor = DeviceManagerPeer(tmp_path / "impostor")
    await impostor.start()
    name = stand_in_cluster.add_device_manager(*PLACE, "127.0.0.1", impostor.port)

    def date(pod: dict[str, Any]) -> None:
        pod["metadata"]["creationTimestamp"] = "2999-01-01T00:00:00Z"

    stand_in_cluster.store.edit("pods", NAMESPACE, name, date)
    await until(lambda: any(each.created_at.year == 2999 for each in managers._pods.items.values()))

    with capture_logs() as logs:
        for _ in range(3):
            assert await memory_used(managers) == 20480

    [said] = [entry for entry in logs if entry["event"] == "device_manager_set_aside"]
    assert (said["pod"], said["node"], said["state"]) == (name, "node-a", SourceState.UNREACHABLE)
    assert "certificate not accepted" in said["error"]
    assert impostor.requests == []
    await impostor.stop()


@pytest.mark.asyncio
async def test_one_that_was_set_aside_is_asked_where_the_other_fails(
    managers: DeviceManagers, newer: DeviceManagerPeer, device_manager: DeviceManagerPeer
) -> None:
    newer.answer = broken
    assert await memory_used(managers) == 20480

    device_manager.answer = broken
    newer.answer = newer.snapshot
    assert await memory_used(managers) == 1

    newer.answer = broken
    with pytest.raises(FetchError, match="HTTP 500"):
        await managers.read(PLACE)


@pytest.mark.asyncio
async def test_the_second_address_of_a_pod_is_asked_where_the_first_is_dead(
    managers: DeviceManagers, stand_in_cluster: StandInCluster, device_manager: DeviceManagerPeer
) -> None:
    [found] = stand_in_cluster.store.select("pods", NAMESPACE)

    def add_family(pod: dict[str, Any]) -> None:
        pod["status"] |= {"podIP": "::1", "podIPs": [{"ip": "::1"}, {"ip": "127.0.0.1"}]}

    changes = managers._pods.changes
    stand_in_cluster.store.edit("pods", NAMESPACE, found["metadata"]["name"], add_family)
    await until(lambda: managers._pods.changes > changes)

    assert await memory_used(managers) == 20480


# Freshness (case G06)


@pytest.mark.parametrize("skew_s", [-300, 0, 300])
@pytest.mark.parametrize(
    ("age_header", "stale"), [("0", False), ("45", False), ("46", True), ("95", True)], ids=lambda value: str(value)
)
@pytest.mark.asyncio
async def test_age_goes_by_the_sender_whatever_either_clock_says(
    cluster: ClusterClient,
    stand_in_cluster: StandInCluster,
    device_manager: DeviceManagerPeer,
    skew_s: int,
    age_header: str,
    stale: bool,
) -> None:
    stand_in_cluster.add_device_manager(*PLACE, "127.0.0.1", device_manager.port)
    context = await asyncio.to_thread(device_manager.client_context)
    device_manager.headers["Age"] = age_header
    clock = FrozenMonotonic(timedelta(seconds=skew_s))
    async with following(cluster, lambda: context, clock) as managers:
        read = await managers.read(PLACE)

    age_s = read.reading(clock).age_s

    assert age_s == int(age_header)
    assert is_stale(age_s, read.snapshot.period_s) is stale


class FrozenMonotonic(SkewedClock):
    """Skewed, and a reading is held for no time at all."""

    @override
    def monotonic(self) -> float:
        return 1000.0


@pytest.mark.parametrize("skew_s", [-300, 0, 300])
@pytest.mark.parametrize(("old_s", "stale"), [(10, False), (100, True)])
@pytest.mark.asyncio
async def test_without_an_age_the_senders_own_date_is_compared(
    cluster: ClusterClient,
    stand_in_cluster: StandInCluster,
    device_manager: DeviceManagerPeer,
    skew_s: int,
    old_s: int,
    stale: bool,
) -> None:
    """The existing operator sends no Age: its Date and its timestamp come from one clock."""
    stand_in_cluster.add_device_manager(*PLACE, "127.0.0.1", device_manager.port)
    context = await asyncio.to_thread(device_manager.client_context)
    sender_s = datetime.now(UTC) + timedelta(seconds=skew_s)
    device_manager.headers = {"Date": sender_s.strftime("%a, %d %b %Y %H:%M:%S GMT")}
    device_manager.document["timestamp"] = (sender_s - timedelta(seconds=old_s)).isoformat()
    async with following(cluster, lambda: context) as managers:
        read = await managers.read(PLACE)

    assert is_stale(read.reading(SystemClock()).age_s, read.snapshot.period_s) is stale


@pytest.mark.parametrize(
    ("period", "age", "stale"),
    [
        (1.5, "45", False),
        (1.5, "46", True),
        (2, "6", False),
        (2, "7", True),
        (10**18, "45", False),
        (10**18, "46", True),
    ],
)
@pytest.mark.asyncio
async def test_an_invalid_period_counts_as_fifteen_seconds(
    managers: DeviceManagers, device_manager: DeviceManagerPeer, period: float, age: str, stale: bool
) -> None:
    device_manager.document["periodSeconds"] = period
    device_manager.headers["Age"] = age
    clock = FrozenMonotonic(timedelta(0))

    read = await managers.read(PLACE)
    age_s = read.reading(clock).age_s

    assert age_s is not None
    held_s = age_s - int(age)
    assert is_stale(age_s - held_s, read.snapshot.period_s) is stale


@pytest.mark.asyncio
async def test_a_zero_timestamp_is_never_fresh(managers: DeviceManagers, device_manager: DeviceManagerPeer) -> None:
    device_manager.document["timestamp"] = "0001-01-01T00:00:00Z"

    read = await managers.read(PLACE)

    assert read.reading(SystemClock()).age_s is None
