"""``devicemanager worker`` with the chart's memory limit, under attack by strangers, tenants and its own peers."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import cycle

import aiohttp
import pytest
from aiohttp import web

from devicemanager.demo.cluster.objects import Grant, InstanceSpec
from tests.attack import attackers
from tests.attack.attackers import attack
from tests.attack.conftest import CARD, GROUP, Chain, Target
from tests.cluster.faults import Fault, Trouble
from tests.e2e.device_manager import trusting_anyone
from tests.e2e.test_worker_hostile_peers import SNAPSHOTS, SUMMARIES
from tests.floods import Flood
from tests.unit.worker.conftest import DeviceManagerPeer

pytestmark = [pytest.mark.timeout(120), pytest.mark.asyncio]

ATTACK_S = 6.0

Get = Callable[[str], Awaitable[tuple[int, str]]]


async def attacked(target: Target, *attacks: Callable[..., None]) -> None:
    """One attack after the other, while probes and reads go on."""

    def run() -> None:
        with target.attacked():
            for one in attacks:
                attack(one, target.program.port)

    await asyncio.to_thread(run)


@asynccontextmanager
async def user(chain: Chain, target: Target) -> AsyncIterator[Get]:
    """A user whom the front proxy has authenticated, on as many connections as it likes."""
    context = trusting_anyone()
    context.load_cert_chain(chain.folder / "reader" / "tls.crt", chain.folder / "reader" / "tls.key")
    connector = aiohttp.TCPConnector(ssl=context, limit=0, local_addr=("127.0.2.1", 0))
    async with aiohttp.ClientSession(connector=connector, headers=target.honest.headers) as session:

        async def get(path: str) -> tuple[int, str]:
            async with session.get(f"https://127.0.0.1:{target.program.port}{path}") as answer:
                return answer.status, await answer.text()

        yield get


Ask = Callable[[Get, int], Awaitable[None]]


async def asked_again_and_again(chain: Chain, target: Target, ask: Ask, at_once: int) -> None:
    """A user asks for as long as an attack lasts, so much at once, while probes and honest reads go on."""
    loop = asyncio.get_running_loop()
    held = target.attacked()
    await asyncio.to_thread(held.__enter__)
    ends_s = loop.time() + ATTACK_S

    async def again(get: Get, number: int) -> None:
        while loop.time() < ends_s:
            await ask(get, number)

    try:
        async with user(chain, target) as get, asyncio.TaskGroup() as tasks:
            for number in range(at_once):
                tasks.create_task(again(get, number))
    finally:
        await asyncio.to_thread(held.__exit__, None, None, None)


async def test_unfinished_heads_on_800_connections(chain: Chain) -> None:
    """They once made 2,115 MiB of it."""
    await attacked(await chain.start(), attackers.unfinished_heads)


async def test_answers_never_read_and_endless_heads_behind_them(chain: Chain) -> None:
    """One such connection once made 779 MiB of it."""
    await attacked(await chain.start(), attackers.an_endless_head_behind_answers, attackers.answers_never_read)


async def test_1400_idle_connections_where_the_soft_limit_is_1024(chain: Chain) -> None:
    """Every probe and reader once timed out."""
    target = await chain.start(ulimit="-S -n 1024")
    assert target.program.soft_limit_raised()
    await attacked(target, attackers.idle_connections)


async def test_all_kinds_at_once_from_16_addresses(chain: Chain) -> None:
    await attacked(await chain.start(), attackers.mixed)


async def test_tokens_that_nobody_knows_and_an_api_server_that_is_slow_to_say_so(chain: Chain) -> None:
    """One of twelve readers behind the front proxy was once answered 429."""
    target = await chain.start()
    with chain.cluster.faults.on("tokenreviews.authentication.k8s.io", Fault(Trouble.SLOW, delay_s=0.3)):
        await attacked(target, attackers.unknown_tokens)

    assert len(chain.cluster.requests.matching("tokenreviews.authentication.k8s.io")) > 16


async def test_peers_of_three_nodes_that_send_the_worst_bodies(
    chain: Chain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root on those nodes. One body once stopped the worker for 44 s and took 979 MiB."""
    cluster, hostile = chain.cluster, DeviceManagerPeer(chain.folder / "hostile")
    hostile.authority = chain.device_manager.authority
    snapshots, summaries = cycle(SNAPSHOTS.values()), cycle(SUMMARIES.values())
    honest_summary = cluster.kubelets.summary

    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(body=next(snapshots), content_type="application/json")

    def summary(node: str, *rest: object) -> web.Response:
        if node == "node-a":
            return honest_summary(node, *rest)  # type: ignore[arg-type]
        return web.Response(body=next(summaries), content_type="application/json")

    async def ask(get: Get, number: int) -> None:
        status, body = await get(path_of(f"attacked-{number}"))
        assert status == 200
        assert '"state":"invalid"' in body

    monkeypatch.setattr(cluster.kubelets, "summary", summary)
    hostile.answer = answer
    await hostile.start()
    for number in range(3):
        cluster.add_instance(
            InstanceSpec("default", f"attacked-{number}", f"hostile-{number}", [Grant("nvidia", CARD)])
        )
        cluster.add_device_manager(f"hostile-{number}", "nvidia", "127.0.0.1", hostile.port)
    try:
        target = await chain.start("--snapshot-max-age=1s")
        await asked_again_and_again(chain, target, ask, 3)
    finally:
        await hostile.stop()

    assert hostile.requests


def path_of(instance: str) -> str:
    return f"/apis/{GROUP}/v1/namespaces/default/instances/{instance}/metrics"


async def test_annotations_that_name_a_thousand_manufacturers_each(chain: Chain) -> None:
    """12 requests once wrote 12,288 lines into the log."""
    for number in range(12):
        grants = [Grant(f"m{number}-{made}", "GPU-1") for made in range(1024)]
        chain.cluster.add_instance(InstanceSpec("default", f"noisy-{number}", "node-a", grants))
    target = await chain.start()
    before = len(target.program.log().splitlines())

    async def ask(get: Get, number: int) -> None:
        assert (await get(path_of(f"noisy-{number}")))[0] == 200

    await asked_again_and_again(chain, target, ask, 12)

    assert len(target.program.log().splitlines()) - before <= 16 * 12 + 20


async def test_label_selectors_of_20000_terms(chain: Chain) -> None:
    """Five lists once took 2 s of the processor."""
    target = await chain.start()
    path = f"/apis/{GROUP}/v1/instancemetrics?labelSelector={','.join(['a'] * 20_000)}"

    async def ask(get: Get, _: int) -> None:
        assert (await get(path))[0] == 400

    await asked_again_and_again(chain, target, ask, 5)


async def test_connections_that_an_api_server_begins_at_once_are_all_served(chain: Chain) -> None:
    """Limits for unverified peers hold for it too, until its handshake has shown its certificate."""
    target = await chain.start()

    def served() -> int:
        with Flood(target.program.port) as flood:
            for _ in range(96):
                flood.idle("127.0.0.1")
            return sum(flood.ask(one) for one in flood.shake_hands())

    assert await asyncio.to_thread(served) == 96
