"""``devicemanager worker`` with the chart's memory limit, under attack by strangers, tenants and its own peers."""

import asyncio

import pytest

from tests.attack import attackers
from tests.attack.attackers import attack
from tests.attack.conftest import Chain, Target

pytestmark = [pytest.mark.timeout(120), pytest.mark.asyncio]


async def attacked(target: Target, *attacks: object) -> None:
    """One attack after the other, while probes and reads go on."""

    def run() -> None:
        with target.attacked():
            for one in attacks:
                attack(one, target.program.port)

    await asyncio.to_thread(run)


async def test_unfinished_heads_on_800_connections(chain: Chain) -> None:
    """They once made 2,115 MiB of it."""
    await attacked(await chain.start(), attackers.unfinished_heads)


async def test_answers_never_read_and_endless_heads_behind_them(chain: Chain) -> None:
    """One such connection once made 779 MiB of it."""
    await attacked(await chain.start(), attackers.an_endless_head_behind_answers, attackers.answers_never_read)


async def test_1400_idle_connections_where_the_soft_limit_is_1024(chain: Chain) -> None:
    """Every probe and reader once timed out."""
    target = await chain.start(soft_descriptors=1024)
    assert target.program.soft_limit_raised()
    await attacked(target, attackers.idle_connections)


async def test_all_kinds_at_once_from_16_addresses(chain: Chain) -> None:
    await attacked(await chain.start(), attackers.mixed)
