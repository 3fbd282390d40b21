"""A failure that may pass is no answer yet: what is sent again, when, how often, and what the caller learns."""

import asyncio
from collections.abc import Sequence
from unittest.mock import Mock

import aiohttp
import pytest
from yarl import URL

from devicemanager.transport import retries
from devicemanager.transport.messages import Received, Request
from devicemanager.transport.retries import Retries

pytestmark = [pytest.mark.asyncio, pytest.mark.looptime]


def request(backend: str = "", host: str = "api.example") -> Request:
    return Request("GET", URL(f"https://{host}/x"), 1000, backend=backend)


def answer(status: int = 200, retry_after_s: int | None = None) -> Received:
    return Received(status, b"", 0.0, retry_after_s=retry_after_s)


REFUSED = aiohttp.ClientConnectorError(Mock(ssl=None), ConnectionRefusedError(111, "refused"))
UNTRUSTED = aiohttp.ClientConnectorCertificateError(Mock(ssl=None), ValueError("unknown authority"))


class Peer:
    """Plays a script of answers and failures, each at once or after a while; then answers well."""

    def __init__(self, *script: Received | Exception, takes_s: Sequence[float] = ()) -> None:
        self.script = list(script)
        self.takes_s = list(takes_s)
        self.asked_s: list[float] = []

    async def __call__(self, _: Request) -> Received:
        self.asked_s.append(asyncio.get_running_loop().time())
        if self.takes_s:
            await asyncio.sleep(self.takes_s.pop(0))
        outcome = self.script.pop(0) if self.script else answer()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


def steady(*, retry_refused: bool = False) -> Retries:
    return Retries(retry_refused=retry_refused, jitter=lambda: 0.5)


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
async def test_a_busy_peer_is_asked_again_a_little_later_each_time(status: int) -> None:
    peer = Peer(answer(status), answer(status), answer(status))

    assert (await steady().answer(request(), peer, 10.0)).status == 200
    assert peer.asked_s == pytest.approx([0, 0.1, 0.3, 0.7])


@pytest.mark.parametrize("status", [200, 304, 400, 401, 403, 404, 408, 410, 418, 501, 505])
async def test_any_other_answer_is_final(status: int) -> None:
    peer = Peer(answer(status))

    assert (await steady().answer(request(), peer, 10.0)).status == status
    assert len(peer.asked_s) == 1


@pytest.mark.parametrize(
    "failure",
    [
        aiohttp.ServerDisconnectedError(),
        aiohttp.ClientOSError(104, "reset"),
        aiohttp.ClientConnectionResetError("closing"),
        aiohttp.ClientPayloadError("cut"),
        ConnectionResetError(104, "reset"),
    ],
    ids=lambda failure: type(failure).__name__,
)
async def test_a_lost_connection_is_made_again(failure: Exception) -> None:
    peer = Peer(failure)

    assert (await steady().answer(request(), peer, 10.0)).status == 200
    assert len(peer.asked_s) == 2


async def test_a_refused_connection_is_tried_again_only_without_another_source() -> None:
    peer = Peer(REFUSED)
    with pytest.raises(aiohttp.ClientConnectorError):
        await steady().answer(request(), peer, 10.0)
    assert len(peer.asked_s) == 1

    assert (await steady(retry_refused=True).answer(request(), Peer(REFUSED), 10.0)).status == 200


async def test_a_peer_that_cannot_be_verified_is_not_asked_again() -> None:
    peer = Peer(UNTRUSTED)
    with pytest.raises(aiohttp.ClientConnectorCertificateError):
        await steady(retry_refused=True).answer(request(), peer, 10.0)
    assert len(peer.asked_s) == 1


async def test_a_peer_is_left_alone_for_as_long_as_it_asks() -> None:
    peer = Peer(answer(429, retry_after_s=1), answer(503, retry_after_s=2))

    assert (await steady().answer(request(), peer, 10.0)).status == 200
    assert peer.asked_s == pytest.approx([0, 1.125, 1.125 + 2.25])


@pytest.mark.parametrize("retry_after_s", [3, 60, 10**10 - 1])
async def test_a_peer_that_asks_for_more_time_than_there_is_is_not_waited_for(retry_after_s: int) -> None:
    peer = Peer(answer(429, retry_after_s))

    assert (await steady().answer(request(), peer, 3.0)).status == 429
    assert peer.asked_s == [0]
    assert asyncio.get_running_loop().time() == 0


async def test_four_attempts_are_all_and_the_last_failure_is_told() -> None:
    peer = Peer(*[answer(status) for status in (429, 500, 502, 503, 200)])

    assert (await steady().answer(request(), peer, 10.0)).status == 503
    assert len(peer.asked_s) == 4


async def test_when_time_runs_out_in_an_attempt_the_failure_before_is_told() -> None:
    peer = Peer(answer(500), answer(200), takes_s=[0.1, 60])

    assert (await steady().answer(request(), peer, 3.0)).status == 500
    assert asyncio.get_running_loop().time() == pytest.approx(3.0, abs=0.05)
    assert asyncio.get_running_loop().time() < 3.0


async def test_an_attempt_that_is_cancelled_is_cancelled() -> None:
    peer = Peer(answer(500), takes_s=[0, 60])
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await steady().answer(request(), peer, 10.0)


async def test_a_hundred_readers_of_a_dead_peer_cost_it_little_more_than_a_hundred_requests() -> None:
    dead = Peer(*[answer(503)] * 1000)
    api = steady()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(100):
            tasks.create_task(api.answer(request(), dead, 10.0))
    at_once = len(dead.asked_s)
    for _ in range(100):
        await api.answer(request(), dead, 10.0 + asyncio.get_running_loop().time())

    assert at_once <= 110
    assert len(dead.asked_s) == at_once + 100


async def test_a_peer_that_answers_again_is_retried_again() -> None:
    peer = Peer(*[answer(503)] * 30)
    api = steady()
    for _ in range(30):
        await api.answer(request(), peer, 1000.0)
    for _ in range(6):
        assert (await api.answer(request(), peer, 1000.0)).status == 200

    assert (await api.answer(request(), Peer(answer(500)), 1000.0)).status == 200


async def test_one_dead_backend_costs_another_behind_the_same_address_nothing() -> None:
    api = steady()
    for _ in range(30):
        await api.answer(request("/api/v1/nodes/dead"), Peer(*[answer(503)] * 4), 1000.0)

    assert (await api.answer(request("/api/v1/nodes/live"), Peer(answer(503)), 1000.0)).status == 200
    assert (await api.answer(request(), Peer(answer(503)), 1000.0)).status == 200


async def test_peers_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "PEERS_REMEMBERED", 3)
    api = steady()
    for number in range(5):
        await api.answer(request(host=f"host-{number}"), Peer(*[answer(503)] * 4), 1000.0)

    assert len(api._budgets) == 3
    assert ("host-0", 443, "") not in api._budgets


async def test_waits_differ_from_caller_to_caller() -> None:
    pauses = set()
    for number in range(20):
        peer = Peer(answer(500))
        began_s = asyncio.get_running_loop().time()
        await Retries(retry_refused=False).answer(request(host=f"host-{number}"), peer, began_s + 10)
        pauses.add(round(peer.asked_s[1] - began_s, 6))
    assert len(pauses) > 10
    assert all(0.05 <= pause <= 0.15 for pause in pauses)


async def test_a_dead_host_is_not_asked_four_times_for_each_that_is_behind_it() -> None:
    retried = steady()
    dead = Peer(*[aiohttp.ServerDisconnectedError() for _ in range(1000)])
    for node in range(20):
        with pytest.raises(aiohttp.ServerDisconnectedError):
            await retried.answer(request(f"node-{node}"), dead, asyncio.get_running_loop().time() + 10.0)

    assert len(dead.asked_s) < 20 + 5


async def test_backends_that_fail_say_nothing_of_a_host_that_answers() -> None:
    retried = steady()
    for node in range(20):
        busy = Peer(answer(503), answer(503))
        found = await retried.answer(request(f"node-{node}"), busy, asyncio.get_running_loop().time() + 10.0)
        assert found.status == 200
