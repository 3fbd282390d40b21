"""When the bus is looked at, and what is known of it in between."""

import pytest

from devicemanager.node.blocking import BlockingCalls
from devicemanager.node.bus_watch import LOOK_EVERY_S, BusWatch
from tests.timing import DEADLINE_S, FakeClock


class Bus:
    """A bus that counts how often it is read."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.reads = 0
        self.error: OSError | None = None
        self.watch = BusWatch(self._read, BlockingCalls("the PCI bus"), self.clock)

    def _read(self) -> tuple[str, ...]:
        self.reads += 1
        if self.error is not None:
            raise self.error
        return ("0000:1b:00.0",)

    async def look(self, count: int) -> list[str]:
        return list(await self.watch.addresses(count, DEADLINE_S))


@pytest.mark.asyncio
async def test_it_is_looked_at_for_another_number_of_cards_and_now_and_then() -> None:
    bus = Bus()
    assert [await bus.look(2) for _ in range(3)] == [["0000:1b:00.0"]] * 3
    assert bus.reads == 1
    await bus.look(3)
    assert bus.reads == 2
    bus.clock.advance(LOOK_EVERY_S - 1)
    assert not bus.watch.due(3)
    bus.clock.advance(1)
    assert bus.watch.due(3)
    await bus.look(3)
    assert bus.reads == 3


@pytest.mark.asyncio
async def test_a_bus_that_cannot_be_read_has_nothing_and_is_not_read_at_every_sample() -> None:
    bus = Bus()
    await bus.look(2)
    bus.error = OSError(5, "Input/output error")
    assert [await bus.look(3) for _ in range(3)] == [[], [], []]
    assert bus.reads == 2
    bus.error = None
    bus.clock.advance(LOOK_EVERY_S)
    assert await bus.look(3) == ["0000:1b:00.0"]
